"""Requests like one that was answered before: only their contents are read."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_models
import pytest
from grpc_calls import Caller, message

from workbench import Workbench
from workbench.codecs.v2 import RequestRules
from workbench.grpc import convert, v2
from workbench.grpc.known import KnownRequest
from workbench.tensor import DATATYPES


def request(array: Any, datatype: str = "FP32", **more: Any) -> Any:
    """A request with the raw contents of *array*."""
    made = message("ModelInferRequest", **({"model_name": "m"} | more))
    made.inputs.add(name="x", datatype=datatype, shape=array.shape)
    made.raw_input_contents.append(array.tobytes())
    return made


def known_of(made: Any) -> KnownRequest | None:
    data = made.SerializeToString()
    asked = convert.InferMessage(data, RequestRules())
    return KnownRequest.of(data, asked, asked.read(None))


def seen(array: Any, datatype: str = "FP32") -> KnownRequest:
    found = known_of(request(array, datatype))
    assert found is not None
    return found


NUMBERS = [name for name in DATATYPES if name != "BYTES"]


@pytest.mark.parametrize("datatype", NUMBERS)
@pytest.mark.parametrize("shape", [(2, 3), (1,), (), (0,), (40, 50)])
def test_the_contents_of_the_next_one(datatype: str, shape: tuple[int, ...]) -> None:
    """Of a request that differs only in its contents, these are read; it may be any datatype."""
    dtype = DATATYPES[datatype].dtype
    known = seen(np.zeros(shape, dtype), datatype)
    count = int(np.prod(shape))
    array = (np.arange(count) % 2).astype(dtype).reshape(shape)
    again = request(array, datatype).SerializeToString()
    assert known.matches(again)
    tensor = known.read(again).inputs["x"]
    assert (tensor.datatype, tensor.array.dtype) == (datatype, dtype)
    assert np.array_equal(tensor.array, array)
    assert not known.matches(request(array, datatype, model_name="n").SerializeToString())


def test_truth_values_of_any_byte() -> None:
    """The contents of the next request are read as those of the first: each byte but 0 is true."""
    known = seen(np.zeros(2, np.bool_), "BOOL")
    again = known.read(request(np.array([0, 2], np.uint8), "BOOL").SerializeToString())
    assert again.inputs["x"].array.tobytes() == b"\0\1"


@pytest.mark.parametrize("count", [3, 5_000])
def test_contents_are_not_copied(count: int) -> None:
    """The contents are a view of the message that came."""
    array = np.zeros(count, np.float32)
    data = request(array).SerializeToString()
    read = seen(array).read(data).inputs["x"].array
    assert np.shares_memory(read, np.frombuffer(data, np.uint8))


def with_parameter() -> Any:
    made = request(np.zeros(3, np.float32))
    made.parameters["p"].int64_param = 1
    return made


def with_classes() -> Any:
    made = request(np.zeros(3, np.float32))
    made.outputs.add(name="y").parameters["classification"].int64_param = 1
    return made


def with_two_inputs() -> Any:
    made = request(np.zeros(3, np.float32))
    made.inputs.add(name="z", datatype="FP32", shape=[3])
    made.raw_input_contents.append(b"\0" * 12)
    return made


@pytest.mark.parametrize(
    "made",
    [
        request(np.zeros(3, np.float32), id="1"),
        request(np.zeros(2**17, np.float32)),
        with_parameter(),
        with_classes(),
        with_two_inputs(),
    ],
    ids=["id", "large", "parameter", "classes", "two inputs"],
)
def test_what_is_not_remembered(made: Any) -> None:
    """A request with an id, parameters, classes or several inputs is read each time."""
    assert known_of(made) is None


def test_outputs_are_those_that_were_asked_for() -> None:
    """A request that names some outputs gets the same ones when it comes again."""
    made = request(np.zeros(3, np.float32))
    made.outputs.add(name="y")
    known = known_of(made)
    assert known is not None
    assert known.read(made.SerializeToString()).outputs == ("y",)


def test_contents_that_are_not_last() -> None:
    """Where the contents are not the last of the message, nothing is known of it."""
    data = request(np.arange(3, dtype=np.float32)).SerializeToString()
    split = convert.split(data)
    assert split is not None
    turned = data[len(split[0]) :] + split[0]
    asked = convert.InferMessage(turned, RequestRules())
    assert asked.read(None).inputs["x"].array.tolist() == [0, 1, 2]
    assert KnownRequest.of(turned, asked, asked.read(None)) is None


@pytest.mark.parametrize(
    "data",
    [b"\x3a\x05abc", b"\x3a", b"\x3a" + b"\x80" * 6 + b"\0", b"\x82\x01\x01", b"\x08\x01"],
    ids=["breaks off", "no length", "a length of 7 bytes", "a field above 15", "a number"],
)
def test_messages_of_another_form(data: bytes) -> None:
    """They are left to protobuf, which reads them, or says what is wrong."""
    assert convert.split(data) is None


def test_answers_stay_the_same(
    tmp_path: Path, caller_of: Callable[[Workbench], Caller], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second and third answer are as the first: names, shapes, also [1] of scalars."""
    shapes = {"vector": ("n",), "scalar": ()}
    for name, dims in shapes.items():
        onnx_models.identity(tmp_path / name / "1" / "model.onnx", dims=dims)
    parsed: list[bytes] = []

    class Counted(convert.InferMessage):
        def __init__(self, data: bytes, *others: Any) -> None:
            parsed.append(data)
            super().__init__(data, *others)

    monkeypatch.setattr(v2, "InferMessage", Counted)
    with Workbench(tmp_path, grpc_port=0, device="cpu") as workbench:
        call = caller_of(workbench)
        for name in shapes:
            workbench.load(name)
            parsed.clear()
            for value in range(4):
                made = request(np.full(1, value, np.float32), model_name=name)
                reply = call("ModelInfer", made)
                (output,) = reply.outputs
                assert (reply.model_name, reply.model_version) == (name, "1")
                assert (output.name, output.datatype, list(output.shape)) == ("y", "FP32", [1])
                assert list(reply.raw_output_contents) == list(made.raw_input_contents)
            assert len(parsed) < 4  # what was seen before was not parsed anew
        assert call("ModelInfer", request(np.ones(1, np.float32), model_name=name, id="7")).id


def test_a_scalar_that_becomes_a_vector(
    tmp_path: Path, caller_of: Callable[[Workbench], Caller]
) -> None:
    """A request of shape [1] to a scalar is of shape [1] also to the model's next files."""
    made = request(np.ones(1, np.float32))
    path = tmp_path / "m" / "1" / "model.onnx"
    onnx_models.identity(path, dims=())
    with Workbench(tmp_path, grpc_port=0, device="cpu") as workbench:
        call = caller_of(workbench)
        workbench.load("m")
        for dims in ((), ("n",), (1,), ()):
            onnx_models.identity(path, dims=dims)
            workbench.load("m")
            for _ in range(3):
                (output,) = call("ModelInfer", made).outputs
                assert list(output.shape) == [1]
