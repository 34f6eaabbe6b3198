"""``workbench ps``, ``models``, ``infer``, ``load``, ``unload`` and ``events``."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from onnx_models import identity

from workbench import Workbench
from workbench.commands.cli import main
from workbench.core.lifecycle.sources import Sources
from workbench.errors import LoadFailed
from workbench.running import announce

Run = Callable[..., Result]
V2 = {"inputs": [{"name": "features", "datatype": "FP32", "shape": [1, 13], "data": [0] * 13}]}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The user's cache folder, of these tests alone, so that other tests' servers are not known."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


@pytest.fixture(scope="module")
def wb(cache: Path, sample_models: Path) -> Iterator[Workbench]:
    with Workbench(sample_models, device="cpu", token="the-token-of-this-test") as workbench:
        yield workbench


@pytest.fixture
def run(cache: Path) -> Run:
    """Runs a command in this process."""
    return lambda *arguments, **more: CliRunner().invoke(main, [*arguments], **more)


def test_which_servers_run(wb: Workbench, run: Run) -> None:
    """``ps`` tells the address, the process, the models and the memory of each server."""
    for name in wb.names:
        wb.unload(name)
    wb.load("wine")
    head, row = run("ps").output.splitlines()
    assert head.split("  ")[0] == "url"
    assert row.split()[:2] == [wb.url, str(os.getpid())]
    assert "1 of 7" in row
    assert row.endswith("KiB")
    for arguments in ((), (wb.url,), ("--url", wb.url), ("--url", wb.url.rpartition(":")[2])):
        assert run("token", *arguments).output.strip() == wb.token
    measured = run("bench", "wine", "--clients", "1", "--seconds", "0.02")
    assert "wine answers up to " in measured.output
    dead = announce("http://127.0.0.1:9", "")
    assert dead is not None
    try:
        assert "no answer" in run("ps").output
        for command in (["models"], ["bench", "wine"], ["token"]):
            told = run(*command)
            assert told.exit_code == 2
            assert "2 servers run: choose one with --url: " in told.output
        assert run("models", "--url", wb.url).exit_code == 0
    finally:
        dead.unlink()


def test_a_token_that_is_not_found(
    wb: Workbench, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each command that asks a server takes the token, such as that of another machine's."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    server = ("--url", wb.url, "--token", wb.token)
    asked = {
        ("models",): "wine",
        ("infer", "wine", "--json", json.dumps([[0.0] * 13])): "[",
        ("load", "wine"): "loaded wine",
        ("unload", "wine"): "unloaded wine",
        ("events",): "unload",
    }
    for command, told in asked.items():
        assert run(*command, "--url", wb.url).exit_code != 0
        answer = run(*command, *server)
        assert answer.exit_code == 0, answer.output
        assert told in answer.output


def test_models_that_are_broken(tmp_path: Path, run: Run) -> None:
    """A model that failed to load, or whose folder cannot be read, is broken, with the reason."""
    for name in ("gone", "nonsense", "odd"):
        identity(tmp_path / name / "1" / "model.onnx")
    (tmp_path / "nonsense" / "1" / "model.onnx").write_bytes(b"nonsense")
    (tmp_path / "odd" / "config.pbtxt").write_text("max_batch_size: many")
    with Workbench(tmp_path, device="cpu") as workbench:
        with pytest.raises(LoadFailed):
            workbench.load("nonsense")
        workbench.load("gone")
        workbench.unload("gone")
        told = run("models", "--url", workbench.url).output
    rows = [row.split() for row in told.splitlines()]
    assert rows[1][:4] == ["gone", "1", "not", "loaded"]
    assert rows[2][:3] == ["nonsense", "1", "broken"]
    assert rows[3][:2] == ["odd", "broken"]
    assert "is not an ONNX model" in " ".join(rows[2])


def test_how_a_server_is_stopped(wb: Workbench, run: Run) -> None:
    """No command does it; who looks for one is told how, with the server's process."""
    told = run("stop")
    assert told.exit_code == 2
    assert told.output == (
        f"workbench: no command stops {wb.url}: press Ctrl-C where it runs, or %workbench stop in "
        f"its notebook, or kill {os.getpid()}\n"
    )
    assert run("stop", "--url", "http://127.0.0.1:9").output.endswith("stop in its notebook\n")


def test_the_models(wb: Workbench, run: Run) -> None:
    """``models`` lists them with what they take; ``load`` and ``unload`` do what they say."""
    assert run("unload", "digits").output == "unloaded digits\n"
    assert run("load", "digits").output == "loaded digits\n"
    line = next(line for line in run("models").output.splitlines() if line.startswith("digits "))
    assert "ready" in line
    assert "pixels FP32[-1,64]" in line
    for verb in ("load", "unload"):
        told = run(verb, "dijits")
        assert told.exit_code == 2
        assert told.output.startswith("workbench: ")
        assert "there is no model 'dijits'" in told.output


@pytest.mark.parametrize(
    "given", [[[0.0] * 13], {"features": [[0] * 13]}, V2], ids=["value", "by name", "V2"]
)
@pytest.mark.parametrize("way", ["text", "file", "stdin"])
def test_inference_of_json(wb: Workbench, run: Run, tmp_path: Path, given: Any, way: str) -> None:
    """A value, an object by name and a V2 request are taken, as text, as a file and from stdin."""
    text = json.dumps(given)
    (tmp_path / "x.json").write_text(text)
    argument = {"text": text, "file": str(tmp_path / "x.json"), "stdin": "-"}[way]
    told = run("infer", "wine", "--json", argument, input=text)
    assert np.allclose(json.loads(told.output), wb.infer("wine", np.zeros((1, 13))))


def test_inference_of_files(wb: Workbench, run: Run, tmp_path: Path, sample_models: Path) -> None:
    """Arrays come from .npy and .npz, pictures as they are; several outputs are an object."""
    np.save(tmp_path / "x.npy", np.zeros((1, 13)))
    np.savez(tmp_path / "x.npz", features=np.zeros((1, 13)))
    for name in ("x.npy", "x.npz"):
        told = run("infer", "wine", "--npy", str(tmp_path / name))
        assert np.allclose(json.loads(told.output), wb.infer("wine", np.zeros((1, 13))))
    picture = str(sample_models / "digit.png")
    answer = json.loads(run("infer", "digits_reader", "--image", picture).output)
    assert answer["label"] == ["2"]
    told = run("infer", "digits_reader", "--image", picture, "--output", "label")
    assert json.loads(told.output) == ["2"]


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
        (("--json", "[[1, 2]]"), "takes shape [-1, 13], got [1, 2]"),
        (("--json", "-1.5"), "takes shape [-1, 13], got []"),
    ],
)
def test_inputs_that_are_none(
    wb: Workbench, run: Run, arguments: tuple[str, ...], message: str
) -> None:
    """A mistake is one line, with status 2."""
    told = run("infer", "wine", *arguments)
    assert told.exit_code == 2
    assert message in told.output
    assert len(told.output.splitlines()) == 1


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 and no archive", b"\x93NUMPY\x01"])
def test_files_that_are_no_arrays(wb: Workbench, run: Run, tmp_path: Path, content: bytes) -> None:
    """A file that is empty or cut off is one line too."""
    path = tmp_path / "x.npy"
    path.write_bytes(content)
    told = run("infer", "wine", "--npy", str(path))
    assert told.exit_code == 2
    assert told.output.startswith(f"workbench: {path} cannot be read: ")


def test_a_measurement_of_given_inputs(wb: Workbench, run: Run) -> None:
    """``bench`` sends what is given; V2's JSON is sent in the datatypes that it names."""
    arguments = ("--clients", "1", "--seconds", "0.1", "--json", json.dumps(V2))
    told = run("bench", "wine", "--url", wb.url, "--token", wb.token, *arguments)
    assert told.exit_code == 0, told.output
    assert "wine answers up to" in told.output
    assert "failed" not in told.output


def test_the_events(wb: Workbench, run: Run) -> None:
    """They are told as ``serve`` prints them."""
    lines = run("events").output.splitlines()
    assert len(lines) == len(wb.events)
    assert any(" load " in line and "wine:1" in line for line in lines)


def test_events_that_come_are_followed(wb: Workbench, cache: Path) -> None:
    """With --follow the command goes on, until Ctrl-C ends it with status 0."""
    command = [sys.executable, "-m", "workbench", "events", "--follow", "--url", wb.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        next(lines)
        wb.unload("diabetes")
        wb.load("diabetes")
        assert any("diabetes:1" in line for line in lines)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 0


def test_no_server(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without one, each command says so, and how to have one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert run("ps").output == "no server of yours runs on this machine\n"
    for arguments in (("models",), ("load", "m"), ("events",)):
        told = run(*arguments)
        assert told.exit_code == 2
        assert "workbench serve FOLDER, or --url of another" in told.output
    told = run("models", "--url", "http://127.0.0.1:9")
    assert told.exit_code == 2
    assert told.output.endswith("no server answers at http://127.0.0.1:9: Connection refused\n")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("bench", "m", "--clients", "x"), "clients: 'x' is not a list such as 1,2,4"),
        (("bench", "m", "--seconds", "x"), "seconds: 'x' is not a span of time"),
        (("bench", "m", "--json", "{"), "{ cannot be read"),
        (("infer", "m", "--json", "{"), "{ cannot be read"),
        (("infer", "m"), "give the inputs by one of --json, --npy and --image"),
        (
            ("infer", "m", "--json"),
            "Option '--json' requires an argument: inputs as JSON, or a file of it, or - for st",
        ),
        (
            ("events", "--follow=1"),
            "Option '--follow' does not take a value: go on with those that come",
        ),
        (("infer", "m", "--jso", "1"), "No such option '--jso'. Did you mean '--json'? See main "),
    ],
)
def test_a_wrong_option_is_told_first(
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    told: str,
) -> None:
    """It is wrong at every server, so no server is needed to tell it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.output.startswith(f"workbench: {told}")


def test_servers_that_cannot_be_listed(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no server could write its file, commands say so, and not that none runs."""
    cache = tmp_path / "cache"
    cache.write_text("a file has the place of the folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    why = f"servers cannot be listed in {cache}/workbench/servers, as this user cannot write there"
    assert run("ps").output == f"{why}\n"
    for command in ("models", "events", "token"):
        told = run(command)
        assert told.exit_code == 2
        assert told.output.endswith(f"{why}: give the address of one with --url\n")


def test_a_terminal_shows_how_far_a_load_is(
    wb: Workbench, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``load`` tells the step of a load that takes its time."""
    gate = threading.Event()
    monkeypatch.setattr(Sources, "_run_samples", lambda *_: gate.wait(30))
    wb.unload("wine")
    terminal, its_end = os.openpty()
    command = [sys.executable, "-m", "workbench", "load", "wine", "--url", wb.url]
    with subprocess.Popen(command, stderr=its_end, env={**os.environ, "TERM": "xterm"}) as loading:
        os.close(its_end)
        told = b""
        while b"loading wine: warming up, " not in told:
            told += os.read(terminal, 1000)
        gate.set()
        assert loading.wait(30) == 0
    os.close(terminal)
