"""A function or generator that runs out of memory, on each wire."""

from collections.abc import Iterator
from typing import Any

import grpc
import httpx
import numpy as np
import pytest
from grpc_calls import Caller, asked

from workbench import Workbench
from workbench.errors import MemoryExhausted

FLOATS = {"x": ("FP32", [-1])}
CUDA = "CUDA out of memory. Tried to allocate 2.00 GiB"
TOLD = f"fails:1 raised RuntimeError: {CUDA}"
BODY = {"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}]}


class Exhausting:
    """A value whose conversion to an array takes more memory than there is."""

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise MemoryError("Unable to allocate 8.00 EiB")


@pytest.fixture(scope="module")
def workbench() -> Iterator[Workbench]:
    with Workbench(device="cpu", token="off", grpc_port=0) as workbench:
        for name, each in {"fails": fails, "waits": waits, "returns": returns}.items():
            workbench.register(each, name=name, inputs=FLOATS, outputs={"y": ("FP32", [-1])})
        yield workbench


def fails(x: Any) -> Any:
    raise RuntimeError(CUDA)


def waits(x: Any) -> Iterator[Any]:
    yield x
    raise RuntimeError(CUDA)


def returns(x: Any) -> Any:
    return Exhausting()


@pytest.mark.parametrize("verb", ["infer", "generate"])
def test_over_http(workbench: Workbench, verb: str) -> None:
    """It is 507 with the words of the code's own error."""
    body = {"x": [1]} if verb == "generate" else BODY
    reply = httpx.post(f"{workbench.url}/v2/models/fails/{verb}", json=body)
    assert (reply.status_code, reply.json()) == (507, {"error": TOLD})


def test_over_grpc(workbench: Workbench) -> None:
    """It is RESOURCE_EXHAUSTED with the same words."""
    caller = Caller(workbench.grpc_url)
    assert caller.refused("ModelInfer", asked("fails")) == (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        TOLD,
    )


def test_in_python(workbench: Workbench) -> None:
    """It is MemoryExhausted, whose cause is the code's own error, shown with its place."""
    with pytest.raises(MemoryExhausted) as raised:
        workbench.infer("fails", np.ones(1, np.float32))
    assert str(raised.value.__cause__) == CUDA
    assert "in fails" in "".join(raised.value._render_traceback_())


def test_a_generator(workbench: Workbench) -> None:
    """It fails after the answers that it gave."""
    answers = workbench.stream("waits", np.ones(1, np.float32))
    assert next(answers).tolist() == [1.0]
    with pytest.raises(MemoryExhausted, match="CUDA out of memory"):
        next(answers)


def test_what_it_returns(workbench: Workbench) -> None:
    """Memory may run out while an array is made of what the code returned."""
    reply = httpx.post(f"{workbench.url}/v2/models/returns/infer", json=BODY)
    assert reply.status_code == 507


def test_within_the_server(workbench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that ran out in the server's own code is no bug: it has the same status."""

    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr("workbench.core.status.status.CoreStatus.index", fail)
        reply = httpx.post(f"{workbench.url}/v2/repository/index")
        told = Caller(workbench.grpc_url).refused("RepositoryIndex", b"")
    assert (reply.status_code, reply.json()) == (507, {"error": "MemoryError"})
    assert told == (grpc.StatusCode.RESOURCE_EXHAUSTED, "MemoryError")
