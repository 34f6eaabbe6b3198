"""The options that give a command the inputs of a model."""

import json
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result

from workbench.commands.inputs import reads_inputs

ROW = [0.0] * 13
V2 = {"inputs": [{"name": "x", "datatype": "FP16", "shape": [1, 13], "data": [0] * 13}]}


def given(*arguments: str, stdin: str = "", required: bool = True) -> tuple[Any, Result]:
    """The inputs that a command with *arguments* gets, and its result."""
    got: list[Any] = []

    @click.command()
    @reads_inputs(required=required)
    def command(inputs: Any) -> None:
        got.append(inputs)

    result = CliRunner().invoke(command, arguments, input=stdin)
    return (got or [None])[0], result


@pytest.mark.parametrize("way", ["text", "file", "stdin"])
def test_json(tmp_path: Path, way: str) -> None:
    """A value, an object by name and a V2 request are taken, as text, as a file and from stdin."""
    for value in ([ROW], {"x": [ROW]}, V2, 1.5):
        text = json.dumps(value)
        (tmp_path / "x.json").write_text(text)
        argument = {"text": text, "file": str(tmp_path / "x.json"), "stdin": "-"}[way]
        inputs, _ = given("--json", argument, stdin=text)
        if value is V2:
            assert inputs["x"].dtype == np.float16
            inputs = inputs["x"].tolist()
            value = [ROW]  # noqa: PLW2901 - what it holds
        assert inputs == value


def test_files(tmp_path: Path) -> None:
    """Arrays come from .npy and .npz, pictures as they are."""
    np.save(tmp_path / "x.npy", np.zeros((1, 13)))
    np.savez(tmp_path / "x.npz", x=np.zeros((1, 13)))
    assert given("--npy", str(tmp_path / "x.npy"))[0].tolist() == [ROW]
    assert given("--npy", str(tmp_path / "x.npz"))[0]["x"].tolist() == [ROW]
    assert given("--image", str(tmp_path / "x.npy"))[0] == (tmp_path / "x.npy").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give the inputs by one of --json, --npy and --image"),
        (("--json", "[1]", "--npy", "x"), "give the inputs by one of"),
        (("--json", "[1"), "[1 cannot be read: "),
        (("--json", "no.json"), "no.json: No such file"),
        (("--json", "rows"), "'rows' is neither JSON nor a file"),
        (("--json", "@rows"), "'@rows' is neither JSON nor a file"),
        (("--npy", "pyproject.toml"), "pyproject.toml cannot be read: it is no .npy or .npz file"),
        (("--image", "no.png"), "no.png: No such file"),
    ],
)
def test_inputs_that_are_none(arguments: tuple[str, ...], message: str) -> None:
    """A mistake is one line."""
    _, result = given(*arguments)
    assert message in str(result.exception)
    assert "\n" not in str(result.exception)


def test_inputs_that_may_be_left_out() -> None:
    """A command may do without."""
    assert given(required=False)[1].exit_code == 0


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 and no archive", b"\x93NUMPY\x01"])
def test_files_that_are_no_arrays(tmp_path: Path, content: bytes) -> None:
    """A file that is empty or cut off is told in one line too."""
    path = tmp_path / "x.npy"
    path.write_bytes(content)
    assert str(given("--npy", str(path))[1].exception).startswith(f"{path} cannot be read: ")
