"""The V2 protocol as a client speaks it, without a connection."""

import json
import re
from typing import Any

import numpy as np
import pytest

from workbench import errors
from workbench.client.elsewhere import (
    HEADER_SIZE,
    address_of,
    error_of,
    path_of_model,
    reading,
    signature_of,
    write_request,
)
from workbench.errors import NotSupported, UsageError
from workbench.model import ModelId
from workbench.tensor import Tensor


@pytest.mark.parametrize(
    "url", ["", " ", "http://", "ftp://host", "host:port", 99_999, 0, "a b", "[::1", "ä..b", "a\0b"]
)
def test_what_is_no_address(url: str | int) -> None:
    """It is told as that, in one line with an example of one."""
    told = f"{url!r} is no address of a server: give one such as http://127.0.0.1:8000, or a port"
    with pytest.raises(UsageError, match=f"^{re.escape(told)}$"):
        address_of(url)


def test_a_socket_file() -> None:
    """It is told as that: no name of a host is looked up."""
    with pytest.raises(UsageError, match=r"'unix:/a\.sock' is a socket file, which only"):
        address_of("unix:/a.sock")


@pytest.mark.parametrize(
    ("url", "address"),
    [
        (8000, "http://127.0.0.1:8000"),
        ("8000", "http://127.0.0.1:8000"),
        ("host:80", "http://host:80"),
        ("https://host/v2/", "https://host"),
        (" http://[::1]:80/under/ ", "http://[::1]:80/under"),
    ],
)
def test_ways_to_name_a_server(url: str | int, address: str) -> None:
    """A port, an address without its scheme, and one with the protocol's path."""
    assert address_of(url) == address


@pytest.mark.parametrize("odd", [{}, True])
def test_what_is_no_text(odd: object) -> None:
    """An address is a text or a port."""
    with pytest.raises(UsageError, match=rf"a text, such as wb\.url, not {type(odd).__name__}$"):
        address_of(odd)


def test_a_name_with_a_slash() -> None:
    """It is one part of a path."""
    assert path_of_model("a/b", 2) == "v2/models/a%2Fb/versions/2"


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, errors.InvalidRequest), (401, errors.TokenRequired), (403, errors.AccessDenied),
        (404, errors.ModelNotFound), (413, errors.RequestTooLarge), (501, errors.NotSupported),
        (503, errors.ModelNotReady), (507, errors.MemoryExhausted), (500, errors.RunFailed),
        (418, errors.RunFailed),
    ],
)  # fmt: skip
def test_the_error_of_a_status(status: int, error: type[Exception]) -> None:
    """It is the one that a workbench answers with that status; of any other, a failed run."""
    told = error_of(status, b'{"error": "told"}')
    assert (type(told), str(told)) == (error, "told")


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"bad gateway", "bad gateway"),
        (b"a" * 300, "a" * 200),
        (b'{"detail": "of FastAPI"}', "of FastAPI"),
        (b"[1]", "[1]"),
        (b"", "the server answered 502"),
        (
            b'{"error": "Request for unknown model: there is no model \'m\'"}',
            "there is no model 'm'",
        ),
        (b"{\"error\": \"failed to load 'm': there is no model 'm'\"}", "there is no model 'm'"),
        (
            b'{"error": "Request for unknown model: \'m\' is not found"}',
            "Request for unknown model: 'm' is not found",
        ),
    ],
)
def test_what_an_error_says(body: bytes, told: str) -> None:
    """A page of a proxy is cut; a workbench's words before the same are left out, Triton's stay."""
    assert str(error_of(502, body)).strip() == told


def test_tensors_that_are_not_declared() -> None:
    """Some servers tell none, or null."""
    assert signature_of(ModelId("m", 1), {"inputs": None}).inputs == {}
    told = {"inputs": [{"name": "x", "datatype": "FP32", "shape": ["-1", 2]}]}
    assert signature_of(ModelId("m", 1), told).inputs["x"].shape == (-1, 2)


@pytest.mark.parametrize(
    ("output", "binary"), [(None, False), ("y", False), (None, True), ("y", True)]
)
def test_binary_data_is_asked_for_where_it_is_understood(output: str | None, binary: bool) -> None:
    """All outputs, or the chosen one; a text that is missing is JSON."""
    texts = np.array([b"a", None], object)
    tensors = {"x": Tensor.of([1.0], "FP32"), "t": Tensor.of(texts, "BYTES", missing=True)}
    body, headers = write_request(tensors, output, binary=binary)
    size = int(headers.get(HEADER_SIZE, len(body)))
    head = json.loads(body[:size])
    assert head["inputs"][1]["data"] == ["a", None]
    assert ("binary_data_output" in head.get("parameters", {})) == binary
    parameters = {"parameters": {"binary_data": True}} if binary else {}
    assert head.get("outputs") == (output and [{"name": output, **parameters}])
    number = np.frombuffer(body[size:], "<f4") if binary else head["inputs"][0]["data"]
    assert list(number) == [1.0]


@pytest.mark.parametrize("body", [b"<html>a login page</html>", b"[1]", b"null", b""])
def test_an_answer_that_cannot_be_read(body: bytes) -> None:
    """One line says what was asked and answered."""

    def read(told: Any) -> Any:
        return told["name"]

    with pytest.raises(NotSupported) as caught, reading("GET http://a/v2", body):
        read(json.loads(body))
    shown = repr(body.decode()) if body else "nothing"
    told = f"GET http://a/v2 was answered with {shown}, which is not what the V2 protocol has there"
    assert str(caught.value) == told
