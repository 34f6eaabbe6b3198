"""``workbench ps``, ``models``, ``infer``, ``load``, ``unload`` and ``events``."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from onnx_models import identity

from workbench import Workbench
from workbench.commands.cli import main
from workbench.errors import LoadFailed
from workbench.running import announce

Run = Callable[..., Result]


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
    dead = announce("http://127.0.0.1:9", "")
    assert dead is not None
    try:
        assert "no answer" in run("ps").output
        for command in (["models"], ["token"]):
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


def test_inference(wb: Workbench, run: Run, sample_models: Path) -> None:
    """The answer is JSON; several outputs are an object, and a mistake is one line."""
    told = run("infer", "wine", "--json", json.dumps([[0.0] * 13]))
    assert np.allclose(json.loads(told.output), wb.infer("wine", np.zeros((1, 13))))
    picture = str(sample_models / "digit.png")
    answer = json.loads(run("infer", "digits_reader", "--image", picture).output)
    assert answer["label"] == ["2"]
    told = run("infer", "digits_reader", "--image", picture, "--output", "label")
    assert json.loads(told.output) == ["2"]
    for given, mistake in (("[[1, 2]]", "shape [-1, 13], got [1, 2]"), ("-1.5", "got []")):
        told = run("infer", "wine", "--json", given)
        assert (told.exit_code, len(told.output.splitlines())) == (2, 1)
        assert mistake in told.output


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
