"""Tritonclient's system shared memory, as its own examples use it, against a live server."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.utils.shared_memory as shm
from onnx_models import identity
from tritonclient.http import InferInput, InferRequestedOutput
from tritonclient.utils import InferenceServerException

from workbench import Workbench
from workbench.backends.onnx.session import OnnxSession

ALLOWED = {"shared_memory": True}  # the setting that lets clients share memory
ARRAY = np.arange(16, dtype=np.float32)


@pytest.fixture
def sharing(triton_of: Callable[[Workbench], Any]) -> Iterator[Any]:
    """A client of a server that allows it, which echoes FP32 and BYTES."""
    with Workbench(**ALLOWED) as workbench:
        for datatype in ("FP32", "BYTES"):
            workbench.register(
                lambda x: x,
                name=f"echo_{datatype.lower()}",
                inputs={"x": (datatype, [-1])},
                outputs={"y": (datatype, [-1])},
            )
        client = triton_of(workbench)
        yield client
        client.unregister_system_shared_memory()


def test_triton_registers_regions(sharing: Any, region: Any) -> None:
    """A region is registered, listed with its numbers, and unregistered; twice does no harm."""
    _, key = region
    assert sharing.get_system_shared_memory_status() == []
    sharing.register_system_shared_memory("mine", key, 64, offset=64)
    row = {"name": "mine", "key": key, "offset": 64, "byte_size": 64}
    assert sharing.get_system_shared_memory_status() == [row]
    assert sharing.get_system_shared_memory_status("mine") == [row]
    for _ in range(2):
        sharing.unregister_system_shared_memory("mine")
    assert sharing.get_system_shared_memory_status() == []


def test_triton_infers_through_regions(sharing: Any, region: Any) -> None:
    """Inputs are read from a region and outputs written into it; the answer holds no data."""
    handle, key = region
    shm.set_shared_memory_region(handle, [ARRAY])
    sharing.register_system_shared_memory("mine", key, 128)
    given = InferInput("x", [16], "FP32")
    given.set_shared_memory("mine", 64)
    wanted = InferRequestedOutput("y")
    wanted.set_shared_memory("mine", 64, offset=64)
    result = sharing.infer("echo_fp32", [given], outputs=[wanted])
    output = result.get_output("y")
    assert (output["datatype"], output["shape"]) == ("FP32", [16])
    assert "data" not in output
    told = shm.get_contents_as_numpy(handle, np.float32, [16], offset=64)
    assert told.tolist() == ARRAY.tolist()


def test_triton_reads_from_a_region_and_answers_beside_it(sharing: Any, region: Any) -> None:
    """An input in a region may have its answer as binary data, and what is read is current."""
    handle, key = region
    sharing.register_system_shared_memory("mine", key, 128)
    for factor in (1, 2):
        shm.set_shared_memory_region(handle, [ARRAY * factor])
        given = InferInput("x", [16], "FP32")
        given.set_shared_memory("mine", 64)
        result = sharing.infer("echo_fp32", [given])
        assert result.as_numpy("y").tolist() == (ARRAY * factor).tolist()


@pytest.mark.parametrize(
    ("span", "status"),
    [(("nobody", 64, 0), "404"), (("mine", 64, 96), "400"), (("mine", 60, 0), "400")],
)
def test_triton_errors_of_regions(
    sharing: Any, region: Any, span: tuple[str, int, int], status: str
) -> None:
    """A region that is not registered, a range beyond it, and a size that is wrong are refused."""
    _, key = region
    sharing.register_system_shared_memory("mine", key, 128)
    given = InferInput("x", [16], "FP32")
    given.set_shared_memory(*span)
    with pytest.raises(InferenceServerException) as caught:
        sharing.infer("echo_fp32", [given])
    assert caught.value.status() == status


def test_triton_may_share_only_where_it_is_allowed(triton: Any, region: Any) -> None:
    """Without the setting, registering is refused with the setting's name."""
    _, key = region
    with pytest.raises(InferenceServerException, match=next(iter(ALLOWED))):
        triton.register_system_shared_memory("mine", key, 128)


def test_large_outputs_are_written_in_place(
    triton_of: Callable[[Workbench], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large tensor in regions is read where it lies, and its answer written where it goes."""
    identity(tmp_path / "same.onnx", dims=(2**17,))
    array = np.arange(2**17, dtype=np.float32)
    seen: list[tuple[Any, Any]] = []
    run = OnnxSession.run

    def watched(
        self: OnnxSession, inputs: Any, outputs: Any, into: Any = None, _: Any = None
    ) -> Any:
        tensors = run(self, inputs, outputs, into)
        seen.append((inputs["x"].array, tensors[0].array))
        return tensors

    monkeypatch.setattr(OnnxSession, "run", watched)
    key = f"/workbench_{uuid.uuid4().hex}"
    handles = [shm.create_shared_memory_region(end, key + end, array.nbytes) for end in "xy"]
    try:
        shm.set_shared_memory_region(handles[0], [array])
        with Workbench(tmp_path, **ALLOWED) as workbench:
            client = triton_of(workbench)
            for end in "xy":
                client.register_system_shared_memory(end, key + end, array.nbytes)
            given = InferInput("x", [array.size], "FP32")
            given.set_shared_memory("x", array.nbytes)
            wanted = InferRequestedOutput("y")
            wanted.set_shared_memory("y", array.nbytes)
            client.infer("same", [given], outputs=[wanted])
            regions = workbench._core.regions
            for name, tensor in zip("xy", seen[-1], strict=True):
                memory = np.frombuffer(regions.read(name, 0, array.nbytes), np.float32)
                assert np.shares_memory(memory, tensor)
        told = shm.get_contents_as_numpy(handles[1], np.float32, [array.size])
        assert np.array_equal(told, array)
        del told, memory, tensor
        seen.clear()
    finally:
        for handle in handles:
            shm.destroy_shared_memory_region(handle)
