"""The command line, mostly as a process of its own."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import httpx
import pytest
from click.testing import CliRunner
from onnx_models import loop

from workbench.commands import serving as serving_commands
from workbench.commands.cli import main
from workbench.core.status.snapshot import ModelStatus, Snapshot
from workbench.model import ModelId, ModelState
from workbench.settings import Settings, declared

COMMAND = [sys.executable, "-m", "workbench"]


@pytest.fixture
def serving(sample_models: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """``workbench serve`` on a free port, and its url."""
    with started(sample_models, sample_models) as process:  # which counts once
        assert process.stdout is not None
        yield process, process.stdout.readline().split()[1].rstrip(":")


@contextmanager
def started(*folders: Path) -> Iterator[subprocess.Popen[str]]:
    command = [*COMMAND, "serve", *map(str, folders), "--port", "0", "--budget", "64MiB"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("verb", ["save", "pin", "unpin", "budget"])
def test_commands_of_a_notebook(verb: str) -> None:
    """Who looks for one on the command line is told where it is."""
    told = CliRunner().invoke(main, [verb, "x", "--p99", "20ms"])
    assert told.exit_code == 2
    start = f"workbench: {verb} is for notebooks and Python: %workbench {verb}, or wb.{verb}"
    assert told.output.startswith(start)
    shown = CliRunner().invoke(main, [verb, "--help"])
    assert f"wb.{verb}, in the process" in " ".join(shown.output.split())


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_serves_until_told_to_stop(
    serving: tuple[subprocess.Popen[str], str], stop: signal.Signals
) -> None:
    """Serve answers until Ctrl-C or SIGTERM, tells events, and ends with status 0."""
    process, url = serving
    assert httpx.get(f"{url}/v2/health/ready").status_code == 200
    assert process.stdout is not None
    lines = iter(process.stdout.readline, "")
    assert any("Ctrl-C stops it" in line for line in lines)
    body = {"inputs": [{"name": "features", "shape": [0, 13], "datatype": "FP32", "data": []}]}
    assert httpx.post(f"{url}/v2/models/wine/infer", json=body).status_code == 200
    assert any("wine:1" in line for line in lines)
    process.send_signal(stop)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert out.splitlines()[-1] == "stopped"
    assert err == ""


@pytest.mark.parametrize(
    ("folder", "told"),
    [("", "put ONNX files into "), ("m", "1 is broken ('m'): workbench models says why")],
)
def test_serve_says_what_is_not_served(tmp_path: Path, folder: str, told: str) -> None:
    """Of a folder without models, and of broken ones, serve says what to do."""
    (tmp_path / folder).mkdir(exist_ok=True)
    with started(tmp_path) as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "Ctrl-C stops it\n")
        assert any(line.startswith(told) for line in lines)


def test_interrupted_while_it_is_imported(tmp_path: Path) -> None:
    """Ctrl-C before the command has begun ends it as a signal does, without a traceback."""
    (tmp_path / "click.py").write_text("import os\nos.kill(os.getpid(), 2)\nraise ImportError\n")
    path = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    done = subprocess.run(
        [*COMMAND, "doctor"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (-signal.SIGINT, b"")


def test_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C ends a command with the status that shells give it, 130, and without a word."""

    def examine() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("workbench.commands.doctor.examine", examine)
    told = CliRunner().invoke(main, ["doctor"])
    assert (told.exit_code, told.output) == (130, "\n")


def test_a_second_signal_ends_running_requests(tmp_path: Path) -> None:
    """After SIGTERM running requests have 25 s to finish; after another one they are ended."""
    folder = tmp_path / "endless" / "1"
    loop(folder / "model.onnx")
    inputs = [
        {"name": "n", "shape": [], "datatype": "INT64", "data": [2**62]},
        {"name": "x", "shape": [8, 8], "datatype": "FP32", "data": [0] * 64},
    ]
    command = [*COMMAND, "serve", str(tmp_path), "--port", "0", "--token", "off"]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process,
        ThreadPoolExecutor(1) as thread,
    ):
        assert process.stdout is not None
        url = process.stdout.readline().split()[1].rstrip(":")
        infer = f"{url}/v2/models/endless/infer"
        answer = thread.submit(httpx.post, infer, json={"inputs": inputs}, timeout=60)
        lines = iter(process.stdout.readline, "")
        assert any("endless:1" in line for line in lines)
        process.terminate()
        assert any("running requests have 25 s to finish; Ctrl-C" in line for line in lines)
        process.terminate()
        out, _ = process.communicate(timeout=20)
    assert (process.returncode, out.splitlines()[-1]) == (0, "stopped")
    assert answer.done()


def test_requests_that_wait_for_a_load_have_time_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The end of a server tells of them as of requests that run."""
    looks = iter([KeyboardInterrupt, None])

    def wait_for_events(*_: object) -> list[Any]:
        if (ends := next(looks)) is not None:
            raise ends
        return []

    loading = ModelStatus(ModelId("m", 1), ModelState.LOADING, pending=1)
    server = SimpleNamespace(
        wait_for_events=wait_for_events,
        is_running=True,
        snapshot=lambda: Snapshot(0.0, (), (loading,)),
        settings=Settings.of(environ={}, exit_timeout="25s"),
    )
    monkeypatch.setattr(serving_commands.signal, "signal", lambda *_: None)
    serving_commands.follow(server, "serving")
    assert "running requests have 25 s to finish" in capsys.readouterr().out


def test_the_first_line_says_where_grpc_is(sample_models: Path, tmp_path: Path) -> None:
    """The first line names the addresses for gRPC, that of inference first."""
    sockets = f"unix:{tmp_path}/data.sock", f"unix:{tmp_path}/management.sock"
    flags = ["--port", "0", "--token", "off", "--grpc-port", sockets[0]]
    command = [*COMMAND, "serve", *flags, "--modelmesh", sockets[1]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.terminate()
        process.communicate(timeout=60)
    assert f" and gRPC at {', '.join(sockets)} with 0 models: " in line


def test_every_option_says_its_default() -> None:
    """The help of a command says the default of each option that takes a value."""
    for name, command in main.commands.items():
        with click.Context(command) as context:
            for option in command.params:
                if isinstance(option, click.Option) and not option.is_flag:
                    _, told = option.get_help_record(context) or ("", "")
                    assert "default: " in told, f"{name} {option.opts}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["serve", "nowhere"], "does not exist; workbench samples --out FOLDER makes one"),
        (["serve", "modles"], "/modles' does not exist; did you mean '"),
        (["serve", __file__], "is a file, not a folder: name the folder of the models"),
        (["serve", ".", "--budget", "much"], "budget: 'much' is not an amount of memory"),
        (["serve", ".", "--port", "-1"], "port: -1 is not between 0 and 65535"),
        (["serve", ".", "--port", "http"], "port: 'http' is not a whole number"),
        (["serve", ".", "--host", "192.0.2.1", "--port", "0", "--token", "off"],
         "cannot be listened on"),
        (["serve", ".", "--host", "0.0.0.0"], "lets other machines in: add token='auto'"),
        (["serve", ".", "--token", "short"], "token: use auto, off, or 16 to 256 characters"),
        (["token", "http://127.0.0.1:1"], "no server of yours at http://127.0.0.1:1 asks for"),
        (["serve", ".", "--evict", "fifo"], "is not one of 'lru', 'lfu', 'largest'"),
        (["serve", ".", "--no-such-flag"], "No such option '--no-such-flag'. See workbench serve"),
        (["serve", ".", "--tokn", "off"], "Did you mean '--token'? See workbench serve --help"),
        (["serve"], "Missing argument 'REPOSITORY...'. See workbench serve --help"),
        (["sample_models"], "(Did you mean one of: 'models', 'samples'?) See workbench --help"),
        (["no-such-command"], "No such command 'no-such-command'. See workbench --help"),
        (["start", "models"], "%workbench start is for notebooks; in a shell: workbench serve"),
        (["restart"], "%workbench restart is for notebooks; in a shell: workbench serve FOLDER"),
        (["samples", "--out", __file__], "is a file"),
        (["samples", "--out", __file__, "--count", "1"], "file"),
        (["samples", "--out", "x", "--size", "big"], "'big' is not an amount of memory"),
        (["samples", "--out", "x", "--count", "0"], "count"),
        (["demo", "nowhere"], "nowhere holds no sample models"),
    ],
)  # fmt: skip
def test_mistakes_end_with_status_2(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mistake is one clear line on stderr, and status 2."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    result = CliRunner().invoke(main, arguments, prog_name="workbench")
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.output


def test_a_warning_is_one_line(sample_models: Path, tmp_path: Path) -> None:
    """As an error is, and without the place in the code."""
    shutil.copytree(sample_models / "wine", tmp_path / "wine")
    (tmp_path / "wine.onnx").touch()
    command = [*COMMAND, "serve", str(tmp_path), "--port", "0", "--token", "off"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as it:
        assert it.stdout is not None
        assert it.stdout.readline().startswith("workbench http://")
        it.send_signal(signal.SIGINT)
        _, told = it.communicate(timeout=60)
    assert told.startswith("workbench: 'wine' is served from the folder ")
    assert told.count("\n") == 1


def test_a_taken_port(serving: tuple[subprocess.Popen[str], str], sample_models: Path) -> None:
    """A port in use names the process that has it."""
    process, url = serving
    port = url.rpartition(":")[2]
    result = CliRunner().invoke(main, ["serve", str(sample_models), "--port", port])
    assert result.exit_code == 2
    assert f"port {port} is taken by process {process.pid}" in result.stderr


def test_every_setting_is_a_flag() -> None:
    """The help of serve lists every setting."""
    told = CliRunner().invoke(main, ["serve", "--help"]).output
    for option in declared():
        assert f"--{option.name.replace('_', '-')}" in told


def test_samples_writes_the_sample_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples makes the folder that README serves, and what is in it already stays."""
    monkeypatch.chdir(tmp_path)
    mine = Path("sample_models", "wine", "config.pbtxt")
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    result = CliRunner().invoke(main, ["samples"])
    assert result.output == (
        "sample_models is written: workbench serve sample_models, or Workbench('sample_models') in "
        "Python\n"
    )
    assert Path("sample_models", "digits", "1", "model.onnx").is_file()
    assert mine.read_text() == "mine"


@pytest.mark.parametrize("given", [[], ["--out", "heavy_models"]])
def test_samples_writes_heavy_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: list[str]
) -> None:
    """With a count or a size, samples writes so many heavy models, and says how to serve them.

    They are not put among the sample models.
    """
    monkeypatch.chdir(tmp_path)
    out = Path("heavy_models")
    result = CliRunner().invoke(main, ["samples", *given, "--count", "2", "--size", "1MiB"])
    assert result.exit_code == 0
    assert {path.name for path in out.iterdir()} == {"heavy_0", "heavy_1"}
    assert "workbench serve" in result.output


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device")
@pytest.mark.parametrize("arguments", [["--help"], ["ps"]])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_cannot_be_written(
    arguments: list[str], unbuffered: str, tmp_path: Path
) -> None:
    """Where the disk is full, that is one line on stderr, and status 2, written late or at once."""
    more = {"XDG_CACHE_HOME": str(tmp_path), "PYTHONUNBUFFERED": unbuffered}
    environment = {**os.environ, **more}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COMMAND, *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            check=False,
        )
    assert done.stderr == "workbench: No space left on device\n"
    assert done.returncode == 2


def test_output_that_nobody_reads(sample_models: Path, tmp_path: Path) -> None:
    """A pipe that was closed, as by ``| head``, ends the command without a word."""
    out = tmp_path / "wine.tar.gz"
    CliRunner().invoke(main, ["pack", str(sample_models / "wine"), "--out", str(out)])
    ours, theirs = os.pipe()
    os.close(ours)
    done = subprocess.run(
        [*COMMAND, "pack", "--check", str(out)], stdout=theirs, stderr=subprocess.PIPE, check=False
    )
    os.close(theirs)
    assert (done.returncode, done.stderr) == (1, b"")


def test_version() -> None:
    """The version is the package's."""
    from workbench import __version__

    assert __version__ in CliRunner().invoke(main, ["--version"]).output


@pytest.mark.parametrize(("columns", "is_cut"), [("80", True), ("200", False)])
def test_help_is_as_wide_as_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str, is_cut: bool
) -> None:
    """In a wide terminal what each command does is whole, in lines of up to 120 characters."""
    monkeypatch.setenv("COLUMNS", columns)
    main(["--help"], standalone_mode=False)  # click's own runner has 80 columns
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= min(int(columns), 120)
    assert any(line.endswith("...") for line in lines[1:]) == is_cut
