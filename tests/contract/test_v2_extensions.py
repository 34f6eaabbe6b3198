"""What V2's extensions add to an inference over HTTP, one test a rule, against a live server.

Raw requests, classification, compression both ways, limits, and the request's number.
"""

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from messages import error_of, one

from workbench import Workbench

ECHO = "/v2/models/echo_fp32/infer"
GENERATE = "/v2/models/echo_fp32/generate"
LENGTH = "Inference-Header-Content-Length"
CODINGS = ["gzip", "deflate"]
PACK = {"gzip": gzip.compress, "deflate": zlib.compress}
UNPACK = {"gzip": gzip.decompress, "deflate": zlib.decompress}


def refusal(response: httpx.Response, status: int = 400) -> str:
    """The message of an error response of that *status*."""
    assert response.status_code == status
    return error_of(response)


def parts_of(response: httpx.Response) -> tuple[list[dict[str, Any]], bytes]:
    """The outputs of a response, and what is behind its JSON."""
    assert response.status_code == 200, response.text
    length = int(response.headers.get(LENGTH, len(response.content)))
    outputs: list[dict[str, Any]] = json.loads(response.content[:length])["outputs"]
    return outputs, response.content[length:]


# ── raw requests ────────────────────────────────────────────────────────────


def raw(client: httpx.Client, model: str, body: bytes, **headers: str) -> httpx.Response:
    """The answer to *body*, all of which is the model's input."""
    return client.post(f"/v2/models/{model}/infer", content=body, headers={LENGTH: "0", **headers})


def test_raw_requests(client: httpx.Client, held_out: dict[str, Any]) -> None:
    """A header length of 0 makes the whole body the one input; the outputs are binary."""
    image = held_out["digits_x"][:1].astype(np.float32)
    response = raw(client, "digits", image.tobytes())
    (output,), blob = parts_of(response)
    assert response.headers["content-type"] == "application/octet-stream"
    assert (output["name"], output["datatype"], output["shape"]) == (
        "probabilities",
        "FP32",
        [1, 10],
    )
    assert output["parameters"] == {"binary_data_size": 40}
    assert np.frombuffer(blob, "<f4").argmax() == held_out["digits_y"][0]


# ── compressed requests ─────────────────────────────────────────────────────


def packed(body: bytes, coding: str, **headers: str) -> dict[str, Any]:
    """The arguments of a request with a compressed *body*."""
    return {"content": PACK[coding](body), "headers": {"Content-Encoding": coding, **headers}}


def test_codings_that_are_not_read(client: httpx.Client) -> None:
    """Any other coding is a 415 that says, in a header too, which are read."""
    for path in (ECHO, "/v2/repository/index", "/models", GENERATE):
        response = client.post(path, content=b"x", headers={"Content-Encoding": "br"})
        assert response.status_code == 415
        assert "'br'" in response.json()["error"]
        assert response.headers["accept-encoding"] == "gzip, deflate"


@pytest.mark.parametrize("coding", CODINGS)
def test_what_is_too_large_once_decompressed(client: httpx.Client, coding: str) -> None:
    """A body that is over max_request once it is decompressed is a 413, however small it came."""
    response = client.post(ECHO, **packed(bytes(2**20 + 1), coding))
    assert refusal(response, 413) == (
        f"the decompressed body has more than {2**20} bytes (1.0 MiB, the setting max_request)"
    )
    response = client.post(ECHO, **packed(b" " * (2**20 - 2) + b"{}", coding))
    assert "has no 'inputs'" in refusal(response)


# ── compressed replies ──────────────────────────────────────────────────────


def answer(client: httpx.Client, accepted: str, **body: Any) -> tuple[dict[str, str], bytes]:
    """The headers and the body, as they are on the wire, of an answer of a few KB."""
    message = {**one([0.0] * 1000, [1000]), **body}
    with client.stream("POST", ECHO, json=message, headers={"Accept-Encoding": accepted}) as got:
        assert got.status_code == 200
        return dict(got.headers), b"".join(got.iter_raw())


@pytest.mark.parametrize("coding", CODINGS)
def test_compressed_answers(client: httpx.Client, coding: str) -> None:
    """An answer comes as gzip or deflate where the client accepts it, and tells so."""
    headers, body = answer(client, coding)
    assert headers["content-encoding"] == coding
    assert int(headers["content-length"]) == len(body) < 1000
    (output,) = json.loads(UNPACK[coding](body))["outputs"]
    assert output["data"] == [0.0] * 1000


@pytest.mark.parametrize("coding", CODINGS)
def test_compressed_binary_answers(client: httpx.Client, coding: str) -> None:
    """A binary answer is compressed as a whole, and its length header counts plain JSON."""
    headers, body = answer(client, coding, parameters={"binary_data_output": True})
    assert headers["content-encoding"] == coding
    plain, length = UNPACK[coding](body), int(headers[LENGTH.lower()])
    (output,) = json.loads(plain[:length])["outputs"]
    assert output["parameters"] == {"binary_data_size": 4000}
    assert plain[length:] == bytes(4000)


def test_small_answers_come_as_they_are(client: httpx.Client) -> None:
    """An answer that fits into a packet anyway is not compressed."""
    response = client.post(ECHO, json=one([1.5], [1]), headers={"Accept-Encoding": "gzip"})
    assert "content-encoding" not in response.headers


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/v2"), ("GET", "/v2/models/digits"), ("GET", "/nope"), ("POST", ECHO)],
)
def test_only_inferences_are_compressed(client: httpx.Client, method: str, path: str) -> None:
    """Errors and what describes are never compressed."""
    response = client.request(method, path, headers={"Accept-Encoding": "gzip"})
    assert "content-encoding" not in response.headers


# ── limits ──────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def strict(sample_models: Path) -> Iterator[httpx.Client]:
    """A client of a server with tight limits."""
    with (
        Workbench(sample_models, max_request="2KiB") as workbench,
        httpx.Client(base_url=workbench.url) as client,
    ):
        yield client


def wine(count: int = 13, **more: Any) -> dict[str, Any]:
    """A request to *wine*, of *count* elements."""
    entry = {"name": "features", "datatype": "FP32", "shape": [count // 13, 13]}
    return {"inputs": [{**entry, "data": [0] * count}], **more}


def test_within_the_limits(strict: httpx.Client) -> None:
    """What is just within the limits is answered."""
    body = json.dumps(wine(more=[[[[1]]]])).encode()
    response = strict.post("/v2/models/wine/infer", content=body + b" " * (2048 - len(body)))
    assert response.status_code == 200


@pytest.mark.parametrize("length", [True, False])
def test_nesting(strict: httpx.Client, length: bool) -> None:
    """JSON that nests too deep is a 400, also ahead of binary data."""
    body = f'{{"more":{"[" * 100}{"]" * 100}}}'.encode()
    headers = {LENGTH: str(len(body))} if length else {}
    response = strict.post("/v2/models/wine/infer", content=body, headers=headers)
    assert refusal(response) == "the JSON nests more than 100 deep"


@pytest.mark.parametrize("chunked", [True, False])
def test_max_request(strict: httpx.Client, chunked: bool) -> None:
    """A body larger than max_request is a 413, whether its length is known or not."""
    content = b" " * 2049
    pieces = iter([content[:1000], content[1000:]])
    response = strict.post("/v2/models/wine/infer", content=pieces if chunked else content)
    assert refusal(response, 413) == (
        "the request JSON has 2049 bytes; at most 2048 are taken (2.0 KiB, the setting max_request)"
    )


# ── the request's number ────────────────────────────────────────────────────

NUMBER = "a-7 (of 9)"


@pytest.mark.parametrize(
    ("path", "asked", "status"),
    [
        (ECHO, {"json": one([1], [1])}, 200),
        (ECHO, {"json": one([1], [1]), "headers": {"Accept-Encoding": "gzip"}}, 200),
        ("/v2/models/two/infer", {"json": one([1], [1])}, 400),
        (ECHO, {"content": b"{"}, 400),
        (ECHO, {"content": b"{}", "headers": {LENGTH: "x"}}, 400),
        (ECHO, {"content": b" " * (2**20 + 1)}, 413),
        (ECHO, {"content": b"x", "headers": {"Content-Encoding": "br"}}, 415),
        ("/v2/models/nobody/infer", {"json": one([1], [1])}, 404),
        ("/v2/models/fails/infer", {"json": one([1], [1])}, 500),
        ("/v2/models/digits", {}, 405),
        ("/v2/repository/index", {}, 200),
        ("/nope", {}, 404),
    ],
    ids=lambda value: str(value)[:30],
)
def test_x_request_id(client: httpx.Client, path: str, asked: dict[str, Any], status: int) -> None:
    """The number that a client gives its request comes back with the answer, errors too."""
    headers = {**asked.get("headers", {}), "X-Request-Id": NUMBER}
    response = client.post(path, **{**asked, "headers": headers})
    assert (response.status_code, response.headers["x-request-id"]) == (status, NUMBER)


def test_no_x_request_id(client: httpx.Client) -> None:
    """Where the client gives no number, the answer has none."""
    for response in (client.post(ECHO, json=one([1], [1])), client.post(ECHO, content=b"{")):
        assert "x-request-id" not in response.headers
