"""Flat JSON to requests and back: shapes that nobody says, keys that mean several things."""

import json
from typing import Any

import numpy as np
import pytest

from workbench.codecs.generate import decode_request, encode_response
from workbench.errors import InvalidRequest
from workbench.inference import InferRequest, InferResponse
from workbench.model import ModelId, Signature, TensorSpec
from workbench.tensor import Tensor


def decoded(body: str, datatype: str = "FP32", **inputs: tuple[int, ...]) -> InferRequest:
    """The request in *body*, for a model whose *inputs* are of these shapes."""
    specs = {name: TensorSpec(name, datatype, shape) for name, shape in inputs.items()}
    return decode_request("m", None, body.encode(), Signature("", specs, {}))


def encoded(**outputs: Any) -> Any:
    tensors = {name: Tensor.of(value) for name, value in outputs.items()}
    return json.loads(encode_response(InferResponse(ModelId("m", 2), tensors)))


@pytest.mark.parametrize(
    ("declared", "value", "shape"),
    [
        ((), "5", ()),
        ((), "[5]", ()),
        ((-1,), "5", (1,)),
        ((-1,), "[1, 2, 3]", (3,)),
        ((-1,), "[]", (0,)),
        ((3,), "[1, 2, 3]", (3,)),
        ((1,), "5", (1,)),
        ((-1, 1), "5", (1, 1)),
        ((-1, 3), "[1, 2, 3]", (1, 3)),
        ((-1, 3), "[1, 2, 3, 4, 5, 6]", (2, 3)),
        ((-1, 3), "[]", (0, 3)),
        ((-1, -1), "[1, 2, 3]", (1, 3)),
        ((-1, 2, -1), "[1, 2, 3, 4]", (1, 2, 2)),
        ((-1, 2), "[[1, 2], [3, 4]]", (2, 2)),
        ((-1, 2, 2), "[[1, 2], [3, 4]]", (1, 2, 2)),
        ((-1, -1, -1), "[[1, 2], [3, 4]]", (1, 2, 2)),
        ((-1, -1), "[[]]", (1, 0)),
        ((-1, 0), "[]", (1, 0)),
        ((-1,), "[[1], [2]]", (2, 1)),  # which the model's own check refuses
    ],
)
def test_shapes(declared: tuple[int, ...], value: str, shape: tuple[int, ...]) -> None:
    """Flat data fill the declared shape from its end; nested data keep theirs, behind 1s."""
    request = decoded(f'{{"x": {value}}}', x=declared)
    assert request.inputs["x"].shape == shape
    assert request.inputs["x"].array.reshape(-1).tolist() == np.ravel(json.loads(value)).tolist()


FILLS = "input 'x' takes shape {}, which {} elements do not fill"
UNEQUAL = "input 'x' has arrays of different lengths within it"
BAD_VALUES = [
    ((3,), "FP32", "[1, 2]", FILLS.format([3], 2)), ((3,), "FP32", "5", FILLS.format([3], 1)),
    ((-1, 3), "FP32", "[1, 2]", FILLS.format([-1, 3], 2)), ((), "FP32", "[]", FILLS.format([], 0)),
    ((), "FP32", "[1, 2]", FILLS.format([], 2)), ((0,), "FP32", "5", FILLS.format([0], 1)),
    ((-1, 2), "FP32", "[[1, 2], [3]]", UNEQUAL),
    ((-1, -1), "FP32", "[[1], [2, 3], []]", UNEQUAL),
    ((-1, -1), "FP32", "[[1, 2], 3]", "input 'x' has numbers beside arrays within it"),
    *(((-1,), "FP32", "[" * depth + "1" + "]" * depth, told) for depth, told in (
        (65, "input 'x' has more than 64 dimensions"),
        (99, "input 'x' has more than 64 dimensions"), (100, "the JSON nests"))),
    *(((-1,), datatype, value, f"input 'x': {told}") for datatype, value, told in (
        ("BYTES", "7", "7 is not a string"), ("BYTES", '{"a": "b"}', "an object is not a string"),
        ("BOOL", '"false"', '"false" is not true or false'),
        ("INT8", "300", "300 is out of range for INT8"),
        ("INT32", "1.5", "1.5 is not a whole number"), ("UINT64", "-1", "-1 is "),
        ("FP32", '"1"', '"1" is not a number'), ("BF16", '"1"', '"1" is not a number'))),
]  # fmt: skip
BAD_OBJECTS = [
    ("[]", "the request is not a JSON object"),
    ("7", "the request is not a JSON object"),
    ("{", "the request is not JSON: "),
    ('{"parameters": 7}', "'parameters' is not a JSON object"),
    ('{"parameters": null}', "'parameters' is not a JSON object"),
    ('{"x": 1, "y": 2, "x": 3}', "'x' is given twice"),
    ('{"t": 1, "x": 2, "x": 3, "t": 4}', "'x' is given twice"),
    ('{"x": 1, "parameters": {"x": 2}}', "'x' is given twice"),
    ('{"parameters": {"x": 1, "x": 2}}', "'x' is given twice"),
    ('{"x": NaN, "x": 2}', "'x' is given twice"),
    ('{"x": NaN, "parameters": {"t": 1, "t": 2}}', "'t' is given twice"),
    ('{"t": 1, "parameters": {"t": 2}}', "'t' is given twice"),
    ('{"t": {}}', "'t' is no input of 'm', and a parameter is"),
    ('{"t": [1]}', "'t' is no input of 'm', and"),
    ('{"t": null}', "'t' is no input of 'm', and"),
    ('{"triton_t": 1}', "parameter 'triton_t': names with 'triton_' first are reserved"),
    ('{"parameters": {"triton_t": 1}}', "parameter 'triton_t': names with 'triton_' first"),
    ('{"id": true}', "'id' is not a string"),
    ('{"id": [1]}', "'id' is not a string"),
    ('{"id": "\\ud800"}', "'id' is not Unicode text: "),
    ('{"sequence_id": "\\ud800"}', "parameter 'sequence_id' of the request is a whole number"),
    ('{"parameters": {"sequence_start": NaN}}', "parameter 'sequence_start' of the request is"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("declared", "datatype", "body", "message"),
    [
        (declared, datatype, f'{{"x": {value}}}', told)
        for declared, datatype, value, told in BAD_VALUES
    ]
    + [((-1,), "FP32", *row) for row in BAD_OBJECTS],
)
def test_what_is_refused(declared: tuple[int, ...], datatype: str, body: str, message: str) -> None:
    """What has not the declared shape or type, is no flat object, or is there twice is named."""
    with pytest.raises(InvalidRequest) as caught:
        decoded(body, datatype, x=declared)
    assert str(caught.value).startswith(message)


def test_as_many_dimensions_as_there_are() -> None:
    """Data may nest as deep as a tensor can."""
    assert decoded(f'{{"x": {"[" * 64}1{"]" * 64}}}', x=(-1,)).inputs["x"].shape == (1,) * 64


def test_keys() -> None:
    """What names an input is one, within "parameters" too; other keys are parameters."""
    body = '{"a": 1, "id": "7", "n": 3, "parameters": {"b": [2], "t": 0.5, "s": "x", "f": true}}'
    request = decoded(body, a=(-1,), b=(-1,))
    assert {name: tensor.array.tolist() for name, tensor in request.inputs.items()} == {
        "a": [1],
        "b": [2],
    }
    assert request.parameters == {"n": 3, "t": 0.5, "s": "x", "f": True}
    assert request.id == "7"


def test_inputs_with_names_of_ours() -> None:
    """An input called "id" or "parameters" is fed by that key."""
    request = decoded('{"id": 5, "parameters": [1, 2]}', id=(-1,), parameters=(-1,))
    assert [tensor.array.tolist() for tensor in request.inputs.values()] == [[5], [1, 2]]
    assert (request.id, request.parameters) == ("", {})


@pytest.mark.parametrize("body", ["", "  ", "{}"])
def test_empty_bodies(body: str) -> None:
    """An empty body is an empty object."""
    request = decoded(body, x=(-1,))
    assert (request.inputs, request.parameters, request.id) == ({}, {}, "")


def test_numeric_ids() -> None:
    """A number as id comes back as text."""
    assert decoded('{"id": 7}').id == "7"


def test_outputs() -> None:
    """One element comes as itself, more as a flat list, and none as an empty one."""
    assert encoded(one=[[1.5]], more=[[1, 2], [3, 4]], none=np.empty((0, 2)), text=["ü"]) == {
        "model_name": "m",
        "model_version": "2",
        "one": 1.5,
        "more": [1, 2, 3, 4],
        "none": [],
        "text": "ü",
    }


def test_outputs_that_json_lacks() -> None:
    """NaN and the infinities come as strings, alone and in lists; a text "null" stays one."""
    told = encoded(one=[np.nan], more=np.array([np.inf, 0.1], np.float32), text=["null"])
    assert (told["one"], told["more"], told["text"]) == (
        "NaN",
        ["Infinity", told["more"][1]],
        "null",
    )
    assert np.float32(told["more"][1]) == np.float32(0.1)


def test_ids_come_first_and_outputs_win() -> None:
    """The id leads, if there is one; an output of that name takes its place."""
    tensors = {"model_name": Tensor.of([5])}
    body = encode_response(InferResponse(ModelId("m", 1), tensors, "7"))
    assert body == b'{"id":"7","model_name":5,"model_version":"1"}'


def test_parameters_come_before_the_outputs() -> None:
    """The parameters of an answer are keys like its outputs, which win."""
    tensors = {"y": Tensor.of([5])}
    response = InferResponse(ModelId("m", 1), tensors, parameters={"last": True, "y": 1})
    assert json.loads(encode_response(response)) == {
        "model_name": "m",
        "model_version": "1",
        "last": True,
        "y": 5,
    }


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int64, np.uint64])
def test_one_integer(dtype: type[np.integer[Any]]) -> None:
    """One integer of any size comes as itself."""
    highest = np.iinfo(dtype).max
    assert encoded(y=np.array([highest], dtype))["y"] == highest


def test_outputs_that_are_no_text() -> None:
    """BYTES that are not UTF-8 are refused, since JSON cannot carry them."""
    with pytest.raises(InvalidRequest, match="output 'y' is not UTF-8"):
        encoded(y=[b"\xff"])
