"""Forks of a process that serves gRPC."""

import os
import subprocess
import sys

import pytest

VARIABLE = "GRPC_ENABLE_FORK_SUPPORT"
SCRIPT = f"""
import os
from workbench import Workbench

with Workbench(grpc_port=0) as wb:
    import grpc

    with grpc.insecure_channel(wb.grpc_url) as channel:
        grpc.channel_ready_future(channel).result(60)
        child = os.fork()
        if not child:
            wb.stop()
            os._exit(wb.is_running)
        assert os.waitpid(child, 0)[1] == 0
        live = channel.unary_unary("/inference.GRPCInferenceService/ServerLive")
        assert live(b"", timeout=60) == b"\\x08\\x01"
print(os.environ.get({VARIABLE!r}))
"""


@pytest.mark.parametrize("given", [None, "0"])
def test_a_fork_prints_nothing(given: str | None) -> None:
    """A fork, as of a command in a notebook, prints nothing; child processes get no variable.

    The child has no server, and ends without the parent's, which goes on.
    """
    environ = {name: value for name, value in os.environ.items() if name != VARIABLE}
    if given is not None:
        environ[VARIABLE] = given
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT],
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{given}\n"
    assert done.stderr == ""


def test_the_users_choice_stays() -> None:
    """Who asks grpc for its handlers of forks gets them."""
    code = f"import os, workbench.grpc; print(os.environ[{VARIABLE!r}])"
    environ = {**os.environ, VARIABLE: "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout == "1\n"
