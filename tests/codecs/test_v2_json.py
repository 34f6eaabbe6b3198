"""Tensors as JSON: every datatype exactly, every way to write a number, and nothing guessed."""

import base64
import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from workbench.codecs import v2_json
from workbench.errors import InvalidRequest
from workbench.tensor import DATATYPES, Array, Tensor

pytestmark = pytest.mark.usefixtures("parser")

deterministic = settings(derandomize=True, deadline=None, max_examples=60)
INTEGERS = ["UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64"]
FLOATS = ["FP16", "FP32", "FP64"]
NUMERIC = ["BOOL", *INTEGERS, *FLOATS]
EACH_WAY = ["BOOL", "INT8", "UINT64", "FP16", "FP64", "BYTES"]  # that elements are read
SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3)


def decode(
    datatype: str, text: str | bytes, shape: tuple[int, ...] | None = None, encoding: str = ""
) -> Array:
    """The array of the JSON *text*, through the parser as requests go."""
    body = b'{"data":' + (text.encode() if isinstance(text, str) else text) + b"}"
    data = v2_json.parse(body)
    wanted = (len(json.loads(text)),) if shape is None else shape
    tensor = v2_json.decode("x", datatype, wanted, data.get("data"), encoding)
    assert tensor.datatype == datatype
    assert tensor.array.dtype == DATATYPES[datatype].dtype
    assert tensor.shape == wanted
    return tensor.array


def refusal(datatype: str, text: str, shape: tuple[int, ...] = (1,), encoding: str = "") -> str:
    with pytest.raises(InvalidRequest) as caught:
        decode(datatype, text, shape, encoding)
    assert str(caught.value).startswith("input 'x'")
    assert len(str(caught.value)) < 200
    return str(caught.value).removeprefix("input 'x'").removeprefix(": ")


def encoded(tensor: Tensor, encoding: str = "") -> list[Any]:
    """The elements of *tensor* as a client reads them."""
    read: list[Any] = json.loads(v2_json.write(v2_json.encode("y", tensor, encoding)))
    return read


def named(tensor: Tensor) -> bytes:
    """The elements of *tensor* as they are written once NaN and the infinities have names."""
    output: dict[str, Any] = {"data": v2_json.encode("y", tensor)}
    v2_json.name_non_numbers([output])
    return v2_json.write(output["data"])


def bracketed(text: str, depth: int) -> str:
    return "[" * depth + text + "]" * depth


# ── round trips ─────────────────────────────────────────────────────────────


def arrays(datatype: str) -> st.SearchStrategy[Any]:
    return hnp.arrays(DATATYPES[datatype].dtype, SHAPES)


@deterministic
@given(st.sampled_from(NUMERIC).flatmap(lambda name: st.tuples(st.just(name), arrays(name))))
def test_numbers_round_trip(drawn: tuple[str, Any]) -> None:
    """What is written of any array, NaN and infinities included, is read as the same array."""
    datatype, array = drawn
    texts = [named(Tensor(datatype, array))]
    if np.isfinite(array).all():
        texts.append(v2_json.write(v2_json.encode("y", Tensor(datatype, array))))
    for text in texts:
        np.testing.assert_array_equal(decode(datatype, text, array.shape), array)


@deterministic
@given(st.sampled_from(NUMERIC).flatmap(lambda name: st.tuples(st.just(name), arrays(name))))
def test_nested_is_flat(drawn: tuple[str, Any]) -> None:
    """Data nested by its shape is read as the flat data are."""
    datatype, array = drawn
    nested = json.dumps(array.tolist())
    np.testing.assert_array_equal(decode(datatype, nested, array.shape), array)


@pytest.mark.parametrize(
    ("elements", "encoding"),
    [(st.text(st.characters(codec="utf-8")).map(str.encode), ""), (st.binary(), "base64")],
)
@deterministic
@given(data=st.data())
def test_text_round_trips(elements: Any, encoding: str, data: st.DataObject) -> None:
    """Text of any script, NULs included, and any bytes as base64, are read as they were written."""
    array = data.draw(hnp.arrays(object, SHAPES, elements=elements))
    text = v2_json.write(v2_json.encode("y", Tensor("BYTES", array), encoding))
    assert decode("BYTES", text, array.shape, encoding).tolist() == array.tolist()


@pytest.mark.parametrize("datatype", EACH_WAY)
@pytest.mark.parametrize(
    ("shape", "text"),
    [((0,), "[]"), ((2, 0), "[]"), ((2, 0), "[[],[]]"), ((0, 3), "[]"), ((0,), "[[[]]]")],
)
def test_nothing(datatype: str, shape: tuple[int, ...], text: str) -> None:
    """Shapes without elements are kept, however the nothing is nested."""
    assert decode(datatype, text, shape).size == 0
    assert encoded(Tensor(datatype, np.empty(shape, DATATYPES[datatype].dtype))) == []


@pytest.mark.parametrize("datatype", NUMERIC)
def test_scalars(datatype: str) -> None:
    """A scalar is one element, bare or in brackets, and is written as a list of one."""
    for text in ("1", "[1]", "[[[1]]]"):
        array = decode(datatype, text, ())
        assert (array.shape, array.item()) == ((), 1)
        assert encoded(Tensor(datatype, array)) == [1]


@pytest.mark.parametrize("datatype", NUMERIC)
def test_any_nesting(datatype: str) -> None:
    """Brackets anywhere are only brackets: the count of the elements is what matters."""
    for text in ("[1,0,1,0]", "[[1,0],[1,0]]", "[1,[0,[1]],[[[0]]]]", "[[],1,[0,1],[],0]"):
        for shape in ((4,), (2, 2), (1, 4, 1)):
            assert decode(datatype, text, shape).reshape(-1).tolist() == [1, 0, 1, 0]


@pytest.mark.parametrize("array", [np.arange(6).reshape(2, 3).T, np.arange(6)[::-2], np.array(5)])
def test_strided_arrays_are_written_in_order(array: Array) -> None:
    """An output that is a view of another array is written in its own row-major order."""
    assert encoded(Tensor("INT64", array)) == array.reshape(-1).tolist()


# ── integers ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("datatype", INTEGERS)
def test_extremes(datatype: str) -> None:
    """The smallest and the largest value of each integer type are exact, in and out."""
    limits = np.iinfo(DATATYPES[datatype].dtype)
    values = [limits.min, limits.max, limits.max - 1]
    assert decode(datatype, json.dumps(values)).tolist() == values
    assert encoded(Tensor(datatype, np.array(values, limits.dtype))) == values


@pytest.mark.parametrize("datatype", INTEGERS)
def test_beyond_the_extremes(datatype: str) -> None:
    """A value beyond its type is refused by name, alone or among others, never wrapped."""
    limits = np.iinfo(DATATYPES[datatype].dtype)
    for value in (limits.min - 1, limits.max + 1, limits.max * 2 + 1, -(10**25), 10**25):
        message = f"{value} is out of range for {datatype}"
        assert refusal(datatype, f"[{value}]") == message
        assert refusal(datatype, f"[1, 2, {value}]", (3,)) == message
        assert refusal(datatype, f"[[1], [{value}]]", (2,)) == message


@pytest.mark.parametrize("more", ["", ", 1.0"], ids=["as integers", "one by one"])
@pytest.mark.parametrize(
    ("datatype", "value", "extended"),
    [
        ("UINT8", 200, 4294967240),
        ("UINT8", 128, 2**32 - 128),
        ("UINT8", 255, 2**32 - 1),
        ("UINT16", 60000, 4294961760),
        ("UINT16", 2**15, 2**32 - 2**15),
        ("UINT16", 2**16 - 1, 2**32 - 1),
    ],
)
def test_numbers_with_a_sign(datatype: str, value: int, extended: int, more: str) -> None:
    """A small unsigned number that a client extended by a sign to 32 bits is the number."""
    text = f"[{extended}, 7, {value}{more}]"
    wanted = [value, 7, value, 1] if more else [value, 7, value]
    assert decode(datatype, text).tolist() == wanted
    assert more or short_array(datatype, text.encode()).tolist() == wanted


@pytest.mark.parametrize(
    ("datatype", "value"),
    [
        ("UINT8", 2**32 - 129),
        ("UINT8", 2**32),
        ("UINT8", 2**64 - 56),
        ("UINT8", 2**16 - 56),
        ("UINT8", -56),
        ("UINT16", 2**32 - 2**15 - 1),
        ("UINT32", 2**64 - 1),
        ("INT8", 2**32 - 56),
        ("INT16", 2**32 - 56),
    ],
)
def test_numbers_whose_upper_part_is_no_sign(datatype: str, value: int) -> None:
    """Any other number beyond its type is refused, also beside one with a sign."""
    message = f"{value} is out of range for {datatype}"
    assert refusal(datatype, f"[{value}]") == message
    assert refusal(datatype, f"[{value}, 1.0]", (2,)) == message
    both = refusal("UINT8", f"[{2**32 - 56}, {2**40}]", (2,))
    assert both == f"{2**40} is out of range for UINT8"


NO_VALUES = [
    *((datatype, text, f"{shown} is not a whole number") for datatype in ("INT8", "UINT64")
      for text, shown in (
          ("1.5", "1.5"), ("1e-3", "0.001"), ("-0.5", "-0.5"), ("Infinity", "Infinity"),
          ("true", "true"), ("null", "null"), ('"1"', '"1"'), ('"NaN"', '"NaN"'), ("NaN", "NaN"),
          (f'"{"x" * 38}"', f'"{"x" * 38}"'), (f'"{"x" * 39}"', f'"{"x" * 36}...'),
          ('{"a": 1}', "an object"))),
    *((datatype, text, f"{shown} is not a number") for datatype in ("FP16", "FP64")
      for text, shown in (
          ("true", "true"), ("false", "false"), ('"1.5"', '"1.5"'), ('"nan"', '"nan"'),
          ('"inf"', '"inf"'), ('"+Infinity"', '"+Infinity"'), ('""', '""'),
          ('{"a": 1}', "an object"), ('"' + "x" * 100_000 + '"', '"' + "x" * 36 + "..."))),
    *(("BOOL", text, f"{text} is not true or false")
      for text in ("2", "-1", "0.5", "2.0", '"true"', "null", "NaN", str(2**70))),
    *(("BYTES", text, f"{shown} is not a string") for text, shown in (
        ("1", "1"), ("true", "true"), ('{"a":1}', "an object"), ("1.5", "1.5"))),
]  # fmt: skip


@pytest.mark.parametrize(("datatype", "text", "told"), NO_VALUES)
def test_what_is_no_value(datatype: str, text: str, told: str) -> None:
    """What is no value of a datatype is named, shortened, alone and among others."""
    fine = '"a"' if datatype == "BYTES" else "1"
    assert refusal(datatype, f"[{text}]") == told
    assert refusal(datatype, f"[{fine}, [{fine}, {text}]]", (3,)) == told


@pytest.mark.parametrize("datatype", INTEGERS)
def test_whole_floats(datatype: str) -> None:
    """A whole number may be written as a float, exact, and in the range of its type."""
    assert decode(datatype, "[1.0, 2, 1e2, 0.0, -0.0, [4.0]]").tolist() == [1, 2, 100, 0, 0, 4]
    limits = np.iinfo(DATATYPES[datatype].dtype)
    assert decode(datatype, f"[{float(limits.min)!r}]").item() == limits.min
    beyond = float(limits.max) * 2
    assert refusal(datatype, f"[{beyond!r}]") == f"{int(beyond)} is out of range for {datatype}"


# ── floats ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("datatype", FLOATS)
def test_named_floats_in(datatype: str) -> None:
    """NaN and the infinities are read as literals, as strings, and NaN as null, mixed any way."""
    text = '[NaN, "NaN", null, Infinity, "Infinity", -Infinity, "-Infinity", 1, [0.5]]'
    array = decode(datatype, text)
    inf = math.inf
    np.testing.assert_array_equal(array, [math.nan] * 3 + [inf, inf, -inf, -inf, 1, 0.5])
    strict = '[null, "NaN", "Infinity", "-Infinity", 1]'
    np.testing.assert_array_equal(decode(datatype, strict), [math.nan, math.nan, inf, -inf, 1])


@pytest.mark.parametrize("datatype", ["FP16", "FP32", "FP64", "BF16"])
def test_numbers_beside_a_nan(datatype: str) -> None:
    """They are written as they are without it: as short as the datatype allows."""
    numbers = [0.1, -0.0, 1e-7, 3.0]
    alone, beside = (
        Tensor.cast(np.array(each), datatype) for each in (numbers, [*numbers, math.nan])
    )
    assert named(beside) == named(alone)[:-1] + b',"NaN"]'
    assert named(alone) == v2_json.write(v2_json.encode("y", alone))


def test_what_needs_no_names() -> None:
    """Naming what JSON lacks leaves alone what is no float, and outputs without data."""
    outputs: list[dict[str, Any]] = [
        {"name": "binary"},
        {"data": ["null", "NaN"]},
        {"data": np.array([1, 2])},
        {"data": np.array([True])},
    ]
    before = [dict(output) for output in outputs]
    v2_json.name_non_numbers(outputs)
    assert all(now.get("data") is was.get("data") for now, was in zip(outputs, before, strict=True))


@pytest.mark.parametrize("datatype", FLOATS)
def test_floats_are_rounded(datatype: str) -> None:
    """A number is read as the nearest one of its type, and beyond the largest as infinity."""
    dtype = DATATYPES[datatype].dtype
    assert decode(datatype, "[0.1]").item() == dtype.type(0.1).item()
    largest = float(np.finfo(dtype).max)
    assert decode(datatype, f"[{largest!r}, {-largest!r}]").tolist() == [largest, -largest]
    assert decode(datatype, "[1e400, -1e400]").tolist() == [math.inf, -math.inf]
    if datatype != "FP64":
        assert decode(datatype, "[1e39, -1e39]").tolist() == [math.inf, -math.inf]
        assert decode(datatype, "[1e39, null]").tolist()[0] == math.inf


def test_integers_as_floats() -> None:
    """Whole numbers are numbers: up to the largest of 64 bits, and beyond them too."""
    text = f"[{2**53 + 2}, {2**63}, {-(2**63)}, {2**64 - 1}, 0]"
    exact = [float(v) for v in (2**53 + 2, 2**63, -(2**63), 2**64 - 1, 0)]
    assert decode("FP64", text).tolist() == exact
    assert decode("FP64", f"[{10**30}]").tolist() == [1e30]
    assert "too large" in refusal("FP64", f"[{'9' * 400}]")


def test_floats_are_written_short() -> None:
    """A float is written with the digits that its own type needs, which read back as it."""
    assert v2_json.write(v2_json.encode("y", Tensor.of([0.1], "FP32"))) == b"[0.1]"
    assert v2_json.write(v2_json.encode("y", Tensor.of([0.1], "FP64"))) == b"[0.1]"
    third = np.array([1 / 3], np.float16)
    assert np.float16(encoded(Tensor("FP16", third))[0]) == third[0]


def test_bf16() -> None:
    """BF16 is written and read as numbers, rounded to the nearest, the even one of two."""
    bits = np.array([[0x3F80, 0xC000], [0x0000, 0x4049]], np.uint16)
    assert encoded(Tensor("BF16", bits)) == [1.0, -2.0, 0.0, 3.140625]
    assert decode("BF16", "[1.0, -2, 0.0, 3.140625]").tolist() == bits.ravel().tolist()
    assert decode("BF16", "[1.00390625, 1.01171875]").tolist() == [0x3F80, 0x3F82]
    named = [0x7FC0, 0x7F80, 0xFF80, 0x7FC0, 0x7F80]
    assert decode("BF16", '["NaN", "Infinity", "-Infinity", null, 1e39]').tolist() == named
    assert refusal("BF16", '["1"]') == '"1" is not a number'


# ── booleans and text ───────────────────────────────────────────────────────


def test_booleans() -> None:
    """Booleans are true and false, and 1 and 0, and are written as words."""
    array = decode("BOOL", "[true, false, 1, 0, 1.0, 0.0, [[true]]]")
    assert array.tolist() == [True, False, True, False, True, False, True]
    assert v2_json.write(v2_json.encode("y", Tensor("BOOL", array[:2]))) == b"[true,false]"


@pytest.mark.parametrize("encoding", ["", "base64"])
def test_missing_texts(encoding: str) -> None:
    """``null`` is a missing text, which is ``null`` again when it is written; so is NaN."""
    tensor = v2_json.decode("x", "BYTES", (2,), v2_json.parse(b'["YQ==", null]'), encoding)
    assert tensor.array.tolist() == [b"a" if encoding else b"YQ==", None]
    assert v2_json.encode("x", tensor, encoding) == ["YQ==", None]
    assert v2_json.encode("x", Tensor("BYTES", np.array([float("nan")], object))) == [None]


def test_escapes() -> None:
    """Escapes, NULs among them, mean what JSON says."""
    assert decode("BYTES", r'["a\u0000b", "\ud834\udd1e", "\n"]').tolist() == [
        b"a\0b", "𝄞".encode(), b"\n",
    ]  # fmt: skip


def test_half_a_surrogate_pair() -> None:
    """Half of a surrogate pair is no text that UTF-8 can say."""
    assert "surrogates not allowed" in refusal("BYTES", r'["\ud800"]')


@pytest.mark.parametrize("text", ["/w=", "a", "====", "a b=", "_w==", "ä", "AAAA\\n"])
def test_bad_base64(text: str) -> None:
    """What is not base64, to the letter, is refused."""
    assert refusal("BYTES", f'["{text}"]', encoding="base64")


def test_base64_is_for_bytes_only() -> None:
    """Base64 is an encoding of BYTES; numbers stay numbers."""
    assert decode("INT8", "[1]", (1,), "base64").tolist() == [1]
    assert encoded(Tensor.of([1], "INT8"), "base64") == [1]


@pytest.mark.parametrize("item", [b"\xff", b"a\xc3", b"\xed\xa0\x80"])
def test_bytes_that_are_no_text(item: bytes) -> None:
    """Outputs that are not UTF-8 are refused with what to ask for, and go as base64."""
    tensor = Tensor.of([b"ok", item])
    with pytest.raises(InvalidRequest, match=r"output 'y' is not UTF-8 text.*binary.*base64"):
        v2_json.encode("y", tensor)
    assert encoded(tensor, "base64")[1] == base64.b64encode(item).decode()


# ── counts and depth ────────────────────────────────────────────────────────


@pytest.mark.parametrize("datatype", EACH_WAY)
@pytest.mark.parametrize("shape", [(), (2,), (0,), (3, 2)])
def test_counts(datatype: str, shape: tuple[int, ...]) -> None:
    """Another number of elements than the shape's is refused with both numbers."""
    text = '["a","b","c"]' if datatype == "BYTES" else "[[1,0],1]"
    takes = math.prod(shape)
    assert refusal(datatype, text, shape) == (
        f" has 3 elements; its shape {list(shape)} takes {takes}"
    )


@pytest.mark.parametrize("datatype", ["FP32", "UINT8", "BOOL"])
def test_deep_data(datatype: str) -> None:
    """Data nested as deep as JSON may be are read."""
    assert decode(datatype, bracketed("1", 99), (1,)).tolist() == [1]
    assert '"x" is not' in refusal(datatype, bracketed('1, "x"', 99), (2,))


@pytest.mark.parametrize("text", ["1", "NaN"], ids=["strict", "lenient"])
def test_the_depth_that_is_allowed(text: str) -> None:
    """Arrays are read down to the limit, 100, whichever parser reads them."""
    for depth in (1, 100):
        v2_json.parse(bracketed(text, depth).encode())
    with pytest.raises(InvalidRequest, match="more than 100 deep"):
        v2_json.parse(bracketed(text, 101).encode())


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b"{} {}", "is not JSON"),
        (b"{'a': 1}", "is not JSON"),
        (b'{"a": 01}', "is not JSON"),
        (b'{"a": .5}', "is not JSON"),
        (b'{"a": nan}', "is not JSON"),
        (b'{"a": 1,}', "is not JSON"),
        (b'{"a": "\n"}', "is not JSON"),
        (b'{"a": "\\x"}', "is not JSON"),
        (b"\x00\x01\x02", "is not JSON"),
        (b'{"a": "\xff"}', "is not UTF-8"),
        (b'{"a": %s}' % (b"9" * 5000), "has a number of more than 4300 digits$"),
    ],
)
def test_what_is_no_json(body: bytes, message: str) -> None:
    """What is not JSON is refused as such."""
    with pytest.raises(InvalidRequest, match=f"^the request {message}"):
        v2_json.parse(body)


@pytest.mark.parametrize("tail", ["1", "NaN"], ids=["strict", "lenient"])
def test_both_parsers_tell_arrays_from_objects(tail: str) -> None:
    """Arrays and objects are told apart whichever of the two parsers read them."""
    message = v2_json.members(v2_json.parse(f'{{"a": [1], "o": {{"n": {tail}}}}}'.encode()))
    assert message is not None
    assert list(message) == ["a", "o"]
    assert v2_json.is_array(message["a"])
    assert v2_json.members(message["a"]) is None
    assert not v2_json.is_array(message["o"])
    inner = v2_json.members(message["o"])
    assert inner is not None
    assert list(inner) == ["n"]


@pytest.mark.parametrize("item", [b"NaN", b"x"])
def test_what_only_python_reads_is_bounded(item: bytes, parser: str) -> None:
    """What Python's slow parser would have to read is refused where it would take too long.

    Where it is the only one, it reads NaN too.
    """
    if parser == "python" and item == b"NaN":
        assert math.isnan(v2_json.parse(b"[%b%b]" % (item, b" " * 2**24))[0])
        return
    with pytest.raises(InvalidRequest, match=r"^the request is not JSON: .* as strings, or binary"):
        v2_json.parse(b"[%b%b]" % (item, b" " * 2**24))
    assert len(v2_json.parse(b'["NaN"%b]' % (b" " * 2**24))) == 1


@pytest.mark.parametrize("tail", ["1", "NaN"], ids=["strict", "lenient"])
def test_members_of_any_name(tail: str) -> None:
    """A member's name is any text, NULs and escapes included."""
    text = rf'{{"": 0, "a\u0000b": [1, 2], "\u0000": {{}}, "\"": 3, "z": {tail}}}'
    members = v2_json.members(v2_json.parse(text.encode()))
    assert members is not None
    assert list(members) == ["", "a\0b", "\0", '"', "z"]
    assert list(members["a\0b"]) == [1, 2]
    assert v2_json.members(members["\0"]) == {}


@pytest.mark.parametrize("text", ["[]", "5", '"a"', "null", "true", "NaN", "[NaN]"])
def test_what_has_no_members(text: str) -> None:
    """Only objects have members."""
    assert v2_json.members(v2_json.parse(text.encode())) is None


@pytest.mark.parametrize("tail", ["1", "NaN"], ids=["strict", "lenient"])
def test_plain_values(tail: str) -> None:
    """A parsed value is made of Python's own lists and dicts, whichever parser read it."""
    text = f'{{"a": [[1, "x"], null, {{}}], "o": {{"n": {tail}}}}}'
    value = v2_json.plain(v2_json.parse(text.encode()))
    assert value["a"] == [[1, "x"], None, {}]
    assert list(value["o"]) == ["n"]
    assert v2_json.plain(v2_json.parse(b"[1, [2]]")) == [1, [2]]
    assert v2_json.plain(5) == 5


def short_array(datatype: str, text: bytes) -> Any:
    """What the reader of short arrays makes of *text*; ``None`` where there is no reader."""
    read = v2_json.short_reader(datatype)
    return read and read(text)


NESTED = st.recursive(
    st.one_of(
        st.integers(-(2**70), 2**70),
        st.floats(allow_nan=False, allow_infinity=False),
        st.sampled_from([True, None, "1", "NaN", {}]),
    ),
    lambda inner: st.lists(inner, max_size=3),
)


@given(
    st.sampled_from([*NUMERIC, "BF16", "BYTES"]),
    st.one_of(
        NESTED,
        SHAPES.flatmap(lambda shape: hnp.arrays(np.int8, shape)).map(np.ndarray.tolist),
        SHAPES.flatmap(lambda shape: hnp.arrays(np.float32, shape)).map(np.ndarray.tolist),
    ),
)
@settings(derandomize=True, deadline=None, max_examples=600)
def test_short_arrays(datatype: str, value: Any) -> None:
    """A short array is read as any other, to the bit and to the shape; or it is left to that."""
    text = json.dumps(value).encode()
    array = short_array(datatype, text)
    if array is None:
        return
    assert array.dtype == DATATYPES[datatype].dtype
    assert array.shape == np.shape(value)
    parsed = v2_json.parse(text)
    read = v2_json.decode("x", datatype, array.shape, parsed).array
    assert np.array_equal(array, read, equal_nan=array.dtype.kind == "f")


@pytest.mark.parametrize("datatype", [*INTEGERS, *FLOATS])
def test_short_arrays_of_numbers_are_read(datatype: str) -> None:
    """The usual text of a small request is not left to full parsing."""
    array = short_array(datatype, b" [[1, 2],\n[3, 4]]")
    assert array is not None
    assert array.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    "text",
    ["[1, true]", "[null]", '["1"]', "[[1], [2, 3]]", "{}", "", "[1", "[01]", "[1e400]", "[NaN]",
     "[" * 70 + "1" + "]" * 70, "[" * 2000, f"[{'1, ' * 2000}1]"],
)  # fmt: skip
def test_what_is_no_short_array_of_numbers(text: str) -> None:
    """Other values, arrays that do not fit together, and long texts are left to full parsing."""
    assert short_array("FP32", text.encode()) is None


@pytest.mark.parametrize(
    ("datatype", "text"), [("INT8", "[300]"), ("UINT8", "[-1]"), ("INT32", "[1.0]")]
)
def test_integers_that_short_arrays_do_not_hold(datatype: str, text: str) -> None:
    """Full parsing says what is out of range, and reads whole numbers written as floats."""
    assert short_array(datatype, text.encode()) is None
