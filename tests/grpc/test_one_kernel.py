"""Clients of other projects live in the process of the server, whichever comes first."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
CLIENTS = ROOT / ".venv-clients" / "bin" / "python"

# What .venv-clients lacks comes from .venv, behind what it has: an older protobuf above all.
_START = f"""
import sys
sys.path.append({next(each for each in sys.path if each.endswith("site-packages"))!r})
import numpy as np
from workbench import Workbench
workbench = Workbench(grpc_port=0, token="off").start()
workbench.register(lambda x: x * 2, name="double", inputs={{"x": ("FP32", [-1])}},
                   outputs={{"y": ("FP32", [-1])}})
"""
_TRITON_IMPORT = "import tritonclient.grpc as client"
_TRITON = """
x = client.InferInput("x", [2], "FP32")
x.set_data_from_numpy(np.ones(2, np.float32))
with client.InferenceServerClient(workbench.grpc_url) as triton:
    assert triton.infer("double", [x]).as_numpy("y").tolist() == [2, 2]
"""
_KSERVE_IMPORT = "import asyncio, kserve"
_KSERVE = """
x = kserve.InferInput("x", [2], "FP32")
async def ask(raw):
    x.set_data_from_numpy(np.ones(2, np.float32), binary_data=raw)
    async with kserve.InferenceGRPCClient(workbench.grpc_url) as client:
        assert await client.is_server_live() and await client.is_server_ready()
        assert await client.is_model_ready("double")
        assert not await client.is_model_ready("nope")
        answer = await client.infer(kserve.InferRequest("double", [x], "7"))
        assert answer.outputs[0].as_numpy().tolist() == [2, 2]
        assert answer.id == "7"
asyncio.run(ask(True))
asyncio.run(ask(False))
"""
_STOP = "workbench.stop()"
_TOLD = "assert 'grpc' in sys.modules; print('answered')"

CASES = {
    "tritonclient before": (sys.executable, _TRITON_IMPORT, _START, _TRITON),
    "tritonclient after": (sys.executable, _START, _TRITON_IMPORT, _TRITON),
    "kserve before": (CLIENTS, _KSERVE_IMPORT, _START, _KSERVE),
    "kserve after": (CLIENTS, _START, _KSERVE_IMPORT, _KSERVE),
}


def run(python: str | Path, *lines: str) -> str:
    done = subprocess.run(
        [python, "-W", "ignore", "-c", "\n".join(lines)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("case", CASES)
def test_a_client_in_the_same_kernel(case: str) -> None:
    """A client that is imported before or after the server starts works in its process."""
    python, *lines = CASES[case]
    if not Path(python).exists():
        pytest.skip("there is no .venv-clients: make clients makes it")
    assert "answered" in run(python, *lines, _STOP, _TOLD)


_ASK_WITHOUT_IT = """
sys.modules["grpc"] = None
from workbench.errors import SettingError
try:
    Workbench(grpc_port=0).start()
except SettingError as error:
    print(error)
"""


def test_no_grpc_unless_asked_for() -> None:
    """A server without gRPC imports nothing of it, nor does the command line.

    Where grpcio is not installed, asking for gRPC says what to install.
    """
    start = _START.replace("grpc_port=0, ", "")
    tell = "print(sorted(name for name in sys.modules if name.partition('.')[0] == 'grpc'))"
    command_line = "from workbench.commands import cli"
    told = run(sys.executable, start, command_line, _STOP, tell, _ASK_WITHOUT_IT)
    imported, refusal = told.split("\n", 1)
    assert imported == "[]"
    assert "pip install 'serving-workbench[grpc]'" in refusal
