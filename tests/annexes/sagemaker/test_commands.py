"""The commands endpoint and pack, mostly as a process of its own."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from workbench.commands.cli import main

COMMAND = [sys.executable, "-m", "workbench"]


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_an_endpoint(sample_models: Path, end: signal.Signals) -> None:
    """Endpoint serves the artifacts of a folder, and tells in the end what it did."""
    command = [*COMMAND, "endpoint", str(sample_models), "--port", "0", "--token", "off"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        assert "Ctrl-C" in process.stdout.readline()
        headers = {"x-amzn-sagemaker-target-model": "wine"}
        body = {"instances": [[0.0] * 13]}
        url = f"{url.rstrip('/')}/endpoints/e/invocations"
        assert httpx.post(url, json=body, headers=headers).status_code == 200
        process.send_signal(end)
        out, _ = process.communicate(timeout=60)
    assert "wine: ModelLoadingTime" in out
    assert "LoadedModelCount 1" in out
    assert process.returncode == 0


@pytest.mark.parametrize("own", ["", "import logging\nlogging.basicConfig()\n"])
def test_what_models_code_says_is_printed(tmp_path: Path, own: str) -> None:
    """What it prints is seen at once, where Python would keep it back as stdout is a pipe.

    The operator of a server finds the line of the artifact's code that failed in its stderr.
    """
    script = (
        f"{own}def model_fn(folder):\n    {{}}\n"
        "def predict_fn(data, _):\n    print('asked', data)\n    return {}\n"
    )
    for name, lines in {
        "runs": ("pass", "1"),
        "runs_not": ("pass", "data[9]"),
        "loads_not": ("open(folder + '/missing')", "1"),
    }.items():
        (tmp_path / name / "code").mkdir(parents=True)
        (tmp_path / name / "code" / "inference.py").write_text(script.format(*lines))
    flags = ["--port", "0", "--token", "off", "--artifact-code", "on"]
    command = [*COMMAND, "endpoint", str(tmp_path), *flags]
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environ) as process:
        assert process.stdout is not None
        url = f"{process.stdout.readline().split()[-1].rstrip('/')}/endpoints/e/invocations"

        def ask(name: str, number: int) -> int:
            headers = {"x-amzn-sagemaker-target-model": name}
            return httpx.post(url, json=[number], headers=headers).status_code

        # the second request causes no event, which would bring it along
        assert [ask("runs", number) for number in range(2)] == [200, 200]
        assert any(line == "asked [1]\n" for line in iter(process.stdout.readline, ""))
        assert min(ask("runs_not", 2), ask("loads_not", 3)) >= 400
        process.terminate()
        _, err = process.communicate(timeout=60)
    assert err.count("return data[9]") == 1  # not twice if the code has set up logging
    assert "open(folder + '/missing')" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["endpoint", ".", "--artifacts", "."], "PREFIX is the folder of the artifacts: leave out"),
        (["endpoint", "modles"], "the folder 'modles' does not exist; did you mean 'models'?"),
        (["endpoint", "nowhere"], "the folder 'nowhere' does not exist"),
        (["endpoint", __file__], "is a file, not a folder"),
        (["pack", "wine", "--run-code"], "--run-code goes with --check"),
    ],
)
def test_mistakes(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong argument is one line, which says what to do."""
    (tmp_path / "models").mkdir()
    monkeypatch.chdir(tmp_path)
    told = CliRunner().invoke(main, arguments)
    assert told.exit_code == 2
    assert message in told.stderr
    assert told.stderr.count("\n") == 1
