"""Whatever comes as bytes, the codecs read it or refuse it in their own words, and in bounds."""

import gzip
import json
import zlib
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mutations import PIECES, Edit, bounded, deterministic, edited, edits, refused_or

from workbench.codecs import generate, nesting, v2, v2_json
from workbench.codecs.nesting import check_nesting
from workbench.codecs.v2 import ReplyForm, RequestRules
from workbench.codecs.v2_known import KnownText, known_text
from workbench.errors import InvalidRequest, RegionNotFound, RequestTooLarge, WorkbenchError
from workbench.http import compression
from workbench.http.compression import CODINGS
from workbench.http.route import PathPattern
from workbench.http.routes import GROUPS
from workbench.inference import InferRequest, InferResponse
from workbench.model import ModelId, Signature, TensorSpec
from workbench.tensor import DATATYPES, Tensor

# ── requests, spelled as nobody spells them ─────────────────────────────────

NUMERIC = sorted(set(DATATYPES) - {"BYTES", "BOOL", "BF16"})
MEMORY = np.ones(4, np.float32).tobytes()
EDGES = [
    "0", "-0", "-0.0", "0.0", "1.0", "1e0", "1E+2", "1e-2", "1.5", "-1", "127", "128", "-128",
    "-129", "255", "256", "32767", "32768", "65504", "65519.99", "65520", "65535", "65536",
    "2147483647", "2147483648", "4294967295", "4294967296", "16777217", "9007199254740993",
    "9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809",
    "18446744073709551615", "18446744073709551616", "3.4028234663852886e38",
    "3.4028235677973366e38", "1e39", "1.7976931348623157e308", "1e400", "-1e400", "1e-400",
    "5e-324", "1e-45", "7e-46", "0." + "3" * 800, "1" * 30, "1" + "0" * 310,
]  # fmt: skip
ODD = ["NaN", "-Infinity", "null", "true", '"NaN"', '"Infinity"', '"a"', "[1]", "[]", "{}", '""']

numbers = st.one_of(
    st.sampled_from(EDGES),
    st.integers(-300, 300).map(str),
    st.integers(-(2**65), 2**65).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
)
elements = st.one_of(
    st.lists(numbers, max_size=4),
    st.lists(st.one_of(numbers, st.sampled_from(ODD)), max_size=4),
    st.lists(st.integers(0, 100).map(str), max_size=4),
)
names = st.sampled_from(
    ['"x"', '"data"', '"\\u0078"', '"é"', '"\\ud83d\\ude00"', '"\\ud800"', '"]"', '"\\"data\\":["',
     '"\\u0000"', '"x\\\\"', '""', "7", "null"]
)  # fmt: skip
MORE_OF_ENTRIES = [
    '"parameters":{}', '"parameters":{"data":"data"}', '"parameters":{"a":1,"b":[1]}',
    '"parameters":{"binary_data_size":8}', '"data":[1,2]', '"d\\u0061ta":[1,2]', '"shape":[3]',
    '"more":{"data":[1,1]}', '"datatype":"INT8"', '"parameters":{"content_type":"base64"}',
    '"parameters":{"shared_memory_region":"r","shared_memory_byte_size":8}', '"a\\u0000":1',
]  # fmt: skip
MORE_OF_REQUESTS = [
    '"id":""', '"id":"a"', '"id":7', '"id":null', '"parameters":{"binary_data_output":true}',
    '"parameters":{"data":"data"}', '"parameters":{"a":NaN}', '"parameters":null', '"data":[1,2]',
    '"outputs":[]', '"outputs":[{"name":"y"}]', '"inputs":[]', '"more":{"data":[1,1]}',
    '"outputs":[{"name":"y","parameters":{"classification":2}}]', '"more":"\\"data\\":[1,1]"',
    '"outputs":[{"name":"y","parameters":{"binary_data":true}}]', '"more":"]"', '"\\u0000":[]',
    '"outputs":[{"name":"data","parameters":{"content_type":"base64"}},{"name":"y"}]',
]  # fmt: skip


@st.composite
def templates(draw: st.DrawFn) -> str:
    """A request of one tensor, whose elements are to be put where its ``%s`` is."""
    space = draw(st.sampled_from(["", "", " ", "\n", "\r\n\t "]))
    datatype = draw(st.sampled_from([*NUMERIC, "FP32", "BOOL", "BF16", "BYTES", "FP31"]))
    shape = draw(st.sampled_from(["[2]", "[1,2]", "[2,1,1]", "[3]", "[]", "[0]", "[2,0]", "[-1]"]))
    data = draw(st.sampled_from(['"data"', '"data"', '"data"', '"d\\u0061ta"']))
    entry = [f'"datatype":"{datatype}"', f'"shape":{shape}', f"{data}{space}:{space}[%s]"]
    entry += ['"name":' + draw(st.one_of(st.just('"x"'), names))]
    entry += draw(st.lists(st.sampled_from(MORE_OF_ENTRIES), max_size=1))
    comma = f"{space},{space}"
    request = [f'"inputs":{space}[{{{comma.join(draw(st.permutations(entry)))}}}]']
    request += draw(st.lists(st.sampled_from(MORE_OF_REQUESTS), max_size=2))
    return f"{{{space}{comma.join(draw(st.permutations(request)))}}}{space}"


def filled(template: str, items: list[str]) -> bytes:
    return template.replace("%s", ",".join(items)).encode("utf-8", "surrogatepass")


def read_region(name: str, offset: int, nbytes: int) -> memoryview:
    """Of a region *r*, the bytes; there is no other."""
    if name != "r" or offset + nbytes > len(MEMORY):
        raise RegionNotFound(f"there is no {name!r}")
    return memoryview(MEMORY)[offset : offset + nbytes]


RULES = RequestRules(read_region)


def decode(
    body: bytes, header_nbytes: int | None = None, rules: RequestRules = RULES
) -> tuple[InferRequest, ReplyForm] | WorkbenchError:
    """What the codec makes of *body*: a request that is whole, or a refusal.

    Its inputs can be given back as outputs, or are refused.
    """
    made = refused_or(lambda: v2.decode_request("m", None, body, header_nbytes, rules))
    if isinstance(made, tuple):
        request, form = made
        for tensor in request.inputs.values():
            check_tensor(tensor)
        outputs = {f"y{n}": tensor for n, tensor in enumerate(request.inputs.values())}
        response = InferResponse(ModelId("m", 1), outputs, request.id)
        refused_or(lambda: v2.encode_response(response, form))
    return made


def check_tensor(tensor: Tensor) -> None:
    """Hold a tensor against its own promise: the dtype of its datatype, BYTES of bytes."""
    assert tensor.array.dtype == DATATYPES[tensor.datatype].dtype
    if tensor.datatype == "BYTES":
        assert all(type(item) is bytes for item in tensor.array.reshape(-1))


@deterministic(500)
@given(templates(), elements, edits())
def test_json_requests(template: str, items: list[str], changes: list[Edit]) -> None:
    """Nearly any JSON request is read or refused."""
    decode(edited(filled(template, items), changes))


SPAN = {"shared_memory_region": "r", "shared_memory_byte_size": 8}


def entry_of(name: str, datatype: str, shape: list[int], **parameters: Any) -> dict[str, Any]:
    """An input without data of its own."""
    return {"name": name, "datatype": datatype, "shape": shape, "parameters": parameters}


BINARY = [
    json.dumps({"inputs": entries, **rest}).encode()
    for entries, rest in (
        ([entry_of("x", "FP32", [2], binary_data_size=8)], {}),
        ([entry_of("x", "BYTES", [2], binary_data_size=8),
          entry_of("z", "BOOL", [3], binary_data_size=3)], {"id": "a"}),
        ([{"name": "x", "datatype": "INT8", "shape": [1], "data": [1]},
          entry_of("z", "BF16", [2, 2])], {"parameters": {"binary_data_output": True}}),
        ([entry_of("x", "UINT64", [2**32, 0])], {"outputs": [{"name": "y", "parameters": SPAN}]}),
    )
]  # fmt: skip
DIGITS = [b"%d" % n for n in (0, 2, 7, 2**20, 2**31, 2**32, 2**39, 2**62, 2**63, 2**64)]


@deterministic(400)
@given(
    st.sampled_from(BINARY),
    edits([*PIECES, *DIGITS, b"BYTES", b"FP16", b"BOOL", b"UINT64"]),
    st.one_of(st.binary(max_size=24), st.sampled_from([bytes(8), bytes(11), b"\1\0\0\0a\0\0\0\0"])),
    st.integers(-3, 3),
)
def test_binary_requests(head: bytes, changes: list[Edit], tail: bytes, off: int) -> None:
    """Binary data of any size behind any JSON are read or refused, in little room."""
    head = edited(head, changes)
    with bounded(len(head) + len(tail)):
        decode(head + tail, len(head) + off)


@deterministic(200)
@given(
    st.binary(max_size=40),
    st.sampled_from(sorted(DATATYPES)),
    st.lists(st.integers(-1, 5), max_size=4).map(tuple),
)
def test_raw_requests(body: bytes, datatype: str, shape: tuple[int, ...]) -> None:
    """Any bytes are a tensor of the model's one input, or refused."""
    spec = TensorSpec("x", datatype, shape)
    made = refused_or(lambda: v2.decode_raw("m", None, body, Signature("", {"x": spec}, {})))
    if isinstance(made, tuple):
        tensor = made[0].inputs["x"]
        check_tensor(tensor)
        if datatype != "BYTES":
            assert tensor.array.tobytes() == body


# ── the same request again ──────────────────────────────────────────────────


def learned(body: bytes) -> KnownText | None:
    """What is kept of *body*, once it was read as a whole."""
    made = decode(body)
    if not isinstance(made, tuple):
        return None
    return known_text(body, len(body), *made)


def said(request: InferRequest, form: ReplyForm) -> str:
    """All that a request says, to the bit; NaN is NaN."""
    tensors = [
        (name, tensor.datatype, type(array), array.dtype, array.shape, array.tobytes())
        for name, tensor in request.inputs.items()
        for array in (tensor.array,)
    ]
    rest = request.model, request.version, request.outputs, request.id
    return repr((*rest, dict(request.parameters), dict(request.classes), tensors, form))


def check_again(known: KnownText, body: bytes) -> bool:
    """Whether *body* is read as a repetition; then it must say what all of its reading says."""
    values = known.cut(body, body, len(body))
    request = None if values is None else known.read("m", None, values)
    if request is None:
        return False
    told = said(request, known.form)
    whole = decode(body)
    assert isinstance(whole, tuple), whole
    assert told == said(*whole)
    return True


PLAIN = '{"inputs":[{"name":"x","datatype":"FP32","shape":[2],"data":[%s]}]}'


@deterministic(700)
@given(templates(), st.lists(elements, min_size=2, max_size=6), edits())
@example(PLAIN, [["1", "2"], ["-0", "-0.0"], ["1e400", "1"], ["16777217", "1e39"]], [])
def test_requests_again(template: str, rows: list[list[str]], changes: list[Edit]) -> None:
    """What is read as a repetition of a known request is exactly what all of its reading gives."""
    known = learned(filled(template, rows[0]))
    if known is None:
        return
    bodies = [filled(template, items) for items in rows]
    bodies += [edited(body, changes) for body in bodies]
    for body in bodies:
        check_again(known, body)


def test_plain_requests_come_again() -> None:
    """Requests that differ in plain numbers only are indeed read as repetitions."""
    for datatype in NUMERIC:
        template = PLAIN.replace("FP32", datatype)
        known = learned(filled(template, ["0", "1"]))
        assert known is not None
        for items in (["1", "2"], ["100", "0"], ["1", "127"]):
            assert check_again(known, filled(template, items))


# ── JSON ────────────────────────────────────────────────────────────────────

values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=12,
)


def depth(text: bytes) -> int:
    """How deep a JSON text nests, told byte by byte."""
    now = most = 0
    in_string = escaped = False
    for byte in text:
        if byte == ord('"') and not escaped:
            in_string = not in_string
        elif byte in b"[{" and not in_string:
            now += 1
            most = max(most, now)
        elif byte in b"]}" and not in_string:
            now -= 1
        escaped = byte == ord("\\") and not escaped
    return most


@deterministic(300)
@given(st.text('[]{}"\\a', max_size=30).map(str.encode), st.integers(0, 4), st.integers(1, 9))
@example(b"[" * 4 + b'"' + b"\\" * 9 + b'"["[[]', 5, 4)
def test_nesting_of_anything(text: bytes, limit: int, block_nbytes: int) -> None:
    """The nesting of what is no JSON is told likewise, wherever a block of it ends."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nesting, "_BLOCK_NBYTES", block_nbytes)
        refused = isinstance(refused_or(lambda: check_nesting(text, limit)), WorkbenchError)
    assert refused == (depth(text) > limit)


@deterministic(300)
@given(st.one_of(values.map(json.dumps).map(str.encode), st.binary(max_size=20)), edits())
def test_parse(text: bytes, changes: list[Edit]) -> None:
    """Any bytes are JSON or are refused, and what is JSON can be told of in a message."""
    value = refused_or(lambda: v2_json.parse(edited(text, changes)))
    if not isinstance(value, WorkbenchError):
        members = v2_json.members(value)
        assert (members is not None) == isinstance(v2_json.plain(value), dict)
        assert len(v2_json.shown(value)) <= 40


@deterministic(300)
@given(
    st.dictionaries(st.sampled_from(["x", "z", "id", "parameters", "a", "é\0"]), values),
    edits(),
    st.sampled_from(sorted(DATATYPES)),
    st.lists(st.integers(-1, 3), max_size=3).map(tuple),
)
@example({"x": json.loads("[" * 70 + "1" + "]" * 70)}, [], "FP32", (-1,))
@example({"x": [[]] * 3}, [], "BYTES", (-1, 0))
def test_generate(
    message: dict[str, Any], changes: list[Edit], datatype: str, shape: tuple[int, ...]
) -> None:
    """Any body of a generate request is read or refused, and so is what answers it."""
    specs = {name: TensorSpec(name, datatype, shape) for name in ("x", "z")}
    body = edited(json.dumps(message).encode(), changes)
    signature = Signature("", specs, {})
    request = refused_or(lambda: generate.decode_request("m", None, body, signature))
    if isinstance(request, WorkbenchError):
        return
    for tensor in request.inputs.values():
        check_tensor(tensor)
    response = InferResponse(ModelId("m", 1), request.inputs, request.id)
    text = refused_or(lambda: generate.encode_response(response))
    assert isinstance(text, InvalidRequest) or isinstance(json.loads(text), dict)


# ── content codings, paths ──────────────────────────────────────────────────

PACKED = {
    b"gzip": [
        gzip.compress(b"a" * 50, mtime=0) * 2,
        gzip.compress(b"", mtime=0) * 3,
        gzip.compress(bytes(2**20), mtime=0),
    ],
    b"deflate": [zlib.compress(b"a" * 50), zlib.compress(b""), zlib.compress(bytes(2**20))],
}


@deterministic(300)
@given(st.sampled_from(CODINGS), st.data(), st.integers(0, 2**14))
def test_inflate(coding: bytes, data: st.DataObject, limit_nbytes: int) -> None:
    """Nearly any compressed body is decompressed or refused, in no more room than is allowed."""
    packed = data.draw(st.one_of(st.sampled_from(PACKED[coding]), st.binary(max_size=30)))
    body = edited(packed, data.draw(edits()))
    with bounded(limit_nbytes // 50 + len(body)):
        made = refused_or(lambda: compression.inflate(body, coding, limit_nbytes))
    if isinstance(made, bytes):
        assert len(made) <= limit_nbytes
    else:
        assert type(made) in (InvalidRequest, RequestTooLarge)


WEIGHTS = [
    b"gzip", b"deflate", b"*", b"br", b" ", b";", b"q=", b",", b"1", b"0", b".5", b"nan", b"-1",
    b"inf", b"=", b"\xff", b"1_0",
]  # fmt: skip


@deterministic(200)
@given(st.lists(st.sampled_from(WEIGHTS)))
def test_accepted_codings(pieces: list[bytes]) -> None:
    """Any Accept-Encoding chooses a coding of ours or none."""
    assert compression.choose(b"".join(pieces)) in {b"", *CODINGS}


SEGMENTS = [
    b"/", b"//", b"a", b"versions", b"1", b"01", b"infer", b"ready", b"generate",
    b"%2F", b"%", b"%ff", b"%00", b"%2e%2e", b"..", b"models", b"load", b"unload", b"index",
    b"%ED%A0%80", b"9" * 30, b"\xc3\xa9",
]  # fmt: skip
PATTERNS = [
    PathPattern.of(route.path, group.parameters)
    for group in GROUPS
    for route in group.routes
    if "{" in route.path
]


@deterministic(300)
@given(st.lists(st.sampled_from(SEGMENTS), max_size=8), st.booleans())
def test_paths(pieces: list[bytes], slashes: bool) -> None:
    """Any path names a model in Unicode, or is refused, by each route."""
    rest = (b"/" if slashes else b"").join(pieces)
    for pattern in PATTERNS:
        for prefix in (b"/v2/models/", b"/v2/repository/", b"/models/"):
            found = refused_or(partial(pattern.match, prefix + rest))
            if isinstance(found, dict):
                assert all(value.encode() for value in found.values())
