"""Requests that come again: read in part, they say what all of their reading would say."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from workbench.codecs import v2
from workbench.codecs.v2 import ReplyForm, RequestRules
from workbench.codecs.v2_repeat import Repeat, repeat_of
from workbench.errors import InvalidRequest
from workbench.inference import InferRequest, InferResponse
from workbench.model import ModelId, Signature
from workbench.tensor import DATATYPES, Tensor

deterministic = settings(derandomize=True, deadline=None, max_examples=300)
NUMERIC = sorted(set(DATATYPES) - {"BYTES", "BOOL", "BF16"})
SHAPES = hnp.array_shapes(min_dims=0, min_side=0, max_side=3)
MODEL = ModelId("m", 1)
SIGNATURE = Signature("fake", {}, {})

MEMORY = np.zeros(16, np.float32).tobytes()
RULES = RequestRules(read_region=lambda name, offset, nbytes: memoryview(MEMORY)[:nbytes])


def decode(body: bytes) -> tuple[InferRequest, ReplyForm]:
    return v2.decode_request("m", None, body, None, RULES)


def learned(body: bytes) -> Repeat | None:
    """What is kept of *body*, once it was read as a whole."""
    request, form = decode(body)
    request.fit = SIGNATURE, ("y",)
    return repeat_of(body, request, form)


def text_of(data: str, datatype: str = "FP32", shape: str = "[2]", **rest: str) -> bytes:
    """A body of JSON pieces."""
    after = "".join(f', "{key}": {value}' for key, value in rest.items())
    entry = f'{{"name": "x", "datatype": "{datatype}", "shape": {shape}, "data": {data}}}'
    return f'{{"inputs": [{entry}]{after}}}'.encode()


def same(one: InferRequest, other: InferRequest) -> bool:
    """Whether two requests are the same to the bit."""
    tensors = [(r.inputs["x"].datatype, r.inputs["x"].array) for r in (one, other)]
    (datatype, array), (other_datatype, other_array) = tensors
    return (
        (one.model, one.version, one.outputs, one.id, one.parameters, one.classes)
        == (other.model, other.version, other.outputs, other.id, other.parameters, other.classes)
        and (datatype, array.dtype, array.shape)
        == (other_datatype, other_array.dtype, other_array.shape)
        and array.tobytes() == other_array.tobytes()
    )


# ── requests ────────────────────────────────────────────────────────────────


def test_the_same_again() -> None:
    """A body that differs from a known one in its elements only is read by its elements."""
    repeat = learned(text_of("[1, 2]", parameters='{"a": 1}', outputs='[{"name": "y"}]'))
    assert repeat is not None
    again = text_of("[ 0.5,-1e3 ]", parameters='{"a": 1}', outputs='[{"name": "y"}]')
    request = repeat.read(again)
    assert request is not None
    assert same(request, decode(again)[0])
    assert repeat.form == decode(again)[1]
    assert request.inputs["x"].array.tolist() == [0.5, -1000.0]
    assert request.fit == (SIGNATURE, ("y",))


def test_each_has_its_own_time() -> None:
    """A request that came again was made when it came."""
    repeat = learned(text_of("[1, 2]"))
    assert repeat is not None
    made_s = [repeat.request.made_s]
    for _ in range(3):
        request = repeat.read(text_of("[3, 4]"))
        assert request is not None
        made_s.append(request.made_s)
    assert made_s == sorted(set(made_s))


def test_for_which_model_it_holds() -> None:
    """What is known holds for the loaded model that it was held against, and for no equal one."""
    repeat = learned(text_of("[1, 2]"))
    assert repeat is not None
    assert repeat.holds_for(SIGNATURE)
    assert not repeat.holds_for(Signature("fake", {}, {}))
    request, form = decode(text_of("[1, 2]"))
    never_held = repeat_of(text_of("[1, 2]"), request, form)
    assert never_held is None or not never_held.holds_for(SIGNATURE)


@pytest.mark.parametrize(
    "body",
    [
        text_of("[1, 2]", id='"a"'),
        text_of("[1, 2]", id="7"),
        text_of('["a", "b"]', "BYTES"),
        text_of("[true, false]", "BOOL"),
        text_of("[[1], [2]]"),
        text_of("[1, NaN]"),
        text_of('[1, "NaN"]'),
        text_of("[1, null]"),
        text_of("1", shape="[]"),
        text_of("[1, 2]", more='{"data": [1, 2]}'),
        text_of("[1, 2]", more='"\\"data\\": [3"'),
        text_of("[1, 2]").replace(b'"data"', b'"d\\u0061ta"'),
        text_of("[1, 2]").replace(b'"name": "x"', b'"name": "\\u0078"'),
        b'{"inputs": [%b, %b]}' % tuple(
            b'{"name": "%b", "shape": [1], "datatype": "FP32", "data": [1]}' % name
            for name in (b"x", b"z")
        ),
        text_of(json.dumps([1.5] * 20_000), shape="[20000]"),
    ],
)  # fmt: skip
def test_what_is_not_kept(body: bytes) -> None:
    """What comes but once, or could be read in two ways, is not kept."""
    assert learned(body) is None


@pytest.mark.parametrize("where", ["entry", "request"])
def test_other_data(where: str) -> None:
    """Something called data that is not the tensor's is never taken for it."""
    more = '"more": {"data": [0, 0]}'
    parameters = '"parameters": {"shared_memory_region": "r", "shared_memory_byte_size": 8}'
    entry = f'"name": "x", "datatype": "FP32", "shape": [2], {parameters}'
    if where == "entry":
        body = f'{{"inputs": [{{{entry}, {more}}}]}}'.encode()
    else:
        body = f'{{"inputs": [{{{entry}}}], {more}}}'.encode()
    repeat = learned(body)
    again = body.replace(b"[0, 0]", b"[5, 5]")
    request = repeat.read(again) if repeat is not None else None
    assert request is None or same(request, decode(again)[0])


@pytest.mark.parametrize(
    "elements",
    [
        "", "[]", "[1]", "[1, 2, 3]", "[1, 2", "1, 2]", "[1, 2]]", "[[1, 2]]", "[[1], 2]", "[1 2]",
        "[1, NaN]", "[null, 1]", '["NaN", 1]', "[1, true]", "[1, {}]", '[1, "["]', "{}", "5",
        "null", '"[1, 2]"', "[1, 2] ", " [1, 2]", "[1, 2],", '[1, 2], "shape": [1]',
        '[1, 2]}, {"data": [3]', "[1, 2]}]}", "[01, 2]", "[1., 2]", "[+1, 2]", "[1, 2]\0",
        "[1, 2]\n", "[1, 2] // a", "[1e400, 2]", "[1e39, 2]", "[9223372036854775808, 1]",
        "[1.5, 2]", "[1.0, 2]", "[-0.0, 0]", "[300, -300]",
    ],
)  # fmt: skip
@pytest.mark.parametrize("datatype", ["FP32", "FP64", "FP16", "INT64", "UINT8", "UINT64"])
def test_any_elements(datatype: str, elements: str) -> None:
    """Whatever stands where the elements stood is read as in the whole body, or not at all."""
    repeat = learned(text_of("[1, 2]", datatype))
    assert repeat is not None
    body = text_of(elements, datatype)
    request = repeat.read(body)
    if request is not None:
        assert same(request, decode(body)[0])


@pytest.mark.parametrize("cut", range(1, 75))
def test_bodies_cut_short(cut: int) -> None:
    """A body that lacks some of its end or its middle is not taken for the known one."""
    body = text_of("[1, 2]")
    repeat = learned(body)
    assert repeat is not None
    for shorter in (body[:-cut], body[cut:], body[:20] + body[20 + cut :]):
        assert repeat.read(shorter) is None


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """A request of one tensor, as some client writes it."""
    datatype = draw(st.sampled_from(NUMERIC))
    array = draw(
        hnp.arrays(DATATYPES[datatype].dtype, hnp.array_shapes(min_dims=0, min_side=0, max_side=3))
    )
    entry = {"name": "x", "datatype": datatype, "shape": list(array.shape)}
    entry["data"] = array.reshape(-1).tolist()
    items = draw(st.permutations(list(entry.items())))
    message: dict[str, Any] = {"inputs": [dict(items)]}
    optional: dict[str, Any] = {
        "id": draw(st.sampled_from(["", "a", None])),
        "parameters": {"binary_data_output": draw(st.booleans()), "data": "data"},
        "outputs": [{"name": "y", "parameters": {"classification": 1}}],
        "more": draw(st.sampled_from([[1, [2]], {"data": [1]}, "\\", '"data": [', "]"])),
    }
    for key in draw(st.lists(st.sampled_from(sorted(optional)), unique=True)):
        message[key] = optional[key]
    message = dict(draw(st.permutations(list(message.items()))))
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", "\t:\r\n ")]))
    return json.dumps(message, separators=separators).encode()


@deterministic
@given(bodies(), st.data())
def test_any_body(body: bytes, data: st.DataObject) -> None:
    """A body that is the known one with any change is read as all of it would be, or not at all."""
    repeat = learned(body)
    if repeat is None:
        return
    start = data.draw(st.integers(0, len(body)))
    stop = data.draw(st.integers(start, min(start + 6, len(body))))
    text = st.text(st.sampled_from('0123456789.-e,[]{}" \\:natrue'), max_size=6).map(str.encode)
    changed = body[:start] + data.draw(text) + body[stop:]
    request = repeat.read(changed)
    if request is not None:
        whole, form = decode(changed)
        assert same(request, whole)
        assert repeat.form == form


# ── responses ───────────────────────────────────────────────────────────────


def written(repeat: Repeat, *outputs: tuple[str, Tensor]) -> bool:
    """Whether *repeat* writes the response; then it must be as the codec writes it."""
    response = InferResponse(MODEL, dict(outputs))
    text = repeat.write(response)
    if text is None:
        return False
    encoded = v2.encode_response(response, repeat.form)
    assert text == encoded.head
    assert encoded.blobs == ()
    return True


@pytest.mark.parametrize("datatype", ["INT32", "INT64", "UINT8", "FP32", "FP64", "BOOL"])
def test_responses(datatype: str) -> None:
    """A response of one output is written as the codec writes it, whatever its shape."""
    repeat = learned(text_of("[1, 2]"))
    assert repeat is not None
    for shape in ((2, 3), (2, 3), (6,), (), (0,), (1, 0, 2), (2, 3)):
        array = np.ones(shape, DATATYPES[datatype].dtype)
        assert written(repeat, ("y", Tensor(datatype, array)))


def test_values_of_responses() -> None:
    """Other values of a known shape are written as the codec writes them, NaN not at all."""
    repeat = learned(text_of("[1, 2]"))
    assert repeat is not None
    for values in ([0.1, 1e30], [-0.0, 3], [1e-45, 0.30000001]):
        assert written(repeat, ("y", Tensor.of(values, "FP32")))
    for values in ([np.nan, 1], [np.inf, 1], [1, -np.inf]):
        assert not written(repeat, ("y", Tensor.of(np.float32(values))))


@pytest.mark.parametrize("array", [np.arange(6.0)[::-2], np.arange(6.0).reshape(2, 3).T])
def test_strided_responses(array: Any) -> None:
    """An output that is a view of another array is written in its own order."""
    repeat = learned(text_of("[1, 2]"))
    assert repeat is not None
    for _ in range(2):
        written(repeat, ("y", Tensor("FP64", array)))


def test_what_is_left_to_the_codec() -> None:
    """Several outputs, and those that are not plain numbers, are left to the codec."""
    repeat = learned(text_of("[1, 2]"))
    assert repeat is not None
    one = Tensor.of([1.5], "FP32")
    assert not written(repeat)
    assert not written(repeat, ("y", one), ("z", one))
    assert not written(repeat, ("y", Tensor.of(["a"])))
    assert not written(repeat, ("y", Tensor("BF16", np.zeros(1, np.uint16))))


@pytest.mark.parametrize(
    "rest",
    [
        {"parameters": '{"binary_data_output": true}'},
        {"outputs": '[{"name": "y", "parameters": {"binary_data": true}}]'},
        {"outputs": '[{"name": "y", "parameters": {"shared_memory_region": "r", '
                    '"shared_memory_byte_size": 8}}]'},
    ],
)  # fmt: skip
def test_outputs_that_go_elsewhere(rest: dict[str, str]) -> None:
    """Binary outputs, and those for shared memory, are left to the codec."""
    repeat = learned(text_of("[1, 2]", **rest))
    response = InferResponse(MODEL, {"y": Tensor.of([1.5], "FP32")})
    assert repeat is None or repeat.write(response) is None


def test_names_of_outputs() -> None:
    """An output may be called anything, also what the JSON around it is made of."""
    for name in ('"data":', "data", "]}]", "null", "\\", "ä\0"):
        repeat = learned(text_of("[1, 2]"))
        assert repeat is not None
        for value in (1.5, 2.5):
            assert written(repeat, (name, Tensor.of([value], "FP32"))) or name == "null"


@deterministic
@given(
    st.lists(
        hnp.arrays(np.float32, hnp.array_shapes(min_dims=0, min_side=0, max_side=3)), max_size=4
    )
)
def test_any_responses(arrays: list[Any]) -> None:
    """Responses of any shapes and values in any order are written as the codec writes them."""
    repeat = learned(text_of("[1, 2]"))
    assert repeat is not None
    for array in arrays:
        assert written(repeat, ("y", Tensor("FP32", array))) == bool(np.isfinite(array).all())


def test_what_cannot_be_known_is_still_refused() -> None:
    """A body that all of its reading refuses is not read in part."""
    repeat = learned(text_of("[1, 2]", "UINT8"))
    assert repeat is not None
    for elements in ("[1, 256]", "[-1, 0]", "[1]", "[1.5, 2]"):
        body = text_of(elements, "UINT8")
        assert repeat.read(body) is None
        with pytest.raises(InvalidRequest):
            decode(body)
