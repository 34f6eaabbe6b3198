"""The standard library, requests and curl, as people write them, against a live server."""

import json
import shutil
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests

from workbench import Workbench

ECHO = "v2/models/echo_fp32/infer"


def body_of(count: int = 1) -> bytes:
    """A JSON request of *count* ones for the model echo_fp32; about 5 bytes each."""
    entry = {"name": "x", "shape": [count], "datatype": "FP32", "data": [1.0] * count}
    return json.dumps({"inputs": [entry]}).encode()


def binary_of(array: np.ndarray) -> tuple[bytes, int]:
    """A binary request of *array* for echo_fp32, binary back; and its JSON's length."""
    entry = {"name": "x", "shape": list(array.shape), "datatype": "FP32"}
    entry["parameters"] = {"binary_data_size": array.nbytes}
    head = json.dumps({"inputs": [entry], "parameters": {"binary_data_output": True}}).encode()
    return head + array.tobytes(), len(head)


def data_of(text: bytes | str) -> list[Any]:
    """The data of the one output of an answer."""
    (output,) = json.loads(text)["outputs"]
    return list(output["data"])


@pytest.fixture(scope="module")
def roomy() -> Iterator[Workbench]:
    """A server that takes requests of several MiB."""
    with Workbench(max_request="16MiB") as workbench:
        workbench.register(
            lambda x: x,
            name="echo_fp32",
            inputs={"x": ("FP32", [-1])},
            outputs={"y": ("FP32", [-1])},
        )
        yield workbench


# ── the standard library ────────────────────────────────────────────────────


def test_urllib(server: Workbench, held_out: dict[str, Any]) -> None:
    """It sends a form's Content-Type with JSON, and gets an answer."""
    image = held_out["digits_x"][:1]
    body = {
        "inputs": [{"name": "pixels", "shape": [1, 64], "datatype": "FP32", "data": image.tolist()}]
    }
    url = f"{server.url}/v2/models/digits/infer"
    with urllib.request.urlopen(url, data=json.dumps(body).encode()) as response:
        assert int(np.argmax(data_of(response.read()))) == held_out["digits_y"][0]


def test_urllib_reads_errors(server: Workbench) -> None:
    """Its HTTPError has our words as its body."""
    for path, data, status in [("v2/nope", None, 404), (ECHO, b"{}", 400)]:
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"{server.url}/{path}", data=data)
        with caught.value as error:
            assert error.code == status
            assert list(json.load(error)) == ["error"]


# ── requests ────────────────────────────────────────────────────────────────


def test_requests(server: Workbench) -> None:
    """JSON as a dict, as text without a Content-Type, as a file, in chunks."""
    url = f"{server.url}/{ECHO}"
    body = body_of(3)
    with requests.Session() as session:
        for given in (
            {"json": json.loads(body)},
            {"data": body.decode()},
            {"data": body},
            {"data": iter([body[:9], body[9:]])},
        ):
            response = session.post(url, **given)
            assert response.status_code == 200, response.text
            assert data_of(response.text) == [1, 1, 1]


def test_requests_binary(server: Workbench) -> None:
    """Binary both ways, written by hand with the one header and no Content-Type."""
    array = np.arange(6, dtype=np.float32)
    body, length = binary_of(array)
    headers = {"Inference-Header-Content-Length": str(length)}
    response = requests.post(f"{server.url}/{ECHO}", data=body, headers=headers, timeout=60)
    start = int(response.headers["inference-header-content-length"])
    assert np.frombuffer(response.content[start:], np.float32).tolist() == array.tolist()


# ── curl ────────────────────────────────────────────────────────────────────


@pytest.fixture
def curl() -> Callable[..., subprocess.CompletedProcess[bytes]]:
    """Runs curl with some arguments; *given* is its standard input."""
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")

    def run(*arguments: str | Path, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            ["curl", "-s", *arguments], input=given, capture_output=True, timeout=200, check=False
        )

    return run


def test_curl_health(server: Workbench, curl: Any) -> None:
    """``curl -I`` and ``curl -f``, which probes use, end well; -f tells what is not there."""
    head = curl("-I", f"{server.url}/v2/health/ready").stdout
    assert head.startswith(b"HTTP/1.1 200 ")
    assert head.endswith(b"\r\n\r\n")
    assert curl("-f", f"{server.url}/v2/models/digits/ready").returncode == 0
    assert curl("-f", f"{server.url}/v2/models/nobody/ready").returncode == 22


@pytest.mark.parametrize("options", [[], ["-H", "Content-Type: application/json"], ["-0"]])
def test_curl_data(server: Workbench, curl: Any, options: list[str]) -> None:
    """``curl -d '{...}'``, with and without the right Content-Type, and in HTTP/1.0."""
    done = curl(*options, "-d", body_of(2).decode(), f"{server.url}/{ECHO}")
    assert data_of(done.stdout) == [1, 1]


def test_curl_binary(server: Workbench, curl: Any, tmp_path: Path) -> None:
    """``curl --data-binary @file`` with the length of the JSON, and its answer in files."""
    array = np.arange(1000, dtype=np.float32)
    body, length = binary_of(array)
    (tmp_path / "request.bin").write_bytes(body)
    answer, head = tmp_path / "answer.bin", tmp_path / "head.txt"
    curl(
        *("-o", answer, "-D", head, "--data-binary", f"@{tmp_path / 'request.bin'}"),
        *("-H", f"Inference-Header-Content-Length: {length}", f"{server.url}/{ECHO}"),
    )
    lines = head.read_text("latin-1").lower().splitlines()
    (start,) = [int(line.split(":")[1]) for line in lines if line.startswith("inference-header")]
    assert "content-type: application/octet-stream" in lines
    assert answer.read_bytes()[start:] == array.tobytes()


@pytest.mark.parametrize("options", [[], ["-H", "Expect: 100-continue"], ["-H", "Expect:"]])
def test_curl_large_bodies(roomy: Workbench, curl: Any, options: list[str]) -> None:
    """A body over 1 MiB, for which curl waits to be told to go on, comes whole and goes back."""
    done = curl("-v", *options, "-d", "@-", f"{roomy.url}/{ECHO}", given=body_of(400_000))
    assert len(data_of(done.stdout)) == 400_000
    assert (b"< HTTP/1.1 100 Continue" in done.stderr) is (options != ["-H", "Expect:"])


@pytest.mark.parametrize("count", [1, 100_000])
def test_curl_chunks(roomy: Workbench, curl: Any, count: int) -> None:
    """``-H 'Transfer-Encoding: chunked'`` sends a body without a length."""
    options = ["-H", "Transfer-Encoding: chunked", "-d", "@-"]
    done = curl(*options, f"{roomy.url}/{ECHO}", given=body_of(count))
    assert len(data_of(done.stdout)) == count


@pytest.mark.parametrize(("verb", "start"), [("", b"{"), ("_stream", b"data: {")])
def test_curl_generates(server: Workbench, curl: Any, verb: str, start: bytes) -> None:
    """``curl -N -d`` of flat JSON, as documentation has it."""
    url = f"{server.url}/v2/models/echo_bytes/generate{verb}"
    answer = curl("-N", "-d", '{"x": "hello"}', url).stdout
    assert answer.startswith(start)
    assert b'"y":"hello"' in answer


# ── by hand ─────────────────────────────────────────────────────────────────


def spoken(workbench: Workbench, *pieces: bytes) -> bytes:
    """All that is answered to *pieces*, sent one after the other, until the server hangs up."""
    host, port = workbench.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in pieces:
            connection.sendall(piece)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def post(path: str, body: bytes, *headers: str, version: str = "1.1") -> bytes:
    """An infer request as it is on the wire."""
    lines = [
        f"POST {path} HTTP/{version}",
        "Host: localhost",
        f"Content-Length: {len(body)}",
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


def test_proxies(server: Workbench) -> None:
    """A request line with the whole address, as proxies are sent it, is the same request."""
    line = (
        f"GET {server.url}/v2/health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    assert spoken(server, line.encode()).endswith(b'{"live":true}')
