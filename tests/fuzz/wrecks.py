"""HTTP requests of every kind that there is, and what may become of them on their way."""

import gzip
import json
import re
import struct
import zlib
from collections.abc import Callable
from random import Random

OBJECT = "/workbench_fuzz"  # of shared memory; its region is "r"


def request(path: str, body: bytes = b"", method: str = "", **headers: str) -> bytes:
    """A whole request, POST if it has a body; the length is the body's unless it is chunked."""
    lines = [f"{method or ('POST' if body else 'GET')} {path} HTTP/1.1", "Host: localhost"]
    if body and "Transfer_Encoding" not in headers:
        lines.append(f"Content-Length: {len(body)}")
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def message(datatype: str, data: list[object], **rest: object) -> bytes:
    """An inference on *data* as JSON."""
    entry = {"name": "x", "shape": [len(data)], "datatype": datatype, "data": data}
    return json.dumps({"inputs": [entry], **rest}).encode()


def binary(datatype: str, count: int, data: bytes, **rest: object) -> bytes:
    """An inference on binary *data*, with the header that tells the length of its JSON."""
    parameters = {"binary_data_size": len(data)}
    entry = {"name": "x", "shape": [count], "datatype": datatype, "parameters": parameters}
    head = json.dumps({"inputs": [entry], **rest}).encode()
    length = {"Inference_Header_Content_Length": str(len(head))}
    return request(f"/v2/models/echo_{datatype.lower()}/infer", head + data, **length)


def chunked(body: bytes, size: int) -> bytes:
    """A chunked *body*."""
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (*parts, b""))


ECHO, BYTES, DIGITS = (f"/v2/models/{name}" for name in ("echo_fp32", "echo_bytes", "digits"))
PLAIN = message("FP32", [1.5, -2, 3e38])
PIXELS = json.dumps(
    {"inputs": [{"name": "pixels", "shape": [1, 64], "datatype": "FP32", "data": [0.5] * 64}]}
).encode()
GOOD = request(f"{DIGITS}/infer", PIXELS)
SHARED = {"shared_memory_region": "r", "shared_memory_byte_size": 8, "shared_memory_offset": 8}
IN_MEMORY = json.dumps(
    {
        "inputs": [{"name": "x", "shape": [2], "datatype": "FP32", "parameters": SHARED}],
        "outputs": [{"name": "y", "parameters": {**SHARED, "shared_memory_offset": 16}}],
    }
).encode()
REGISTER = json.dumps({"key": OBJECT, "offset": 0, "byte_size": 64}).encode()
CLASSES = [{"name": "y", "parameters": {"classification": 2}}]
BASE64 = [{"name": "y", "parameters": {"content_type": "base64"}}]
FLAT = json.dumps({"x": [1, 2], "id": "7", "temperature": 0.5}).encode()

UNREGISTER = request("/v2/systemsharedmemory/unregister", b"{}")

CORPUS = [
    GOOD, GOOD, request(f"{ECHO}/infer", PLAIN), request(f"{ECHO}/versions/1/infer", PLAIN),
    request(f"{ECHO}/infer", message("FP32", ["NaN", None], id="é", outputs=CLASSES)),
    request(f"{BYTES}/infer", message("BYTES", ["a", "\U0001f600", ""], outputs=BASE64)),
    request("/v2/models/echo_int64/infer", message("INT64", [2**63 - 1, -(2**63)])),
    request("/v2/models/echo_bool/infer", message("BOOL", [True, False])),
    binary("FP32", 2, struct.pack("<2f", 1, 2), parameters={"binary_data_output": True}),
    binary("BYTES", 2, b"\1\0\0\0a\0\0\0\0", id="b"), binary("BF16", 1, b"\x80\x3f"),
    binary("FP32", 2**15, bytes(2**17)),  # large enough to be received in another way
    request(f"{ECHO}/infer", bytes(4), Inference_Header_Content_Length="0"),
    request(f"{ECHO}/infer", gzip.compress(PLAIN, mtime=0), Content_Encoding="gzip"),
    request(f"{ECHO}/infer", zlib.compress(PLAIN), Content_Encoding="deflate"),
    request(f"{DIGITS}/infer", PIXELS, Accept_Encoding="gzip;q=0.5, deflate, *;q=0"),
    request(f"{DIGITS}/infer", chunked(PIXELS, 100), Transfer_Encoding="chunked"),
    request(f"{ECHO}/infer", PLAIN, Expect="100-continue", X_Request_Id="1"),
    request(f"{ECHO}/infer", PLAIN, Connection="Upgrade, HTTP2-Settings", Upgrade="h2c"),
    request(f"{ECHO}/infer", IN_MEMORY), request(f"{ECHO}/infer", PLAIN, Connection="close"),
    request("/v2/systemsharedmemory/region/r2/register", REGISTER),
    request("/v2/systemsharedmemory/status"),
    request("/v2/systemsharedmemory/region/r2/unregister", b"{}"),
    request(f"{ECHO}/generate", FLAT), request(f"{ECHO}/generate_stream", FLAT),
    request("/v2/repository/index", b'{"ready": true}'),
    request("/v2/repository/models/digits/load", b"{}"),
    request("/v2/repository/models/digits/unload",
            b'{"parameters": {"unload_dependents": false}}'),
    request("/v2/logging"), request("/metrics"),
    *(request(path) for path in ("/", "/v2", "/v2/health/live", "/v2/health/ready", "/v2/models",
                                 DIGITS, f"{DIGITS}/ready", f"{DIGITS}/config", f"{DIGITS}/stats",
                                 "/v2/models/stats", "/nothing", "/v2/models/no%2Fbody?a=b#c")),
    request("/v2", method="HEAD"), request(DIGITS, method="HEAD"), request("*", method="OPTIONS"),
]  # fmt: skip

# ── what may become of one ──────────────────────────────────────────────────

NUMBERS = [
    b"0", b"-0", b"-1", b"+5", b"1", b"7", b"0x10", b"1e3", b"1e400", b"NaN", b"255", b"65536",
    b"2147483648", b"4294967296", b"1048577", b"9223372036854775807", b"9223372036854775808",
    b"18446744073709551616", b"1" * 30, b"1" * 600, b"", b" 5 ", b"5, 5", b"\xd9\xa1", b"1_0",
]  # fmt: skip
TOKENS = [
    b"\0", b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"\r\n", b"\n", b"\r", b"\r\n\r\n", b"\x7f", b" ",
    b"\t", b"%00", b"%2F", b"%2e%2e/", b"%ff", b"..", b"//", b"?", b"#", b":", b'"', b"\\",
    b"\\ud800", b"{", b"}", b"[", b"]", b"[" * 120, b'"data"', b'"name"', b"null", b"\x16\x03\x01",
    b"0\r\n\r\n", b"a" * 9000, b"a" * 70_000, b"GET / HTTP/1.1\r\n\r\n", b'"x":1,' * 50,
]  # fmt: skip
HEADERS = [
    b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity", b"Content-Length: 3",
    b"Content-Encoding: gzip", b"Content-Encoding: deflate", b"Content-Encoding: br",
    b"Accept-Encoding: gzip", b"Accept-Encoding: deflate;q=nan", b"Expect: 100-continue",
    b"Connection: close", b"Connection: Upgrade\r\nUpgrade: h2c", b"Upgrade: websocket",
    b"Connection: Upgrade\r\nUpgrade: websocket", b"X-Request-Id: a\tb\xff", b"X: a\r\n b",
    b"Inference-Header-Content-Length: 0", b"Inference-Header-Content-Length: 99999999999",
    b"Inference-Header-Content-Length: 5", b"a: " + b"b" * 20_000, b": x", b"x", b"x : y",
    b"traceparent: \xe9", b"Host: ", b"Accept: text/event-stream",
]  # fmt: skip
METHODS = [b"GET", b"HEAD", b"POST", b"PUT", b"OPTIONS", b"CONNECT", b"PRI", b"TRACE", b"get", b""]


def flip(rng: Random, data: bytes) -> bytes:
    """Some bits of it are others."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 6)):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def cut(rng: Random, data: bytes) -> bytes:
    """Its end is missing."""
    return data[: rng.randint(0, len(data))]


def drop_or_repeat(rng: Random, data: bytes) -> bytes:
    """A part of it is missing, or is there several times."""
    start = rng.randint(0, len(data))
    end = min(len(data), start + rng.randint(1, 40))
    return data[:start] + data[start:end] * rng.choice([0, 0, 2, 3]) + data[end:]


def insert(rng: Random, data: bytes) -> bytes:
    """Something is in it that does not belong there."""
    at = rng.randint(0, len(data))
    return data[:at] + rng.choice(TOKENS) + data[at:]


def number(rng: Random, data: bytes) -> bytes:
    """A number of it is another, or is none."""
    found = list(re.finditer(rb"-?[0-9][0-9.e+]*", data))
    if not found:
        return data
    one = rng.choice(found)
    return data[: one.start()] + rng.choice(NUMBERS) + data[one.end() :]


def line_ends(rng: Random, data: bytes) -> bytes:
    """A line, or all of them, ends in another way."""
    return data.replace(
        b"\r\n", rng.choice([b"\n", b"\r", b"\r\r\n", b"\n\r", b" \r\n"]), rng.choice([1, 2, -1])
    )


def headers(rng: Random, data: bytes) -> bytes:
    """A header more, or less, or one twice, or all in another order."""
    head, separator, body = data.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    at = rng.randint(0, len(lines))
    match rng.randrange(5):
        case 0:
            lines[at : at + 1] = []
        case 1:
            lines[at:at] = lines[at - 1 : at]
        case 2:
            rng.shuffle(lines)
        case _:
            lines.insert(at, rng.choice(HEADERS))
    return b"\r\n".join([first, *lines]) + separator + body


def length(rng: Random, data: bytes) -> bytes:
    """The length that it says is not its own."""
    said = re.search(rb"(?<=Content-Length: )[0-9]+", data)
    if said is None:
        return data
    value = int(said[0])
    lies = [*NUMBERS, *(b"%d" % (value + off) for off in (-1, 1, -7, 1000))]
    return data[: said.start()] + rng.choice(lies) + data[said.end() :]


def method(rng: Random, data: bytes) -> bytes:
    """It is asked in another way, or of another version of HTTP."""
    if rng.random() < 0.3:
        version = rng.choice([b"1.0", b"2.0", b"0.9", b"1.10", b"x"])
        return data.replace(b"HTTP/1.1", b"HTTP/" + version, 1)
    return rng.choice(METHODS) + data[data.find(b" ") :]


def splice(rng: Random, data: bytes) -> bytes:
    """It goes on as another one: a head with a strange body, or torn anywhere."""
    other = rng.choice(CORPUS)
    if rng.random() < 0.5:
        return data.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" + other.partition(b"\r\n\r\n")[2]
    return cut(rng, data) + other[rng.randint(0, len(other)) :]


def chunks(rng: Random, data: bytes) -> bytes:
    """Its body comes in chunks, not all of which are well-formed."""
    head, _, body = data.partition(b"\r\n\r\n")
    head = re.sub(rb"\r\nContent-Length: [0-9]+", b"", head) + b"\r\nTransfer-Encoding: chunked"
    body = chunked(body, rng.randint(1, 50))
    wreck = rng.choice([same, same, flip, number, insert, line_ends, cut])
    return head + b"\r\n\r\n" + wreck(rng, body)


def same(rng: Random, data: bytes) -> bytes:
    """Nothing becomes of it."""
    return data


Wreck = Callable[[Random, bytes], bytes]
WRECKS: list[Wreck] = [
    same, flip, cut, drop_or_repeat, insert, number, number, line_ends, headers, headers, length,
    method, splice, chunks,
]  # fmt: skip


def requests_of(rng: Random) -> list[bytes]:
    """A few requests for one connection, most of them wrecked."""
    wrecked = []
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        data = rng.choice(CORPUS)
        for _ in range(rng.choice([0, 0, 1, 1, 1, 2])):
            data = rng.choice(WRECKS)(rng, data)
        wrecked.append(data)
    return wrecked


def pieces_of(rng: Random, stream: bytes) -> list[bytes]:
    """The *stream* cut anywhere."""
    cuts = sorted(rng.randint(0, len(stream)) for _ in range(rng.choice([0, 0, 1, 2, 5])))
    return [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
