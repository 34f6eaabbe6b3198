"""Tritonclient's compression, and curl's, against a live server."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import zlib
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput

from workbench import Workbench

CODINGS = [None, "gzip", "deflate"]


def floats(array: np.ndarray, *, binary: bool) -> InferInput:
    """The FP32 input ``x``."""
    tensor = InferInput("x", list(array.shape), "FP32")
    tensor.set_data_from_numpy(array, binary_data=binary)
    return tensor


@pytest.mark.parametrize("binary_out", [True, False])
@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("back", CODINGS)
@pytest.mark.parametrize("there", CODINGS)
def test_triton_compression(
    triton: Any, there: str | None, back: str | None, binary_in: bool, binary_out: bool
) -> None:
    """Either direction may be compressed in either way, JSON and binary, small and large."""
    for count in (1, 20_000):
        array = np.arange(count, dtype=np.float32)
        result = triton.infer(
            "echo_fp32",
            [floats(array, binary=binary_in)],
            outputs=[InferRequestedOutput("y", binary_data=binary_out)],
            request_compression_algorithm=there,
            response_compression_algorithm=back,
        )
        np.testing.assert_array_equal(result.as_numpy("y"), array)


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_what_triton_asks_compressed_is(server: Workbench, coding: str) -> None:
    """The answer that it asks for compressed really is, and counts its JSON uncompressed."""
    body, length = InferenceServerClient.generate_request_body(
        [floats(np.zeros(20_000, np.float32), binary=True)]
    )
    assert length is not None
    with httpx.stream(
        "POST",
        f"{server.url}/v2/models/echo_fp32/infer",
        content=body,
        headers={"Accept-Encoding": coding, "Inference-Header-Content-Length": str(length)},
    ) as response:
        raw = b"".join(response.iter_raw())
    assert response.headers["content-encoding"] == coding
    assert int(response.headers["content-length"]) == len(raw) < 4000
    whole = {"gzip": gzip.decompress, "deflate": zlib.decompress}[coding](raw)
    start = int(response.headers["inference-header-content-length"])
    assert json.loads(whole[:start])["outputs"][0]["parameters"] == {"binary_data_size": 80_000}
    assert len(whole) == start + 80_000
    result = InferenceServerClient.parse_response_body(
        raw, header_length=start, content_encoding=coding
    )
    assert not result.as_numpy("y").any()


def test_triton_async_infer_compressed(server: Workbench) -> None:
    """Its greenlets compress too."""
    array = np.arange(1000, dtype=np.float32)
    with InferenceServerClient(server.url.removeprefix("http://"), concurrency=4) as client:
        runs = [
            client.async_infer(
                "echo_fp32",
                [floats(array, binary=True)],
                request_compression_algorithm="gzip",
                response_compression_algorithm="deflate",
            )
            for _ in range(8)
        ]
        for run in runs:
            np.testing.assert_array_equal(run.get_result().as_numpy("y"), array)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_compresses(server: Workbench, tmp_path: Path) -> None:
    """A file that gzip made goes with its Content-Encoding; --compressed reads the answer."""
    entry = {"name": "x", "shape": [5000], "datatype": "FP32", "data": [1.0] * 5000}
    path = tmp_path / "request.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"inputs": [entry]}).encode()))
    done = subprocess.run(
        ["curl", "-s", "--compressed", "-D", "-", "-H", "Content-Encoding: gzip",
         "--data-binary", f"@{path}", f"{server.url}/v2/models/echo_fp32/infer"],
        capture_output=True, check=True, timeout=60,
    )  # fmt: skip
    head, _, body = done.stdout.partition(b"\r\n\r\n")
    assert b"content-encoding: " in head.lower()
    assert len(json.loads(body)["outputs"][0]["data"]) == 5000


@pytest.mark.parametrize("path", ["v2/models/digits", "v2/models/nobody/ready", "v2/health/live"])
def test_only_inference_is_compressed(client: httpx.Client, path: str) -> None:
    """Errors and what describes come as they are, whatever a client accepts."""
    response = client.get(path, headers={"Accept-Encoding": "gzip, deflate"})
    assert "content-encoding" not in response.headers


def test_a_coding_that_is_not_read(client: httpx.Client) -> None:
    """Another Content-Encoding is a 501 that says which are read."""
    url = "/v2/models/echo_fp32/infer"
    response = client.post(url, content=b"{}", headers={"Content-Encoding": "br"})
    assert response.status_code == 501
    assert "gzip and deflate" in response.json()["error"]
