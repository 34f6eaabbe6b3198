"""V2 requests and responses: the grammar, JSON and binary mixed, and every way to get it wrong."""

import json
import math
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from workbench.codecs import v2
from workbench.codecs.v2 import ReplyForm, RequestRules
from workbench.codecs.v2_parameters import RegionSpan
from workbench.errors import InvalidRequest, NotSupported, RegionNotFound
from workbench.inference import InferRequest, InferResponse
from workbench.model import ModelId
from workbench.tensor import DATATYPES, Tensor

pytestmark = pytest.mark.usefixtures("parser")

deterministic = settings(derandomize=True, deadline=None, max_examples=80)
X = {"name": "x", "datatype": "FP32", "shape": [2], "data": [1, 2]}
MODEL = ModelId("m", 3)
RULES = RequestRules()


def entry(**changes: Any) -> dict[str, Any]:
    """The input *x* with *changes*; what is changed to ``...`` is left out."""
    return {key: value for key, value in {**X, **changes}.items() if value is not ...}


def binary(size: Any = ..., **changes: Any) -> dict[str, Any]:
    parameters = ... if size is ... else {"binary_data_size": size}
    return entry(data=..., parameters=parameters, **changes)


def wanted(name: str, **parameters: Any) -> dict[str, Any]:
    return {"name": name, "parameters": parameters}


def message(*inputs: Any, **rest: Any) -> dict[str, Any]:
    return {"inputs": list(inputs), **rest}


def decode(
    value: Any, tail: bytes | None = None, rules: RequestRules = RULES
) -> tuple[InferRequest, ReplyForm]:
    """The request of a JSON *value* (or its bytes), with a binary *tail* behind it if given."""
    head = value if isinstance(value, bytes) else json.dumps(value).encode()
    if tail is None:
        return v2.decode_request("m", 3, head, None, rules)
    return v2.decode_request("m", 3, head + tail, len(head), rules)


def refusal(value: Any, tail: bytes | None = None, rules: RequestRules = RULES) -> str:
    with pytest.raises(InvalidRequest) as caught:
        decode(value, tail, rules)
    str(caught.value).encode()
    return str(caught.value)


def answer(form: ReplyForm, **outputs: Tensor) -> tuple[dict[str, Any], bytes]:
    """The JSON of a response and what is behind it."""
    encoded = v2.encode_response(InferResponse(MODEL, outputs), form)
    return json.loads(encoded[0]), b"".join(bytes(blob) for blob in encoded[1:])


# ── requests in JSON ────────────────────────────────────────────────────────


def test_a_request() -> None:
    """A request is its inputs, the model and version of its path, and nothing that was not said."""
    request, form = decode(message(X))
    assert (request.model, request.version, request.id) == ("m", 3, "")
    assert (request.outputs, request.parameters, form) == ((), {}, ReplyForm())
    assert list(request.inputs) == ["x"]
    assert request.inputs["x"].datatype == "FP32"
    assert request.inputs["x"].array.tolist() == [1.0, 2.0]


def test_what_clients_add() -> None:
    """Fields that the protocol does not name are ignored, wherever they are."""
    value = message(entry(extra=[1]), model_name="other", model_version="9", extra={"a": []})
    assert decode(value)[0].model == "m"


@pytest.mark.parametrize(
    ("value", "text"),
    [("abc", "abc"), ("", ""), (None, ""), (5, "5"), (-1, "-1"), (2**63, str(2**63)),
     ("ä 1", "ä 1")],
)  # fmt: skip
def test_ids(value: Any, text: str) -> None:
    """An id is kept exactly, a number as its digits, and none is none."""
    assert decode(message(X, id=value))[0].id == text


def test_parameters() -> None:
    """A request's parameters are strings, numbers and booleans, kept as they are."""
    given_ = {"a": "x", "b": 1, "c": 1.5, "d": True, "e": 2**64}
    assert decode(message(X, parameters=given_))[0].parameters == given_
    assert decode(message(X, parameters=None))[0].parameters == {}


@pytest.mark.parametrize("datatype", ["INT8", "FP64", "BYTES"])
@pytest.mark.parametrize(
    "shape",
    [[2**62], [2**64 - 1], [2**70], [2**31] * 3, [0, 2**60], [0, 2**40, 2**40], [1] * 65,
     [0] * 100],
)  # fmt: skip
def test_shapes_beyond_any_tensor(datatype: str, shape: list[int]) -> None:
    """A shape that no array can have is refused before anything is made of it."""
    count = prod(dim or 1 for dim in shape)
    told = f"the shape of input 'x' has {count} elements; at most {2**59} are taken"
    if len(shape) > 64:
        told = "the shape of input 'x' has more than 64 dimensions"
    assert refusal(message(entry(datatype=datatype, shape=shape, data=[]))) == told
    assert refusal(message(binary(0, datatype=datatype, shape=shape)), b"") == told


@pytest.mark.parametrize("datatype", ["INT8", "FP64", "BYTES"])
@pytest.mark.parametrize("shape", [[0, 2**59], [2**59, 0], [0] * 64, [2**29, 0, 2**30]])
def test_the_largest_shapes_of_nothing(datatype: str, shape: list[int]) -> None:
    """Shapes of no elements are kept up to what numpy can make of every datatype."""
    for request in (
        decode(message(entry(datatype=datatype, shape=shape, data=[]))),
        decode(message(binary(0, datatype=datatype, shape=shape)), b""),
    ):
        assert request[0].inputs["x"].shape == tuple(shape)


@pytest.mark.parametrize("datatype", ["FP32", "BF16", "BOOL", "BYTES"])
def test_a_huge_shape_makes_nothing(datatype: str) -> None:
    """A shape of many elements with few data is refused without room being made for it."""
    shape = [2**40]
    if datatype != "BF16":
        assert "takes 1099511627776" in refusal(
            message(entry(datatype=datatype, shape=shape, data=[]))
        )
    assert refusal(message(binary(4, datatype=datatype, shape=shape)), b"1234")


def test_base64_input() -> None:
    """An input of BYTES with the content type base64 is decoded, and no other content type is."""
    value = entry(datatype="BYTES", data=["/w==", "aGk="], parameters={"content_type": "base64"})
    assert decode(message(value))[0].inputs["x"].array.tolist() == [b"\xff", b"hi"]
    value = entry(datatype="BYTES", data=["aGk=", ""], parameters={"content_type": "str"})
    assert decode(message(value))[0].inputs["x"].array.tolist() == [b"aGk=", b""]


def test_names_are_any_text() -> None:
    """The names of inputs and outputs are any text, quotes and NULs included."""
    names = ['a"b', "ä/模", "\0", " ", "a\nb"]
    value = message(*(entry(name=name) for name in names), outputs=[{"name": n} for n in names])
    request, form = decode(value)
    assert list(request.inputs) == names
    assert request.outputs == tuple(names)
    assert not any(form.is_binary(name) for name in names)


@pytest.mark.parametrize("more", ['"x": 1', '"x": NaN', '"x\\u0000": 1'])
def test_members_that_are_there_twice(more: str) -> None:
    """Of a member that is there twice, the first one counts, whichever parser reads it."""
    entry = f'"name": "x", "shape": [1], "datatype": "FP32", "data": [1], "data": [2], {more}'
    request, _ = decode(f'{{"inputs": [{{{entry}}}]}}'.encode())
    assert request.inputs["x"].array.tolist() == [1.0]


# ── outputs ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("outputs", [[], None, ...])
def test_no_outputs_are_all(outputs: Any) -> None:
    """No outputs, or an empty list of them, asks for all."""
    value = message(X) if outputs is ... else message(X, outputs=outputs)
    assert decode(value)[0].outputs == ()


def test_outputs_keep_their_order() -> None:
    """The wanted outputs are kept in the wanted order."""
    outputs = [{"name": name} for name in ("z", "a", "m")]
    assert decode(message(X, outputs=outputs))[0].outputs == ("z", "a", "m")


def test_classes() -> None:
    """Outputs that are wanted as classes, and as how many, are told apart from the others."""
    classes = wanted("w", classification="2", binary_data=True)
    outputs = [wanted("y", classification=3), {"name": "z"}, classes]
    request, form = decode(message(X, outputs=outputs))
    assert request.outputs == ("y", "z", "w")
    assert request.classes == {"y": 3, "w": 2}
    assert form.is_binary("w")
    assert decode(message(X))[0].classes == {}


@pytest.mark.parametrize("every", [None, False, True])
@pytest.mark.parametrize("own", [None, False, True])
def test_who_decides_the_form(every: bool | None, own: bool | None) -> None:
    """An output's own wish wins over the request's, which wins over JSON."""
    output = wanted("y", **({} if own is None else {"binary_data": own}))
    value = message(X, outputs=[output, {"name": "z"}])
    if every is not None:
        value["parameters"] = {"binary_data_output": every}
    _, form = decode(value)
    assert form.is_binary("y") is bool(every if own is None else own)
    assert form.is_binary("z") is bool(every)


def test_the_form_of_all_outputs() -> None:
    """The request's wish for binary outputs counts where no outputs are named."""
    _, form = decode(message(X, parameters={"binary_data_output": True}))
    assert form.is_binary("anything")


# ── binary requests ─────────────────────────────────────────────────────────

TWO = np.array([1.5, -2.5], "<f4").tobytes()
TWICE_GIVEN = "input 'x' has both 'data' and 'binary_data_size'"


@pytest.mark.parametrize("size", [8, "8", "08"])
def test_binary_data(size: Any) -> None:
    """An input's binary data are as many bytes as it says, with a number or its digits."""
    request, _ = decode(message(binary(size)), TWO)
    assert request.inputs["x"].array.tolist() == [1.5, -2.5]


def test_binary_data_are_not_copied() -> None:
    """A tensor of binary data is a view of the body."""
    head = json.dumps(message(binary(8), binary(8, name="z"))).encode()
    body = head + TWO + TWO
    request, _ = v2.decode_request("m", None, body, len(head))
    whole = np.frombuffer(body, np.uint8)
    for name in ("x", "z"):
        assert np.shares_memory(request.inputs[name].array, whole)
        assert not request.inputs[name].array.flags.writeable
    assert not np.shares_memory(request.inputs["x"].array, request.inputs["z"].array)


def test_binary_and_json_mixed() -> None:
    """Binary inputs take their bytes in the order of the list, JSON ones between them none."""
    value = message(
        binary(8, name="a"),
        entry(name="b"),
        binary(6, name="c", datatype="BYTES", shape=[1]),
        binary(0, name="d", shape=[0]),
        binary(1, name="e", datatype="BOOL", shape=[]),
    )
    request, _ = decode(value, TWO + b"\x02\0\0\0\xff\0" + b"\x01")
    arrays = {name: tensor.array.tolist() for name, tensor in request.inputs.items()}
    assert arrays == {"a": [1.5, -2.5], "b": [1.0, 2.0], "c": [b"\xff\0"], "d": [], "e": True}


def test_binary_data_size_left_out() -> None:
    """Without a size, binary data are as many as shape and datatype say."""
    request, _ = decode(
        message(binary(), binary(name="z", datatype="INT8", shape=[3])), TWO + b"123"
    )
    assert request.inputs["x"].array.tolist() == [1.5, -2.5]
    assert request.inputs["z"].array.tolist() == [49, 50, 51]
    assert refusal(message(binary(shape=[3])), TWO) == (
        "input 'x' must have 12 bytes of binary data, 8 are left"
    )
    assert refusal(message(binary(), binary(name="z")), TWO) == (
        "input 'z' has neither 'data' nor 'binary_data_size'"
    )


@pytest.mark.parametrize("datatype", ["INT16", "BYTES"])
def test_no_elements_without_a_size(datatype: str) -> None:
    """Without a size, a tensor of no elements takes no binary data, as in OpenVINO Model Server."""
    empty = binary(name="e", datatype=datatype, shape=[1, 0])
    for inputs, tail in (([empty], b""), ([binary(), empty], TWO)):
        request, _ = decode(message(*inputs), tail)
        assert request.inputs["e"].shape == (1, 0)


def test_bytes_without_a_size() -> None:
    """BYTES without a size take the rest of the body, if no other input could want some of it."""
    text = binary(name="t", datatype="BYTES", shape=[2])
    request, _ = decode(message(binary(8), text), TWO + b"\2\0\0\0\xff\0\1\0\0\0a")
    assert request.inputs["t"].array.tolist() == [b"\xff\0", b"a"]
    assert refusal(message(text, binary(8)), b"\1\0\0\0a" + TWO) == (
        "input 't' is BYTES and not the last one: it needs 'binary_data_size'"
    )
    assert refusal(message(text), b"\1\0\0\0a\1\0\0\0b!") == (
        "input 't' has 1 bytes of data after its last element"
    )
    assert refusal(message(text), b"") == "input 't' has neither 'data' nor 'binary_data_size'"


@pytest.mark.parametrize("nbytes", [0, -1, -(2**63), 14, 10**18])
def test_wrong_header_lengths(nbytes: int) -> None:
    """The JSON part is at least one byte and at most the body."""
    with pytest.raises(InvalidRequest, match=rf"must be in 1\.\.13, got {nbytes}$"):
        v2.decode_request("m", None, b'{"inputs":[]}', nbytes)


@pytest.mark.parametrize("nbytes", [1, 12])
def test_a_header_cut_short(nbytes: int) -> None:
    """A JSON part that ends in the middle is not JSON."""
    with pytest.raises(InvalidRequest, match="the request is not JSON"):
        v2.decode_request("m", None, b'{"inputs":[]}', nbytes)


def test_both_parsers_read_alike() -> None:
    """A request with a NaN anywhere, which needs the other parser, means the same."""
    more = {"parameters": {"binary_data_output": True}, "outputs": [wanted("y", binary_data=False)]}
    value = json.dumps(message(X, binary("8", name="b"), id="a", **more))
    strict, lenient = decode(value.encode(), TWO), decode(value[:-1].encode() + b',"z":NaN}', TWO)
    strict[0].made_s = lenient[0].made_s
    assert str(strict) == str(lenient)


# ── shared memory ───────────────────────────────────────────────────────────


def region(name: Any = "r", **sizes: Any) -> dict[str, Any]:
    """Parameters that name a region, with the size and the offset that are given."""
    keys = {"nbytes": "shared_memory_byte_size", "offset": "shared_memory_offset"}
    return {"shared_memory_region": name, **{keys[key]: value for key, value in sizes.items()}}


def shared(parameters: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return entry(data=..., parameters=parameters, **changes)


def test_shared_inputs() -> None:
    """An input of floats in shared memory is a view of what the region's reader gives."""
    memory = bytearray(b"....") + TWO + b"\1\0\0\0a"
    asked: list[tuple[str, int, int]] = []

    def read(name: str, offset: int, nbytes: int) -> memoryview:
        asked.append((name, offset, nbytes))
        return memoryview(memory)[offset : offset + nbytes]

    value = message(
        shared(region(nbytes=8, offset=4)),
        binary(8, name="b"),
        shared(region("s", nbytes="5", offset="12"), name="t", datatype="BYTES", shape=[1]),
        shared(region(nbytes=0), name="z", shape=[0]),
    )
    inputs = decode(value, TWO, RequestRules(read_region=read))[0].inputs
    assert asked == [("r", 4, 8), ("s", 12, 5), ("r", 0, 0)]
    assert inputs["x"].array.tolist() == inputs["b"].array.tolist() == [1.5, -2.5]
    assert inputs["t"].array.tolist() == [b"a"]
    assert inputs["z"].shape == (0,)
    assert np.shares_memory(inputs["x"].array, np.frombuffer(memory, np.uint8))


@pytest.mark.parametrize("datatype", ["INT64", "INT32", "BOOL"])
def test_shared_inputs_that_may_be_positions(datatype: str) -> None:
    """A client that changes positions or choices in shared memory changes no request under way.

    The engine compares a position with the tensor's size, and then reads it a second time: the
    element there may lie outside the process by then.
    """
    memory = bytearray(8)
    shape = [8 // DATATYPES[datatype].itemsize]
    value = message(shared(region(nbytes=8), datatype=datatype, shape=shape))
    rules = RequestRules(read_region=lambda *_: memoryview(memory))
    inputs = decode(value, b"", rules)[0].inputs
    memory[:] = b"\xff" * 8
    assert not inputs["x"].array.any()


def test_shared_memory_that_is_not_used() -> None:
    """Without a reader of regions, an input in shared memory is refused."""
    with pytest.raises(NotSupported, match="shared_memory='on' to allow it"):
        decode(message(shared(region(nbytes=8))))


def test_what_the_reader_refuses() -> None:
    """An error of the regions' own, such as an unknown one, is passed on."""

    def read(name: str, offset: int, nbytes: int) -> memoryview:
        raise RegionNotFound(f"there is no {name}")

    with pytest.raises(RegionNotFound, match="there is no r"):
        decode(message(shared(region(nbytes=8))), None, RequestRules(read_region=read))


SPAN_SIZE = "'shared_memory_byte_size' of {} is not a size: "
BAD_SPANS = [
    (region(5, nbytes=8), "'shared_memory_region' of {} is not a name"),
    (region(), SPAN_SIZE + '""'),
    (region(nbytes=-8), SPAN_SIZE + "-8"),
    (region(nbytes=8.0), SPAN_SIZE + "8.0"),
    (region(nbytes=2**63), SPAN_SIZE + str(2**63)),
    (region(nbytes=8, offset=-1), "'shared_memory_offset' of {} is not a size: -1"),
    (region(nbytes=8, offset="x"), "'shared_memory_offset' of {} is not a size: \"x\""),
    ({**region(nbytes=8), "binary_data": True}, "{} has both shared memory and binary data"),
    ({**region(nbytes=8), "binary_data_size": 8}, "{} has both shared memory and binary data"),
]


@pytest.mark.parametrize(("parameters", "told"), BAD_SPANS)
def test_bad_spans(parameters: dict[str, Any], told: str) -> None:
    """A part of shared memory has a name and sizes, and is all that its input or output has."""
    rules = RequestRules(read_region=lambda name, offset, nbytes: memoryview(TWO))
    assert refusal(message(shared(parameters)), TWO, rules) == told.format("input 'x'")
    value = message(X, outputs=[wanted("y", **parameters)])
    assert refusal(value, None, rules) == told.format("output 'y'")


def shared_form() -> ReplyForm:
    """The form of a reply whose output *y* goes to region *r*."""
    outputs = [wanted("y", **region(nbytes=8, offset=4)), {"name": "z"}]
    return decode(message(X, outputs=outputs))[1]


def test_shared_outputs() -> None:
    """An output for shared memory is written there; its entry has neither data nor parameters."""
    form = shared_form()
    assert form.spans == {"y": RegionSpan("r", 4, 8)}
    written: list[tuple[str, int, bytes]] = []

    def write(name: str, offset: int, data: bytes | memoryview) -> None:
        written.append((name, offset, bytes(data)))

    outputs = {"y": Tensor.of([1.5, -2.5], "FP32"), "z": Tensor.of([7], "INT8")}
    encoded = v2.encode_response(InferResponse(MODEL, outputs), form, write)
    assert json.loads(encoded[0])["outputs"] == [
        {"name": "y", "datatype": "FP32", "shape": [2]},
        {"name": "z", "datatype": "INT8", "shape": [1], "data": [7]},
    ]
    assert len(encoded) == 1
    assert written == [("r", 4, TWO)]


def test_a_shared_output_may_be_smaller() -> None:
    """An output may leave some of its part of the region as it was."""
    written: list[bytes] = []
    response = InferResponse(MODEL, {"y": Tensor.of([7], "INT8")})
    v2.encode_response(response, shared_form(), lambda _, __, data: written.append(bytes(data)))
    assert written == [b"\7"]


# ── responses ───────────────────────────────────────────────────────────────


def test_a_response() -> None:
    """A response names the model, its version as a string, and its outputs with flat data."""
    tensor = Tensor.of([[1.5, 2.5]], "FP32")
    assert answer(ReplyForm(), y=tensor) == (
        {
            "model_name": "m",
            "model_version": "3",
            "outputs": [{"name": "y", "datatype": "FP32", "shape": [1, 2], "data": [1.5, 2.5]}],
        },
        b"",
    )


@pytest.mark.parametrize(("id_", "fields"), [("", {}), ("abc", {"id": "abc"}), ("0", {"id": "0"})])
def test_the_id_comes_back(id_: str, fields: dict[str, str]) -> None:
    """The request's id comes back, and none where none was given."""
    head = v2.encode_response(InferResponse(MODEL, {}, id_), ReplyForm())[0]
    assert json.loads(head) == {**fields, "model_name": "m", "model_version": "3", "outputs": []}


def test_binary_outputs() -> None:
    """Binary outputs stand behind the JSON in its order, with their sizes in it."""
    head, tail = answer(
        ReplyForm(binary_of={"a": True, "b": False, "c": True}),
        a=Tensor.of([1.5, -2.5], "FP32"),
        b=Tensor.of([7], "INT64"),
        c=Tensor.of([b"\xff"]),
    )
    assert head["outputs"] == [
        {"name": "a", "datatype": "FP32", "shape": [2], "parameters": {"binary_data_size": 8}},
        {"name": "b", "datatype": "INT64", "shape": [1], "data": [7]},
        {"name": "c", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 5}},
    ]
    assert tail == TWO + b"\x01\0\0\0\xff"


def test_an_empty_binary_output() -> None:
    """A binary output of no elements has no bytes and says so."""
    head, tail = answer(ReplyForm(binary=True), y=Tensor("FP32", np.empty((0, 3), np.float32)))
    assert (head["outputs"][0]["shape"], tail) == ([0, 3], b"")
    assert head["outputs"][0]["parameters"] == {"binary_data_size": 0}


@pytest.mark.parametrize("datatype", ["FP16", "FP32", "FP64", "BF16"])
def test_what_json_has_no_number_for(datatype: str) -> None:
    """NaN and the infinities are written as strings, in JSON that every reader takes."""
    values = np.array([[np.nan, np.inf], [-np.inf, 0.5]], np.float32)
    if datatype == "BF16":
        array = (values.view(np.uint32) >> 16).astype(np.uint16)
    else:
        array = values.astype(DATATYPES[datatype].dtype)
    outputs = {"y": Tensor(datatype, array), "z": Tensor.of(["null", "NaN"]), "w": Tensor.of([1.5])}
    outputs["v"] = Tensor.of([7])
    encoded = v2.encode_response(InferResponse(MODEL, outputs, "null"), ReplyForm())
    head = json.loads(encoded[0], parse_constant=pytest.fail)
    assert head["id"] == "null"
    assert [output["data"] for output in head["outputs"]] == [
        ["NaN", "Infinity", "-Infinity", 0.5], ["null", "NaN"], [1.5], [7],
    ]  # fmt: skip


@pytest.mark.parametrize("count", [1, 10_000])
@pytest.mark.parametrize("datatype", ["FP16", "FP32", "FP64", "BF16"])
def test_one_nan_among_many(datatype: str, count: int) -> None:
    """A NaN is written as a string also where it is alone, and where it is one of many numbers."""
    dtype = DATATYPES[datatype].dtype
    array = np.zeros(count, dtype)
    array[-1] = 0x7FC0 if datatype == "BF16" else np.nan
    head, _ = answer(ReplyForm(), y=Tensor(datatype, array))
    assert head["outputs"][0]["data"] == [0.0] * (count - 1) + ["NaN"]


def test_floats_beside_the_word_null() -> None:
    """Text that says null changes no float beside it."""
    outputs = {"y": Tensor.of([0.1, -0.0, 1e30], "FP32"), "z": Tensor.of(["null"])}
    encoded = v2.encode_response(InferResponse(MODEL, outputs), ReplyForm())
    floats, text = json.loads(encoded[0])["outputs"]
    assert np.float32(floats["data"]).tobytes() == outputs["y"].array.tobytes()
    assert text["data"] == ["null"]


def test_base64_outputs() -> None:
    """An output of BYTES goes as base64 where that is asked for, and says so; others do not."""
    forms = {"y": "base64", "n": "base64", "t": "str"}
    outputs = [wanted(name, content_type=form) for name, form in forms.items()]
    _, form = decode(message(X, outputs=outputs))
    head, _ = answer(form, y=Tensor.of([b"\xff"]), n=Tensor.of([1]), t=Tensor.of(["a"]))
    assert head["outputs"] == [
        {"name": "y", "datatype": "BYTES", "shape": [1], "data": ["/w=="],
         "parameters": {"content_type": "base64"}},
        {"name": "n", "datatype": "INT64", "shape": [1], "data": [1]},
        {"name": "t", "datatype": "BYTES", "shape": [1], "data": ["a"]},
    ]  # fmt: skip


# ── what is refused ─────────────────────────────────────────────────────────


def of_parameters(value: Any) -> list[tuple[Any, str]]:
    """Parameters of the request, of an input and of an output, and whose they are."""
    told = "parameter 'a' of" if isinstance(value, dict) else "the 'parameters' of"
    return [
        (message(X, parameters=value), f"{told} the request "),
        (message(entry(parameters=value)), f"{told} input 'x' "),
        (message(X, outputs=[{"name": "y", "parameters": value}]), f"{told} output 'y' "),
    ]


def asking(**parameters: Any) -> Any:
    return message(X, outputs=[wanted("y", **parameters)])


NO_OBJECT, NO_LIST = (
    "the request is not a JSON object",
    "the request has 'inputs' that are not a list",
)
NO_INPUT, NO_DATA = (
    "an input is not a JSON object",
    "input 'x' has neither 'data' nor 'binary_data_size'",
)
SIZES = "the shape of input 'x' is not a list of sizes from 0 up"
NO_SEQUENCE = "of the request is a whole number from 0, or Unicode text, not"
REFUSED: list[tuple[Any, str]] = [
    (b"[]", NO_OBJECT), (b"null", NO_OBJECT), (b'"inputs"', NO_OBJECT), (b"5", NO_OBJECT),
    (b'{"id": "\\ud800", "inputs": []}', "'id' is not Unicode text: "),
    ({}, "the request has no 'inputs'"), ({"inputs": None}, "the request has no 'inputs'"),
    ({"inputs": {"x": [1]}}, NO_LIST), ({"inputs": "x"}, NO_LIST),
    (message(5), NO_INPUT), (message([X]), NO_INPUT), (message(None), NO_INPUT),
    *((message(X, id=value), "'id' is not a string") for value in (1.5, True, [1], {"a": 1})),
    (message(entry(name=...)), "an input has no 'name'"),
    (message(entry(name="")), "an input has an empty 'name'"),
    (message(entry(name=5)), "an input has a 'name' that is not a string"),
    (message(entry(name=0)), "an input has a 'name' that is not a string"),
    (message(X, X), "input 'x' is given twice"),
    (message(entry(data=...)), NO_DATA), (message(entry(data=None)), NO_DATA),
    (message(entry(data={"a": 1})), "input 'x': an object is not a number"),
    (message(entry(data=[1])), "input 'x' has 1 elements; its shape [2] takes 2"),
    *((message(entry(datatype=datatype)),
       f"input 'x' has datatype {shown}; it is one of {', '.join(DATATYPES)}")
      for datatype, shown in (
          ("fp32", '"fp32"'), ("FP8", '"FP8"'), ("", '""'), (None, "null"), (..., "null"),
          (32, "32"), (["FP32"], "an array"), ({}, "an object"), (True, "true"))),
    *((message(entry(shape=shape)), "input 'x' has no 'shape'") for shape in (None, ...)),
    *((message(entry(shape=shape)), "input 'x' has a 'shape' that is not a list")
      for shape in (2, "2", {"a": 2})),
    *((message(entry(shape=[1, dim])), SIZES) for dim in (-1, 2.0, 1.5, "2", None, True, [2], {})),
    *(row for value in ([], "a", 1, True, {"a": None}, {"a": [1]}, {"a": {}})
      for row in of_parameters(value)),
    (message(X, outputs={}), "'outputs' is not a list"),
    (message(X, outputs="y"), "'outputs' is not a list"),
    (message(X, outputs=["y"]), "an output is not a JSON object"),
    (message(X, outputs=[{}]), "an output has no 'name'"),
    (message(X, outputs=[{"name": ""}]), "an output has an empty 'name'"),
    (message(X, outputs=[{"name": ["y"]}]), "an output has a 'name' that is not a string"),
    (message(X, outputs=[{"name": 5}]), "an output has a 'name' that is not a string"),
    (message(X, outputs=[{"name": "y"}, {"name": "y"}]), "output 'y' is asked for twice"),
    (asking(binary_data=1), "parameter 'binary_data' is not true or false: 1"),
    (asking(binary_data="true"), "parameter 'binary_data' is not true or false: 'true'"),
    *((asking(classification=count), f"'classification' of output 'y' is not a size: {shown}")
      for count, shown in ((-1, "-1"), (1.0, "1.0"), ("all", '"all"'), (True, "true"))),
    *((message(X, parameters={"binary_data_output": value}),
       f"parameter 'binary_data_output' is not true or false: {value!r}")
      for value in (1, "true", 0.5)),
    *((message(X, parameters={key: value}),
       f"parameter {key!r} of the request is a whole number from 0, not {json.dumps(value)}")
      for key in ("priority", "timeout") for value in ("5000", -1, 0.5, True, 2**64)),
    *((message(X, parameters={"sequence_id": value}),
       f"parameter 'sequence_id' {NO_SEQUENCE} {json.dumps(value)}")
      for value in (-1, 0.5, True, 2**64, math.nan, "\ud800")),
    *((message(X, parameters={key: 1}), f"parameter {key!r} of the request is true or false, not 1")
      for key in ("sequence_start", "sequence_end")),
    (message(entry(parameters=region(nbytes=8))),
     "input 'x' has both 'data' and 'shared_memory_region'"),
    (asking(**region(nbytes=8), classification=1),
     "output 'y' has both shared memory and 'classification'"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "told"), REFUSED)
def test_what_is_refused(value: Any, told: str) -> None:
    """What is not the protocol's grammar is refused with the thing that is wrong."""
    assert refusal(value).startswith(told)
    assert refusal(value) == told or told.endswith(" ")


NO_SIZE = "'binary_data_size' of input 'x' is not a size: "
REFUSED_BINARY: list[tuple[Any, bytes | None, str]] = [
    *((message(binary(8)), tail, f"input 'x' must have 8 bytes of binary data, {left} are left")
      for tail, left in ((TWO[:-1], 7), (b"", 0), (None, 0))),
    (message(binary(8)), TWO + b"!", "1 bytes of binary data belong to no input"),
    (message(X), TWO, "8 bytes of binary data belong to no input"),
    (message(), b"!", "1 bytes of binary data belong to no input"),
    (message(binary(4)), TWO, "input 'x' has 4 bytes of data; FP32 of shape [2] takes 8"),
    (message(entry(parameters={"binary_data_size": 8})), TWO, TWICE_GIVEN),
    (message(entry(data=[], parameters={"binary_data_size": 0})), b"", TWICE_GIVEN),
    (message(binary(2**63 - 1)), TWO,
     f"input 'x' must have {2**63 - 1} bytes of binary data, 8 are left"),
    *((message(binary(size)), TWO, NO_SIZE + shown) for size, shown in (
        (-1, "-1"), (8.0, "8.0"), (True, "true"), ("", '""'), ("-8", '"-8"'), ("8.0", '"8.0"'),
        (" 8", '" 8"'), ("0x8", '"0x8"'), ("٨", '"\\u0668"'), ("9" * 5000, '"' + "9" * 36 + "..."),
        (2**63, str(2**63)), (2**70, str(2**70)))),
]  # fmt: skip


@pytest.mark.parametrize(("value", "tail", "told"), REFUSED_BINARY)
def test_binary_data_that_are_refused(value: Any, tail: bytes | None, told: str) -> None:
    """Bytes that are missing, left over, miscounted or given twice are refused with the numbers."""
    assert refusal(value, tail) == told


def test_parameters_with_a_meaning() -> None:
    """Whole numbers up to 64 bits, and sequences that an answer can hold, are kept."""
    for key, value in (
        ("priority", 2**64 - 1), ("timeout", 2**64 - 1), ("sequence_id", 0),
        ("sequence_id", 2**64 - 1), ("sequence_id", ""), ("sequence_id", "é"),
    ):  # fmt: skip
        assert decode(message(X, parameters={key: value}))[0].parameters[key] == value


@pytest.mark.parametrize(
    ("values", "write", "error", "told"),
    [
        ([0, 0, 0], pytest.fail, InvalidRequest,
         "output 'y' has 12 bytes; 'shared_memory_byte_size' leaves it 8"),
        ([0, 0], None, NotSupported, "output 'y' is meant for shared memory; that is off"),
    ],
)  # fmt: skip
def test_shared_outputs_that_are_refused(
    values: list[int], write: Any, error: type[Exception], told: str
) -> None:
    """One that is larger than its part of the region, of which nothing is written; or any."""
    response = InferResponse(MODEL, {"y": Tensor.of(values, "FP32")})
    with pytest.raises(error, match=told):
        v2.encode_response(response, shared_form(), *([write] if write else []))


# ── both ways ───────────────────────────────────────────────────────────────


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    datatype = draw(st.sampled_from(sorted(DATATYPES)))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3))
    elements = st.text(st.characters(codec="utf-8")).map(str.encode)
    return Tensor(
        datatype,
        draw(
            hnp.arrays(object, shape, elements=elements)
            if datatype == "BYTES"
            else hnp.arrays(DATATYPES[datatype].dtype, shape)
        ),
    )


@deterministic
@given(st.lists(tensors(), max_size=3), st.data())
def test_round_trips(made: list[Tensor], data: st.DataObject) -> None:
    """What a response carries, binary or not, is a request's inputs again, value for value."""
    outputs = {f"t{n}": tensor for n, tensor in enumerate(made)}
    binary_of = {
        name: tensor.datatype == "BF16" or data.draw(st.booleans())
        for name, tensor in outputs.items()
    }
    head, tail = answer(ReplyForm(binary_of=binary_of), **outputs)
    request, _ = decode({"inputs": head["outputs"]}, tail)
    assert list(request.inputs) == list(outputs)
    for name, tensor in outputs.items():
        again = request.inputs[name]
        assert (again.datatype, again.shape) == (tensor.datatype, tensor.shape)
        assert again.array.dtype == tensor.array.dtype
        np.testing.assert_array_equal(again.array, tensor.array)


# ── anything at all ─────────────────────────────────────────────────────────


def test_shapes_that_take_long_to_multiply() -> None:
    """A shape of very many or very large sizes is refused before it is multiplied out."""
    told = refusal(message(entry(shape=[2**62] * 20_000)))
    assert told == "the shape of input 'x' has more than 64 dimensions"
    text = b'{"inputs":[{"name":"x","datatype":"INT8","shape":[%b,%b],"data":[]}]}'
    with pytest.raises(InvalidRequest, match="more than 2\\^128 elements"):
        v2.decode_request("m", None, text % (b"1" + b"0" * 4000, b"1" + b"0" * 4000), None)


def test_objects_of_many_members() -> None:
    """An object of very many members is read like any other."""
    many = ",".join(f'"k{n}":{n}' for n in range(20_000))
    text = f'{{{many},"inputs":[{{{many},"name":"x","datatype":"INT8","shape":[1],"data":[7]}}]}}'
    request, _ = v2.decode_request("m", None, text.encode(), None)
    assert request.inputs["x"].array.tolist() == [7]
