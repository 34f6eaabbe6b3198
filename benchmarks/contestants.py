"""Who is measured: how each server is installed, started, and found to be ready."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parent
READY_S = 120
ENGINE = f"onnxruntime=={version('onnxruntime-gpu')}"  # the same in every environment

# Whose build of Python it is matters: conda's and Debian's are profile-guided, pyenv's is not.
VERSIONS = """
import importlib.metadata, json, pathlib, platform, sys
prefix = pathlib.Path(sys.base_prefix)
whose = (
    "the system's" if prefix == pathlib.Path("/usr")
    else "pyenv's" if ".pyenv" in prefix.parts
    else "conda's" if (prefix / "conda-meta").is_dir()
    else "another build"
)
versions = {name: importlib.metadata.version(name) for name in sys.argv[1:]}
print(json.dumps({"Python": f"{platform.python_version()} ({whose})", **versions}))
"""


class NotRunning(Exception):
    """A server that cannot be measured, and why."""


@dataclass(frozen=True)
class Contestant:
    """A server: a script of ``servers/``, and what its environment is made of."""

    title: str
    script: str
    env: str | None = None  # the name of its environment; None is the one this runs in
    requirements: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()  # the distributions whose versions belong to the result
    n_ports: int = 1  # MLServer listens on three
    more: tuple[str, ...] = ()  # arguments of the script after the models and the ports
    ready: str = "/v2/health/ready"  # which is 200 once it is

    def python(self, envs: Path) -> Path:
        """The interpreter of its environment, made now if need be. Raises ``NotRunning``."""
        if self.env is None:
            return Path(sys.executable)
        python = envs / self.env / "bin" / "python"
        if not python.exists():
            print(f"making {python.parent.parent}", flush=True)
            _do([sys.executable, "-m", "venv", envs / self.env])
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _do([*pip, *self.requirements])  # quick where they are there, in these versions
        return python

    def versions(self, python: Path, url: str) -> dict[str, str]:
        """What the server at *url* calls itself, and what it is made of."""
        with urllib.request.urlopen(f"{url}/v2") as answer:
            itself = json.load(answer)
        return {itself["name"]: itself["version"], **self.installed(python)}

    def installed(self, python: Path) -> dict[str, str]:
        """What it is made of."""
        command = [str(python), "-c", VERSIONS, *self.shown]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found: dict[str, str] = json.loads(done.stdout)
        return found

    @contextlib.contextmanager
    def serving(self, python: Path, models: Path, work: Path, core: int) -> Iterator[str]:
        """Start it on *core* with all *models*; yields its URL once it is ready.

        *work* takes its log and whatever it leaves behind. Raises ``NotRunning``.
        """
        ports = free_ports(self.n_ports)
        script = HERE / "servers" / self.script
        command = ["taskset", "-c", core, python, script, models, *ports, *self.more]
        log = work / f"{ports[0]}.log"
        with log.open("w") as out:
            process = subprocess.Popen(
                list(map(str, command)),
                stdout=out,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env=os.environ | {"TMPDIR": str(work), "PYTHONDONTWRITEBYTECODE": "1"},
            )
        url = f"http://127.0.0.1:{ports[0]}"
        try:
            _wait_until_ready(url + self.ready, process, log)
            yield url
        finally:
            _end(process)


def _wait_until_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end_s = time.monotonic() + READY_S
    while time.monotonic() < end_s:
        if process.poll() is not None:
            raise NotRunning(f"ended with {process.returncode}: {_last_line(log)}")
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise NotRunning(f"not ready after {READY_S} s: {_last_line(log)}")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(10)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # a session of its own; whoever is left of it
    process.wait()


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text("utf-8", "replace").splitlines()]
    return next((line for line in reversed(lines) if line), "it said nothing")


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens at now."""
    """Below those that the system gives away itself: multi-model-server takes no other."""
    found: list[int] = []
    with contextlib.ExitStack() as stack:
        for port in random.sample(range(20_000, 32_000), 1000):
            taken = stack.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                taken.bind(("127.0.0.1", port))
                found.append(port)
            if len(found) == count:
                return found
    raise NotRunning("no port is free")


def _do(command: list[object]) -> None:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["it said nothing"]
        raise NotRunning(f"{' '.join(map(str, command[:4]))}: {lines[-1]}")


WEB = ("uvicorn", "uvloop", "orjson", "numpy")
TRITON = ("nvidia-pytriton==0.7.0", ENGINE)
CONTESTANTS = {
    "workbench": Contestant(
        "workbench",
        "serve_workbench.py",
        shown=("serving-workbench", "onnxruntime-gpu", "pysimdjson", *WEB),
    ),
    "bare": Contestant("bare server", "serve_bare.py"),
    "mlserver": Contestant(
        "MLServer",
        "serve_mlserver.py",
        "mlserver",
        ("mlserver==1.7.1", ENGINE),
        ("mlserver", "onnxruntime", "fastapi", *WEB),
        n_ports=3,
    ),
    "kserve": Contestant(
        "KServe",
        "serve_kserve.py",
        "kserve",
        ("kserve==0.21.0", ENGINE),
        ("kserve", "onnxruntime", "fastapi", *WEB),
    ),
    "triton": Contestant(
        "Triton, Python backend",
        "serve_triton.py",
        "triton",
        TRITON,
        ("nvidia-pytriton", "onnxruntime", "numpy"),
        more=("python",),
    ),
    "triton_cpp": Contestant(
        "Triton, C++ backend",
        "serve_triton.py",
        "triton",
        TRITON,
        ("nvidia-pytriton", "onnxruntime"),
        more=("onnx",),
    ),
}
