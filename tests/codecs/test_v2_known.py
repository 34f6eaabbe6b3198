"""Requests whose JSON is known: read in part, they say what all of their reading would say."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from workbench.codecs import v2, v2_known
from workbench.codecs.v2 import ReplyForm, RequestRules
from workbench.codecs.v2_known import KnownText, KnownTexts, known_text
from workbench.errors import InvalidRequest
from workbench.inference import Fit, InferRequest, InferResponse
from workbench.model import ModelId, Signature
from workbench.tensor import DATATYPES, Tensor

pytestmark = pytest.mark.usefixtures("parser")

deterministic = settings(derandomize=True, deadline=None, max_examples=100)

MODEL = ModelId("m", 1)
SIGNATURE = Signature("fake", {}, {})

MEMORY = np.zeros(16, np.float32).tobytes()
RULES = RequestRules(read_region=lambda name, offset, nbytes: memoryview(MEMORY)[:nbytes])


def decode(body: bytes, header_nbytes: int | None = None) -> tuple[InferRequest, ReplyForm]:
    return v2.decode_request("m", None, body, header_nbytes, RULES)


def kept(body: bytes, header_nbytes: int | None = None) -> KnownText | None:
    """What is kept of *body*, once it was read as a whole."""
    end = len(body) if header_nbytes is None else header_nbytes
    return known_text(body, end, *decode(body, header_nbytes))


def learned(body: bytes, header_nbytes: int | None = None) -> KnownText:
    """The same, of which something is kept."""
    known = kept(body, header_nbytes)
    assert known is not None
    return known


def in_part(known: KnownText, body: bytes, end: int) -> InferRequest | None:
    """The same, whatever all of the reading gives."""
    values = known.cut(body, bytes(body[:end]), end)
    return None if values is None else known.read("m", None, values)


def read(known: KnownText, body: bytes, header_nbytes: int | None = None) -> InferRequest | None:
    """The request in *body*, if it is read in part; then it is what all of the reading gives."""
    end = len(body) if header_nbytes is None else header_nbytes
    request = in_part(known, body, end)
    if request is not None:
        whole, form = decode(body, header_nbytes)
        assert same(request, whole)
        assert known.form == form
    return request


def text_of(data: str, datatype: str = "FP32", shape: str = "[2]", **rest: str) -> bytes:
    """A body of JSON pieces."""
    after = "".join(f', "{key}": {value}' for key, value in rest.items())
    entry = f'{{"name": "x", "datatype": "{datatype}", "shape": {shape}, "data": {data}}}'
    return f'{{"inputs": [{entry}]{after}}}'.encode()


def same(one: InferRequest, other: InferRequest) -> bool:
    """Whether two requests are the same to the bit."""
    said, other_said = (
        (
            (r.model, r.version, r.outputs, r.id, dict(r.parameters), dict(r.classes)),
            [
                (name, t.datatype, t.array.dtype, t.shape, t.array.tobytes())
                for name, t in r.inputs.items()
            ],
        )
        for r in (one, other)
    )
    return said == other_said


def pair(*values: float, id_: str = "a", size: int = 8) -> tuple[bytes, int]:
    """A binary request of two inputs, as tritonclient writes it, and the length of its JSON."""
    parameters = {"binary_data_size": size}
    inputs = [
        {"name": name, "shape": [2], "datatype": "FP32", "parameters": parameters} for name in "xz"
    ]
    message = {"id": id_, "inputs": inputs, "outputs": [{"name": "y"}]}
    text = json.dumps(message, separators=(",", ":")).encode()
    return text + np.float32(values).tobytes(), len(text)


# ── requests ────────────────────────────────────────────────────────────────


def test_the_same_again() -> None:
    """A body that differs from a known one in its elements only is read by its elements."""
    known = learned(text_of("[1, 2]", parameters='{"a": 1}', outputs='[{"name": "y"}]'))
    request = read(known, text_of("[ 0.5,-1e3 ]", parameters='{"a": 1}', outputs='[{"name": "y"}]'))
    assert request is not None
    assert request.inputs["x"].array.tolist() == [0.5, -1000.0]


@pytest.mark.parametrize("body", [b'{"id": "%b", "inputs": [%b]}', b'{"inputs":[%b],"id":"%b"}'])
def test_other_ids(body: bytes) -> None:
    """An id of its own is read with the elements, wherever it stands."""
    entry = b'{"name": "x", "datatype": "FP32", "shape": [1], "data": [%b]}'

    def of(id_: bytes, data: bytes) -> bytes:
        inner = entry % data
        return body % ((id_, inner) if body.startswith(b'{"id"') else (inner, id_))

    known = learned(of(b"a", b"1"))
    for id_ in (b"b", b"", b"f0a7-1d66 [{,:}]", b"'/"):
        request = read(known, of(id_, b"2"))
        assert request is not None
        assert request.id == id_.decode()
    for id_ in ("ä".encode(), b"\\n", b"\\u0041", b'a","more":"b', b"\x7f"):
        assert read(known, of(id_, b"2")) is None


@pytest.mark.parametrize(
    ("rest", "other"),
    [
        ({"id": "7"}, {"id": '"c"'}), ({"id": '""'}, {"id": '"c"'}),
        ({"id": "null", "more": '{"id": "b"}'}, {"id": "null", "more": '{"id": "c"}'}),
        ({"more": '{"id": "a"}', "id": '"a"'}, {"more": '{"id": "b"}', "id": '"a"'}),
    ],
)  # fmt: skip
def test_ids_that_are_part_of_the_text(rest: dict[str, str], other: dict[str, str]) -> None:
    """Any id but a request's own text belongs to what comes again only as it is."""
    known = learned(text_of("[1, 2]", **rest))
    assert read(known, text_of("[3, 4]", **rest)) is not None
    assert read(known, text_of("[3, 4]", **other)) is None


def test_two_inputs() -> None:
    """Each of several inputs is read by its own elements, nested or flat."""
    text = (
        '{"inputs": [{"data": %s, "name": "x", "shape": [2, 1], "datatype": "INT8"},'
        ' {"data": %s, "name": "z", "shape": [1], "datatype": "FP64"}]}'
    )
    known = learned((text % ("[[1], [2]]", "[0.5]")).encode())
    for data in (("[[3], [4]]", "[1e3]"), ("[5, 6]", "[7]"), ("[[5, 6]]", "[7]")):
        assert read(known, (text % data).encode()) is not None
    for data in (("[[[3]], [4]]", "[1]"), ("[1]", "[2, 3]"), ("[1, 2]", "3")):
        assert read(known, (text % data).encode()) is None


def test_scalars() -> None:
    """A tensor without dimensions is an array."""
    known = learned(text_of("[1]", shape="[]"))
    body = text_of("[2]", shape="[]")
    values = known.cut(body, body, len(body))
    assert values is not None
    request = known.read("m", None, values)
    assert request is not None
    assert type(request.inputs["x"].array) is np.ndarray


def test_nesting() -> None:
    """Elements that might be nested deeper than is allowed are left to what counts it."""
    assert kept(text_of(f"[{','.join(['[1]'] * 120)}]", shape="[120]")) is None
    known = learned(text_of("[[1], [2]]"))
    assert read(known, text_of("[" * 200 + "1, 2" + "]" * 200)) is None


@pytest.mark.parametrize("kind", [bytes, memoryview])
def test_binary_tensors(kind: type) -> None:
    """Binary tensors behind a known text are views of the body, with ids of any length."""
    known = learned(*pair(1, 2, 3, 4))
    for id_ in ("b", "longer", ""):
        body, end = pair(5, 6, 7, 8, id_=id_)
        body = kind(body)
        request = read(known, body, end)
        assert request is not None
        assert request.inputs["z"].array.tolist() == [7, 8]
        assert np.shares_memory(request.inputs["x"].array, np.frombuffer(body, np.uint8))


@pytest.mark.parametrize("change", [-8, -4, -1, 1, 4, 8])
def test_binary_tensors_of_another_size(change: int) -> None:
    """A tensor that is cut short, or followed by more, is left to what says so."""
    body, end = pair(1, 2, 3, 4)
    known = learned(body, end)
    other = body[:change] if change < 0 else body + bytes(change)
    assert read(known, other, end) is None
    assert read(known, body, end + change) is None


def test_a_text_that_is_not_utf_8() -> None:
    """Of a text in another encoding it is not known where its tensors were."""
    text = text_of("[1, 2]").decode().encode("utf-16")
    assert kept(text) is None
    assert kept(text, len(text)) is None


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32-le"])
def test_elements_in_another_encoding(encoding: str) -> None:
    """Within a text, elements have no encoding and no byte order mark of their own."""
    whole = text_of("[1, 2]")
    known = learned(whole)
    body = whole.replace(b"[1, 2]", "[3, 4]".encode(encoding))
    assert in_part(known, body, len(body)) is None
    with pytest.raises(InvalidRequest, match="the request is not "):
        decode(body)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-32"])
def test_a_request_in_another_encoding(encoding: str) -> None:
    """A whole request may have it: it begins with a bracket or with a byte order mark."""
    request, _ = decode(text_of("[1, 2]").decode().encode(encoding))
    assert request.inputs["x"].array.tolist() == [1.0, 2.0]


def test_each_has_its_own_time() -> None:
    """A request that came again was made when it came."""
    known = learned(text_of("[1, 2]"))
    requests = [read(known, text_of("[3, 4]")) for _ in range(3)]
    made_s = [request.made_s for request in requests if request is not None]
    assert len(made_s) == 3
    assert made_s == sorted(set(made_s))


def test_what_it_was_held_against() -> None:
    """A known request brings along the signature that the one before it was held against."""
    known = learned(text_of("[1, 2]"))
    request = read(known, text_of("[3, 4]"))
    assert request is not None
    assert request.fit is None
    known.fit = fit = Fit(SIGNATURE, ("y",))
    request = read(known, text_of("[3, 4]"))
    assert request is not None
    assert request.fit is fit


@pytest.mark.parametrize(
    "body",
    [
        text_of('["a", "b"]', "BYTES"),
        text_of("[true, false]", "BOOL"),
        text_of("1", shape="[]"),
        text_of("[]", shape="[0]"),
        text_of("[1, 2]", more='{"data": [1, 2]}'),
        text_of("[1, 2]", more='"data"'),
        text_of("[1, 2]", more='"\\"data\\": [3"'),
        text_of("[1, 2]").replace(b'"data"', b'"d\\u0061ta"'),
        text_of("[1, 2]").replace(b'"name": "x"', b'"name": "\\u0078"'),
    ],
)
def test_what_is_not_kept(body: bytes) -> None:
    """What could be read in two ways, or has other elements than numbers, is not kept."""
    assert kept(body) is None


IsKnown = Callable[[bytes | memoryview], bool]


@pytest.fixture
def is_known(monkeypatch: pytest.MonkeyPatch) -> IsKnown:
    """Tells whether a body is read without reading all of it, by texts that are new for a test."""
    texts, read_whole = KnownTexts("m", None), []

    def decode_request(*request: Any) -> Any:
        read_whole.append(request)
        return v2.decode_request(*request)

    def is_known(body: bytes | memoryview) -> bool:
        read_whole.clear()
        texts.decode(body, None, RULES)
        return not read_whole

    monkeypatch.setattr(v2_known, "decode_request", decode_request)
    return is_known


def test_learning(is_known: IsKnown) -> None:
    """The first text is remembered, and of those that are not known one in sixteen."""
    assert not is_known(text_of("[1, 2]"))
    assert all(is_known(text_of(f"[{n}, 2]")) for n in range(40))
    others = [text_of("[1, 2]", id=str(n)) for n in range(40)]
    assert not any(map(is_known, others))
    assert sum(map(is_known, others)) == 2
    assert is_known(text_of("[3, 4]"))


def test_no_memory_of_many(is_known: IsKnown) -> None:
    """Of many texts only the last eight that were remembered stay."""
    texts = [text_of("[1, 2]", id=str(n)) for n in range(16 * 20 + 1)]
    assert not any(map(is_known, texts))
    assert all(map(is_known, texts[: -16 * 8 : -16]))
    assert not is_known(texts[0])


def test_bodies_that_are_too_large(is_known: IsKnown) -> None:
    """A large body is read as a whole, and so is one of long pieces."""
    body = text_of(json.dumps([1.5] * 20_000), shape="[20000]")
    assert not any(map(is_known, [body] * 3))
    assert kept(text_of("[1, 2]", more=f'"{"a" * 5000}"')) is None


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
    known = kept(body)
    again = body.replace(b"[0, 0]", b"[5, 5]")
    if known is not None:
        read(known, again)


@pytest.mark.parametrize(
    "elements",
    [
        "", "[]", "[1]", "[1, 2, 3]", "[1, 2", "1, 2]", "[1, 2]]", "[[1, 2]]", "[[1], 2]", "[1 2]",
        "[1, NaN]", "[null, 1]", '["NaN", 1]', "[1, true]", "[1, {}]", '[1, "["]', "{}", "5",
        "null", '"[1, 2]"', "[1, 2] ", " [1, 2]", "[1, 2],", '[1, 2], "shape": [1]',
        '[1, 2]}, {"data": [3]', "[1, 2]}]}", "[01, 2]", "[1., 2]", "[+1, 2]", "[1, 2]\0",
        "[1, 2]\n", "[1, 2] // a", "[1e400, 2]", "[1e39, 2]", "[9223372036854775808, 1]",
        "[1.5, 2]", "[1.0, 2]", "[-0.0, 0]", "[300, -300]", "[123456789012345678901, 2]",
        "[-9223372036854775809, -0]", "[1.7976931348623159e308, 5e-324]", "[4294967240, 200]",
        "[4294967040, 200]",
    ],
)  # fmt: skip
@pytest.mark.parametrize("datatype", ["FP16", "INT64", "UINT8"])
def test_any_elements(datatype: str, elements: str) -> None:
    """Whatever stands where the elements stood is read as in the whole body, or not at all."""
    known = learned(text_of("[1, 2]", datatype))
    read(known, text_of(elements, datatype))


def test_bodies_cut_short() -> None:
    """A body that lacks some of its end or its middle is not taken for the known one."""
    body = text_of("[1, 2]")
    known = learned(body)
    for cut in range(1, 75):
        for shorter in (body[:-cut], body[cut:], body[:20] + body[20 + cut :]):
            assert read(known, shorter) is None


# ── responses ───────────────────────────────────────────────────────────────


def check_written(known: KnownText, *outputs: tuple[str, Tensor], id_: str = "") -> None:
    """The response is written twice as the codec writes it."""
    response = InferResponse(MODEL, dict(outputs), id_)
    encoded = v2.encode_response(response, known.form)
    for _ in range(2):
        again = known.reply.encode(response)
        assert again[0] == encoded[0]
        assert list(map(bytes, again[1:])) == list(map(bytes, encoded[1:]))


BINARY = {"parameters": '{"binary_data_output": true}'}
in_each_form = pytest.mark.parametrize("rest", [{}, BINARY], ids=["json", "binary"])


@in_each_form
@pytest.mark.parametrize("datatype", ["INT32", "INT64", "UINT8", "FP32", "FP64", "BOOL"])
def test_responses(datatype: str, rest: dict[str, str]) -> None:
    """A response of one output is written as the codec writes it, whatever its shape."""
    known = learned(text_of("[1, 2]", **rest))
    for shape in ((2, 3), (2, 3), (6,), (), (0,), (1, 0, 2), (2, 3)):
        array = np.ones(shape, DATATYPES[datatype].dtype)
        check_written(known, ("y", Tensor(datatype, array)))


@in_each_form
def test_ids_of_responses(rest: dict[str, str]) -> None:
    """An id stands where the codec has it, whatever is in it."""
    known = learned(text_of("[1, 2]", **rest))
    for id_ in ("a", "", 'ä"\\\0', "b"):
        check_written(known, ("y", Tensor.of([1.5], "FP32")), id_=id_)


@pytest.mark.parametrize("array", [np.arange(6.0)[::-2], np.arange(6.0).reshape(2, 3).T])
def test_strided_responses(array: Any) -> None:
    """An output that is a view of another array is written in its own order."""
    known = learned(text_of("[1, 2]"))
    check_written(known, ("y", Tensor("FP64", array)))


OUTPUTS = {
    "one": Tensor.of([1.5], "FP32"),
    "two": Tensor.of([[1, 2], [3, 4]], "INT32"),
    "text": Tensor.of(["a", "bc"]),
    "half": Tensor.of([1.5], "FP16"),
    "bits": Tensor("BF16", np.ones(1, np.uint16)),
    "flags": Tensor.of([True]),
}


@pytest.mark.parametrize(
    "names", [(), ("one",), ("one", "two"), ("one", "text"), ("half", "one"), ("bits",), ("flags",)]
)
@pytest.mark.parametrize(
    "rest",
    [
        {},
        BINARY,
        {"outputs": '[{"name": "one", "parameters": {"binary_data": true}}, {"name": "two"}]'},
    ],
    ids=["json", "binary", "both"],
)
def test_forms_of_responses(names: tuple[str, ...], rest: dict[str, str]) -> None:
    """Outputs of any kind and number, as JSON and as binary data, are as the codec writes them."""
    known = learned(text_of("[1, 2]", **rest))
    check_written(known, *((name, OUTPUTS[name]) for name in names), id_="a")


def test_responses_of_another_model() -> None:
    """What was written of one version, or of other outputs, is not written of another."""
    known = learned(text_of("[1, 2]", parameters='{"binary_data_output": true}'))
    for model in (ModelId("m", 1), ModelId("m", 2), ModelId("m", 1, 1)):
        one, two = OUTPUTS["one"], OUTPUTS["two"]
        for outputs in ({"y": one}, {"z": one}, {"z": two}, {"z": two, "y": one}, {"z": two}):
            response = InferResponse(model, outputs)
            assert known.reply.encode(response)[0] == v2.encode_response(response, known.form)[0]


def test_parameters_of_responses() -> None:
    """A response with parameters of its own is written by the codec."""
    known = learned(text_of("[1, 2]"))
    for parameters in (None, {"a": 1}, None):
        response = InferResponse(MODEL, {"y": OUTPUTS["one"]}, "", parameters)
        assert known.reply.encode(response)[0] == v2.encode_response(response, known.form)[0]


def test_shared_memory() -> None:
    """What goes to shared memory is left to the codec."""
    region = '{"shared_memory_region": "r", "shared_memory_byte_size": 8}'
    assert kept(text_of("[1, 2]", outputs=f'[{{"name": "y", "parameters": {region}}}]')) is None


@in_each_form
def test_names_of_outputs(rest: dict[str, str]) -> None:
    """An output may be called anything, also what the JSON around it is made of."""
    for name in ('"data":', '"data":[1]', "data", "]}]", "null", "\\", "ä\0"):
        known = learned(text_of("[1, 2]", **rest))
        for value in (1.5, 2.5):
            check_written(known, (name, Tensor.of([value], "FP32")))


@deterministic
@given(
    st.lists(
        hnp.arrays(np.float32, hnp.array_shapes(min_dims=0, min_side=0, max_side=3)), max_size=4
    ),
    st.sampled_from([{}, BINARY]),
)
def test_any_responses(arrays: list[Any], rest: dict[str, str]) -> None:
    """Responses of any shapes and values in any order are written as the codec writes them."""
    known = learned(text_of("[1, 2]", **rest))
    for array in arrays:
        check_written(known, ("y", Tensor("FP32", array)))
