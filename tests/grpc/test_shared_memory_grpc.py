"""Tritonclient's system shared memory over gRPC, as its simple_grpc_shm_client uses it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.utils.shared_memory as shm
from grpc_calls import Caller, message
from onnx_models import identity
from tritonclient.grpc import InferenceServerClient, InferInput, InferRequestedOutput
from tritonclient.utils import InferenceServerException

from workbench import Workbench

ARRAY = np.arange(16, dtype=np.float32)
METHODS = [f"SystemSharedMemory{verb}" for verb in ("Status", "Register", "Unregister")]


@pytest.fixture
def workbench() -> Iterator[Workbench]:
    """A server that allows it, which adds."""
    with Workbench(shared_memory=True, grpc_port=0, device="cpu") as workbench:
        ports = {"a": ("FP32", [-1]), "b": ("FP32", [-1])}
        workbench.register(
            lambda a, b: (a + b, a - b),
            name="add",
            inputs=ports,
            outputs={"sum": ("FP32", [-1]), "difference": ("FP32", [-1])},
        )
        yield workbench


@pytest.fixture
def client(workbench: Workbench) -> Iterator[InferenceServerClient]:
    with InferenceServerClient(workbench.grpc_url.removeprefix("grpc://")) as client:
        yield client


def _inputs(*shared: str) -> list[Any]:
    """Inputs a and b, twice ``ARRAY``, those in *shared* at the beginning of the region."""
    inputs = [InferInput(name, [16], "FP32") for name in "ab"]
    for each in inputs:
        if each.name() in shared:
            each.set_shared_memory("mine", 64)
        else:
            each.set_data_from_numpy(ARRAY)
    return inputs


def _streamed(client: InferenceServerClient, inputs: list[Any], wanted: list[Any]) -> Any:
    """The answer to a request on a stream of its own."""
    answers: list[Any] = []
    client.start_stream(lambda result, error: answers.append(result or error))
    client.async_stream_infer("add", inputs, outputs=wanted)
    client.stop_stream()
    (answer,) = answers
    return answer


def test_regions_are_listed(client: InferenceServerClient, region: Any) -> None:
    """A region is registered, listed with its numbers, and forgotten; all of them too."""
    _, key = region
    client.register_system_shared_memory("mine", key, 64, offset=64)
    for told in (client.get_system_shared_memory_status(name) for name in ("", "mine")):
        (row,) = told.regions.values()
        assert (row.name, row.key, row.offset, row.byte_size) == ("mine", key, 64, 64)
    for name in ("mine", "mine", ""):
        client.unregister_system_shared_memory(name)
    assert not client.get_system_shared_memory_status().regions


@pytest.mark.parametrize("shared", ["", "a", "b", "ab"])
@pytest.mark.parametrize("stream", [False, True])
def test_tensors_in_regions(
    client: InferenceServerClient, region: Any, shared: str, stream: bool
) -> None:
    """Inputs are read from a region and outputs written into it, beside others that are sent."""
    handle, key = region
    shm.set_shared_memory_region(handle, [ARRAY])
    client.register_system_shared_memory("mine", key, 128)
    wanted = [InferRequestedOutput("sum"), InferRequestedOutput("difference")]
    wanted[0].set_shared_memory("mine", 64, offset=64)
    for _ in range(2):  # the second time it is a request that looks known
        shm.set_shared_memory_region(handle, [ARRAY, 0 * ARRAY])
        if stream:
            result = _streamed(client, _inputs(*shared), wanted)
        else:
            result = client.infer("add", _inputs(*shared), outputs=wanted)
        assert list(result.get_response().raw_output_contents) == [b"", bytes(64)]
        assert result.as_numpy("difference").tolist() == [0] * 16
        told = shm.get_contents_as_numpy(handle, np.float32, [16], offset=64)
        assert told.tolist() == (2 * ARRAY).tolist()


def test_typed_contents_and_a_region(workbench: Workbench, region: Any) -> None:
    """An output in a region has no typed form: the whole answer to typed contents is raw."""
    workbench._core.regions.register("mine", region[1], 0, 128)
    asked = message("ModelInferRequest", model_name="add")
    for name in "ab":
        given = asked.inputs.add(name=name, datatype="FP32", shape=[16])
        given.contents.fp32_contents.extend(ARRAY.tolist())
    asked.outputs.add(name="difference")
    span = asked.outputs.add(name="sum").parameters
    span["shared_memory_region"].string_param = "mine"
    span["shared_memory_byte_size"].int64_param = 64
    caller = Caller(workbench.grpc_url)
    reply = caller("ModelInfer", asked)
    caller.channel.close()
    assert list(reply.raw_output_contents) == [bytes(64), b""]
    assert not any(output.HasField("contents") for output in reply.outputs)
    told = shm.get_contents_as_numpy(region[0], np.float32, [16])
    assert told.tolist() == (2 * ARRAY).tolist()


def test_a_request_that_comes_again(tmp_path: Path, region: Any) -> None:
    """Its output goes into the region each time: such requests are not kept to be recognised."""
    handle, key = region
    identity(tmp_path / "echo.onnx")
    given, wanted = InferInput("x", [16], "FP32"), InferRequestedOutput("y")
    wanted.set_shared_memory("mine", 64)
    with (
        Workbench(tmp_path, shared_memory=True, grpc_port=0, device="cpu") as workbench,
        InferenceServerClient(workbench.grpc_url.removeprefix("grpc://")) as client,
    ):
        client.register_system_shared_memory("mine", key, 128)
        for factor in range(1, 4):
            given.set_data_from_numpy(factor * ARRAY)
            client.infer("echo", [given], outputs=[wanted])
            told = shm.get_contents_as_numpy(handle, np.float32, [16])
            assert told.tolist() == (factor * ARRAY).tolist()


@pytest.mark.parametrize(
    ("span", "told"),
    [(("nobody", 64, 0), "'nobody'"), (("mine", 64, 96), "128"), (("mine", 60, 0), "60")],
)
@pytest.mark.parametrize("side", ["input", "output"])
def test_spans_that_do_not_fit(
    client: InferenceServerClient, region: Any, side: str, span: tuple[str, int, int], told: str
) -> None:
    """A region that is not registered, a range beyond it, and a size that is wrong are refused."""
    client.register_system_shared_memory("mine", region[1], 128)
    inputs, wanted = _inputs(), InferRequestedOutput("sum")
    (inputs[0] if side == "input" else wanted).set_shared_memory(*span)
    with pytest.raises(InferenceServerException) as caught:
        client.infer("add", inputs, outputs=[wanted])
    assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"
    assert told in caught.value.message()


def test_data_beside_a_region(workbench: Workbench, region: Any) -> None:
    """An input has one kind of data, and an output that is wanted as classes no region."""
    caller = Caller(workbench.grpc_url)
    workbench._core.regions.register("mine", region[1], 0, 128)
    for contents, raw, classes, told in (
        ([1.0] * 16, 0, 0, "both shared memory and 'contents'"),
        ([], 3, 0, "3 raw contents for 2 inputs"),
        ([], 1, 1, "both shared memory and 'classification'"),
    ):
        asked = message("ModelInferRequest", model_name="add")
        for name in "ab":
            asked.inputs.add(name=name, datatype="FP32", shape=[16])
        span = asked.inputs[0].parameters
        span["shared_memory_region"].string_param = "mine"
        span["shared_memory_byte_size"].int64_param = 64
        asked.inputs[0].contents.fp32_contents.extend(contents)
        asked.raw_input_contents.extend([ARRAY.tobytes()] * (raw or 1))
        if classes:
            wanted = asked.outputs.add(name="sum").parameters
            wanted["shared_memory_region"].string_param = "mine"
            wanted["shared_memory_byte_size"].int64_param = 64
            wanted["classification"].int64_param = classes
        code, details = caller.refused("ModelInfer", asked)
        assert (code.name, told in details) == ("INVALID_ARGUMENT", True), details
    caller.channel.close()


@pytest.mark.parametrize("method", METHODS)
def test_only_where_it_is_allowed(call: Caller, method: str) -> None:
    """Without the setting, each method is refused with the setting's name."""
    code, details = call.refused(method, message(f"{method}Request"))
    assert (code.name, "shared_memory" in details) == ("UNIMPLEMENTED", True)


@pytest.mark.parametrize("method", METHODS)
def test_its_group_may_be_closed(method: str) -> None:
    """``restrict`` closes these methods as it does their routes."""
    settings: Any = {"restrict": "shared-memory=off", "shared_memory": True, "device": "cpu"}
    with Workbench(grpc_port=0, **settings) as workbench:
        caller = Caller(workbench.grpc_url)
        code, _ = caller.refused(method, message(f"{method}Request"))
        caller.channel.close()
        assert code.name == "PERMISSION_DENIED"
