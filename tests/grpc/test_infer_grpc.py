"""Inference over gRPC: typed and raw contents, every datatype, streams, and what is no good."""

import asyncio
import queue
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.grpc.aio
from grpc_calls import NAME, Caller, message
from tritonclient.utils import serialize_byte_tensor

from workbench import Workbench
from workbench.codecs.v2 import RequestRules
from workbench.errors import InvalidRequest
from workbench.grpc import convert
from workbench.inference import InferResponse
from workbench.model import ModelId
from workbench.tensor import DATATYPES

INVALID = grpc.StatusCode.INVALID_ARGUMENT
FIELDS = convert._CONTENTS


def values(datatype: str) -> np.ndarray:
    if datatype == "BYTES":
        return np.array([b"a", b"", b"\xff\x00"], object)
    dtype = DATATYPES[datatype].dtype
    return np.array([0, 1, 1], dtype) if datatype == "BOOL" else np.array([0, 1, 100], dtype)


def raw_bytes(array: np.ndarray) -> bytes:
    if array.dtype == object:
        return bytes(serialize_byte_tensor(array).item())
    return array.tobytes()


def request(
    model: str = "echo_fp32",
    datatype: str = "FP32",
    shape: Any = (3,),
    name: str = "x",
    **more: Any,
) -> Any:
    made = message("ModelInferRequest", model_name=model, **more)
    made.inputs.add(name=name, datatype=datatype, shape=shape)
    return made


def echo(**more: Any) -> Any:
    """A request that is answered."""
    made = request(**more)
    made.raw_input_contents.append(np.arange(3, dtype=np.float32).tobytes())
    return made


@pytest.mark.parametrize("datatype", DATATYPES)
def test_raw_contents(call: Caller, datatype: str) -> None:
    """Raw contents of every datatype come back as they went."""
    array = values(datatype)
    made = request(f"echo_{datatype.lower()}", datatype)
    made.raw_input_contents.append(raw_bytes(array))
    reply = call("ModelInfer", made)
    (output,) = reply.outputs
    assert (output.name, output.datatype, list(output.shape)) == ("y", datatype, [3])
    assert list(reply.raw_output_contents) == [raw_bytes(array)]
    assert (reply.model_name, reply.model_version) == (f"echo_{datatype.lower()}", "1")


@pytest.mark.parametrize("datatype", FIELDS)
def test_typed_contents(call: Caller, datatype: str) -> None:
    """Typed contents are answered with typed contents, in the field of their datatype."""
    array = values(datatype)
    made = request(f"echo_{datatype.lower()}", datatype, id="7")
    getattr(made.inputs[0].contents, FIELDS[datatype]).extend(array.tolist())
    reply = call("ModelInfer", made)
    (output,) = reply.outputs
    assert (output.name, output.datatype, list(output.shape)) == ("y", datatype, [3])
    ((field, given),) = output.contents.ListFields()
    assert (field.name, list(given)) == (FIELDS[datatype], array.tolist())
    assert (reply.model_name, reply.model_version, reply.id) == (made.model_name, "1", "7")
    assert not reply.raw_output_contents


@pytest.mark.parametrize("other", ["FP16", "BF16"])
def test_an_output_without_a_typed_form(other: str) -> None:
    """If one output has no typed form, the whole answer to typed contents is raw."""
    with Workbench(device="cpu", grpc_port=0, token="off") as workbench:
        outputs = {"same": ("FP32", [-1]), "other": (other, [-1])}
        workbench.register(
            lambda x: (x, x.astype(DATATYPES[other].dtype)),
            name="echo_fp32",
            inputs={"x": ("FP32", [-1])},
            outputs=outputs,
        )
        caller = Caller(workbench.grpc_url)
        reply = caller("ModelInfer", typed("fp32_contents", [0, 1, 2]))
        caller.channel.close()
    assert list(map(len, reply.raw_output_contents)) == [12, 6]
    assert not any(output.HasField("contents") for output in reply.outputs)


@pytest.mark.parametrize(("datatype", "value"), [("UINT8", 200), ("UINT16", 60000)])
def test_typed_contents_with_a_sign(call: Caller, datatype: str, value: int) -> None:
    """A small unsigned number that a client extended by a sign to 32 bits is the number."""
    made = request(f"echo_{datatype.lower()}", datatype, shape=(2,))
    extended = value - np.iinfo(DATATYPES[datatype].dtype).max - 1 + 2**32
    made.inputs[0].contents.uint_contents.extend([value, extended])
    reply = call("ModelInfer", made)
    assert list(reply.outputs[0].contents.uint_contents) == [value, value]


@pytest.mark.parametrize("datatype", FIELDS)
def test_typed_contents_without_elements(call: Caller, datatype: str) -> None:
    """A tensor of no elements is an answer too, whatever its datatype."""
    made = request(f"echo_{datatype.lower()}", datatype, shape=(0,))
    made.inputs[0].contents.SetInParent()
    reply = call("ModelInfer", made)
    assert (list(reply.outputs[0].shape), list(reply.raw_output_contents)) == ([0], [])


def test_a_large_request_is_not_copied() -> None:
    """Large raw contents are views of the message that came."""
    array = np.arange(20_000, dtype=np.float32)
    made = request(shape=array.shape, id="7")
    made.raw_input_contents.append(array.tobytes())
    data = made.SerializeToString()
    read = convert.InferMessage(data, RequestRules()).read(None)
    assert np.shares_memory(read.inputs["x"].array, np.frombuffer(data, np.uint8))
    assert read.inputs["x"].array.tolist() == array.tolist()
    assert read.id == "7"


def test_several_inputs_and_outputs(triton: tritonclient.grpc.InferenceServerClient) -> None:
    """Outputs come in the order that is asked for, all of them if none is."""
    inputs = [tritonclient.grpc.InferInput(name, [1, 2], "FP32") for name in ("a", "b")]
    for number, each in enumerate(inputs):
        each.set_data_from_numpy(np.full((1, 2), 1 + number, np.float32))
    wanted = [tritonclient.grpc.InferRequestedOutput(name) for name in ("difference", "sum")]
    answer = triton.infer("two", inputs, outputs=wanted, request_id="x")
    assert [each.name for each in answer.get_response().outputs] == ["difference", "sum"]
    assert answer.as_numpy("sum").tolist() == [[3, 3]]
    assert answer.get_response().id == "x"
    names = [each.name for each in triton.infer("two", inputs).get_response().outputs]
    assert names == ["sum", "difference"]


def test_classification(triton: tritonclient.grpc.InferenceServerClient) -> None:
    """An output may be asked for as its best classes."""
    inputs = [tritonclient.grpc.InferInput(name, [1, 2], "FP32") for name in ("a", "b")]
    for each in inputs:
        each.set_data_from_numpy(np.array([[1, 2]], np.float32))
    wanted = [tritonclient.grpc.InferRequestedOutput("sum", class_count=1)]
    answer = triton.infer("two", inputs, outputs=wanted)
    assert answer.as_numpy("sum").tolist() == [b"4.000000:1"]  # the model has no batches


@pytest.mark.parametrize("compression", ["gzip", "deflate"])
def test_compression(triton: tritonclient.grpc.InferenceServerClient, compression: str) -> None:
    """Requests may come compressed."""
    x = tritonclient.grpc.InferInput("x", [4096], "FP32")
    x.set_data_from_numpy(np.zeros(4096, np.float32))
    answer = triton.infer("echo_fp32", [x], compression_algorithm=compression)
    assert answer.as_numpy("y").shape == (4096,)


def test_the_aio_client(server: Workbench) -> None:
    """Tritonclient's asynchronous client is answered, in calls and in a stream."""

    async def ask() -> list[Any]:
        async with tritonclient.grpc.aio.InferenceServerClient(server.grpc_url) as client:
            x = tritonclient.grpc.InferInput("x", [2], "FP32")
            x.set_data_from_numpy(np.ones(2, np.float32))
            told = [await client.is_model_ready("two")]
            told.append((await client.infer("echo_fp32", [x])).as_numpy("y").tolist())

            async def requests() -> Any:
                yield {"model_name": "echo_fp32", "inputs": [x], "request_id": "1"}

            async for answer, error in client.stream_infer(requests()):
                assert error is None
                told.append(answer.get_response().id)
            return told

    assert asyncio.run(ask()) == [True, [1, 1], "1"]


def test_a_stream(triton: tritonclient.grpc.InferenceServerClient) -> None:
    """Each request of a stream gets one reply, errors too, which keep its id and the stream."""
    told: queue.Queue[tuple[Any, Any]] = queue.Queue()
    x = tritonclient.grpc.InferInput("x", [2], "FP32")
    x.set_data_from_numpy(np.ones(2, np.float32))
    triton.start_stream(lambda result, error: told.put((result, error)))
    for model in ("echo_fp32", "fails", "echo_fp32"):
        triton.async_stream_infer(model, [x], request_id=model)
    replies = [told.get(timeout=30) for _ in range(3)]
    triton.stop_stream()
    assert [error is None for _, error in replies] == [True, False, True]
    assert "on purpose" in str(replies[1][1])
    for result, error in replies:
        if error is None:
            response = result.get_response()
            assert response.id == "echo_fp32"
            assert response.parameters["triton_final_response"].bool_param is True


def streamed(call: Caller, *requests: Any) -> list[Any]:
    """The replies to *requests* on a stream of their own."""
    kind = type(message("ModelStreamInferResponse"))
    stream = call.channel.stream_stream(
        f"/{NAME}/ModelStreamInfer", response_deserializer=kind.FromString
    )
    data = [made if isinstance(made, bytes) else made.SerializeToString() for made in requests]
    return list(stream(iter(data)))


def test_errors_of_a_stream_have_an_id(call: Caller) -> None:
    """The reply that tells of an error has the request's id, whatever is wrong, and is final."""
    empty_end = {"triton_enable_empty_final_response": {}}
    version, end, unknown, unread = streamed(
        call, echo(id="7", model_version="one"), echo(id="8", parameters=empty_end),
        request("nope", id="9"), b"\xff",
    )  # fmt: skip
    assert unknown.error_message.startswith("Request for unknown model: there is no model 'nope'")
    assert unknown.infer_response.parameters["triton_final_response"].bool_param
    told = [version, end, unknown]
    assert [reply.infer_response.id for reply in told if reply.error_message] == ["7", "8", "9"]
    assert "ModelInferRequest" in unread.error_message


def test_typed_contents_in_a_stream(call: Caller) -> None:
    """Each reply of a stream has the contents that its own request has."""
    answers = streamed(call, echo(), typed("fp32_contents", [0, 1, 2]))
    raw, named = [reply.infer_response for reply in answers]
    assert list(raw.raw_output_contents) == [np.arange(3, dtype=np.float32).tobytes()]
    assert not raw.outputs[0].HasField("contents")
    assert list(named.outputs[0].contents.fp32_contents) == [0, 1, 2]
    assert not named.raw_output_contents
    assert named.parameters["triton_final_response"].bool_param


def with_raw(*raw: bytes, **more: Any) -> Any:
    made = request(**more)
    made.raw_input_contents.extend(raw)
    return made


def typed(field: str, given: list[Any], **more: Any) -> Any:
    made = request(**more)
    getattr(made.inputs[0].contents, field).extend(given)
    return made


def both() -> Any:
    made = echo()
    made.inputs[0].contents.fp32_contents.append(1)
    return made


def with_parameter(name: str = "p", **kind: Any) -> Any:
    made = echo()
    made.parameters[name].CopyFrom(message("InferParameter", **kind))
    return made


def two_inputs(*names: str, raw: int) -> Any:
    made = message("ModelInferRequest", model_name="two")
    for name in names:
        made.inputs.add(name=name, datatype="FP32", shape=[1, 2])
    made.raw_input_contents.extend([b"\0" * 8] * raw)
    return made


def shared(what: str) -> Any:
    made = echo()
    entry = made.inputs[0] if what == "input" else made.outputs.add(name="y")
    entry.parameters["shared_memory_region"].string_param = "r"
    entry.parameters["shared_memory_byte_size"].int64_param = 8
    return made


def classes(**kind: Any) -> Any:
    made = echo()
    made.outputs.add(name="y").parameters["classification"].CopyFrom(
        message("InferParameter", **kind)
    )
    return made


def outputs(*names: str) -> Any:
    made = echo()
    for name in names:
        made.outputs.add(name=name)
    return made


def name_of_no_text() -> bytes:
    return bytes(echo(name="xx").SerializeToString()).replace(b"xx", b"\xff\xfe")


def empty_end_as_text() -> Any:
    made = echo()
    made.parameters["triton_enable_empty_final_response"].string_param = "true"
    return made


BAD = {
    "empty end as a text": (empty_end_as_text, "is not a bool_param"),
    "no data at all": (request, "input 'x' has 0 elements"),
    "raw too few": (
        lambda: two_inputs("a", "b", raw=1),
        "no data for input 'b'",
    ),
    "raw too many": (lambda: with_raw(b"\0" * 12, b""), "2 raw contents for 1 inputs"),
    "raw too short": (lambda: with_raw(b"\0" * 11), "input 'x' has 11 bytes"),
    "raw too long": (lambda: with_raw(b"\0" * 13), "input 'x' has 13 bytes"),
    "raw and typed": (both, "input 'x' has 'contents', and the request 'raw_input_contents'"),
    "typed in the wrong field": (
        lambda: typed("int_contents", [1, 2, 3]),
        "the data of input 'x', FP32, goes into",
    ),
    "typed too few": (lambda: typed("fp32_contents", [1]), "input 'x' has 1 elements"),
    "typed fp16": (
        lambda: typed("fp32_contents", [1, 2, 3], model="echo_fp16", datatype="FP16"),
        "input 'x' is FP16",
    ),
    "typed out of range": (
        lambda: typed("int_contents", [1, 2, 300], model="echo_int8", datatype="INT8"),
        "input 'x': 300 is out of range for INT8",
    ),
    "a huge shape": (lambda: with_raw(b"", shape=[2**62, 2**62]), "the shape of input 'x' has"),
    "a negative shape": (lambda: with_raw(b"", shape=[-1]), "the shape of input 'x'"),
    "many dimensions": (lambda: with_raw(b"", shape=[1] * 65), "the shape of input 'x'"),
    "a datatype that is none": (lambda: echo(datatype="FP8"), "input 'x' has datatype 'FP8'"),
    "another datatype": (lambda: echo(datatype="INT32"), "input 'x'"),
    "an unknown input": (lambda: echo(name="z"), "'z'"),
    "an input without a name": (lambda: echo(name=""), "an input has no name"),
    "an input twice": (lambda: two_inputs("a", "a", raw=2), "input 'a' is given twice"),
    "an input missing": (lambda: two_inputs("a", raw=1), "'b'"),
    "an unknown output": (lambda: outputs("z"), "'z'"),
    "an output twice": (lambda: outputs("y", "y"), "output 'y' is asked for twice"),
    "an output without a name": (lambda: outputs(""), "an output has no name"),
    "a parameter of no kind": (with_parameter, "parameter 'p' of the request"),
    "a time below 0": (lambda: with_parameter("timeout", int64_param=-1), "'timeout'"),
    "a time that is a text": (lambda: with_parameter("timeout", string_param="5"), "'timeout'"),
    "classes that are none": (lambda: classes(bool_param=True), "'classification' of output 'y'"),
    "a version that is none": (lambda: echo(model_version="one"), "'one' is not a version"),
    "a name that is no text": (name_of_no_text, "is not a message 'inference.ModelInferRequest'"),
    "no message": (lambda: b"\xff\xff", "ModelInferRequest"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_requests(call: Caller, server: Workbench, case: str) -> None:
    """What is no good is INVALID_ARGUMENT, names the thing, and leaves no lease behind."""
    make, told = BAD[case]
    code, details = call.refused("ModelInfer", make())
    assert (code, told in details) == (INVALID, True), details
    assert not any(model.leases for model in server._core.status.snapshot().models)


@pytest.mark.parametrize("what", ["input", "output"])
def test_shared_memory(call: Caller, what: str) -> None:
    """Without the setting, tensors in shared memory are UNIMPLEMENTED, with the reason."""
    code, details = call.refused("ModelInfer", shared(what))
    assert code is grpc.StatusCode.UNIMPLEMENTED
    assert "shared_memory='on'" in details


@pytest.mark.parametrize("wish", [True, False])
def test_perf_analyzers_parameter(call: Caller, wish: bool) -> None:
    """Each of perf_analyzer's requests says whether it wants an empty end; one reply has none."""
    made = echo()
    made.parameters["triton_enable_empty_final_response"].bool_param = wish
    for _ in range(2):
        answer = call("ModelInfer", made)
        assert answer.outputs[0].name == "y"
        assert not answer.parameters


def test_parameters_of_all_kinds(call: Caller) -> None:
    """Parameters of every kind of the protocol are taken."""
    made = echo()
    kinds = {"bool_param": True, "int64_param": -1, "string_param": "a", "double_param": 0.5}
    for kind, value in (kinds | {"uint64_param": 2**63}).items():
        made.parameters[kind].CopyFrom(message("InferParameter", **{kind: value}))
    assert call("ModelInfer", made).outputs[0].name == "y"


@pytest.mark.parametrize("sequence", [7, 2**64 - 1, "a"])
def test_sequences_come_back(sequence: int | str) -> None:
    """An answer holds any sequence that a request can belong to, as that of an ensemble does."""
    response = InferResponse(ModelId("m", 1), {}, parameters={"sequence_id": sequence})
    answer = message("ModelInferResponse")
    asked = convert.InferMessage(b"", RequestRules())
    answer.ParseFromString(asked.encode(response))
    parameter = answer.parameters["sequence_id"]
    assert getattr(parameter, parameter.WhichOneof("parameter_choice")) == sequence


def test_a_message_that_is_too_large(call: Caller) -> None:
    """A message over the setting max_request is refused, also if it is so once decompressed."""
    made = with_raw(b"\0" * 2**21, shape=[2**19])
    for compression in (None, grpc.Compression.Gzip):
        code, details = call.refused("ModelInfer", made, compression=compression)
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED, details


@pytest.mark.parametrize(
    ("model", "version", "code"),
    [
        ("nope", "", grpc.StatusCode.NOT_FOUND),
        ("two", "9", grpc.StatusCode.NOT_FOUND),
        ("fails", "", grpc.StatusCode.INTERNAL),
        ("", "", grpc.StatusCode.NOT_FOUND),
    ],
)
def test_other_failures(call: Caller, model: str, version: str, code: grpc.StatusCode) -> None:
    """What is not here is NOT_FOUND, what fails in the model INTERNAL."""
    made = echo(model=model, model_version=version)
    assert call.refused("ModelInfer", made)[0] is code


def test_cut_messages_are_no_bug() -> None:
    """Every beginning of a large message is read, or is a InvalidRequest."""
    made = with_raw(b"\0" * 20_000, shape=[5_000], id="1")
    data = made.SerializeToString()
    for nbytes in (*range(60), *range(len(data) - 40, len(data))):
        try:
            convert.InferMessage(data[:nbytes] + b"\0" * 2**15, RequestRules()).read(None)
        except InvalidRequest:
            continue
        raise AssertionError(nbytes)


@pytest.mark.parametrize(
    "data",
    [b"\x3a\x05abc", b"\x3a", b"\x3a" + b"\x80" * 6 + b"\0", b"\x82\x01\x01", b"\x08\x01"],
    ids=["breaks off", "no length", "a length of 7 bytes", "a field above 15", "a number"],
)
def test_messages_of_another_form(data: bytes) -> None:
    """They are left to protobuf, which reads them, or says what is wrong."""
    assert convert._split(data) is None


def test_headers_of_fields_are_of_protobuf() -> None:
    """What is written behind a reply by hand is what protobuf writes."""
    wanted = message("ModelInferResponse", raw_output_contents=[b"a" * 300]).SerializeToString()
    assert convert._RAW_OUTPUT + convert.varint(300) + b"a" * 300 == wanted


def test_the_same_request_again(call: Caller) -> None:
    """A request that differs from one before only in its contents is answered by its own."""
    for value in range(5):
        made = with_raw(np.full(3, value, np.float32).tobytes())
        (raw,) = call("ModelInfer", made).raw_output_contents
        assert np.frombuffer(raw, np.float32).tolist() == [value] * 3
    assert call("ModelInfer", echo(id="1")).id == "1"
    assert call.refused("ModelInfer", echo(model="echo_fp31"))[0] is grpc.StatusCode.NOT_FOUND
    assert call.refused("ModelInfer", echo(datatype="FP31"))[0] is INVALID
