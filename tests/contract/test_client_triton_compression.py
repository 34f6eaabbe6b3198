"""Tritonclient's compression, and curl's, against a live server."""

import gzip
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from messages import given
from tritonclient.http import InferRequestedOutput

from workbench import Workbench

CODINGS = [None, "gzip", "deflate"]


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
            [given(array, binary=binary_in)],
            outputs=[InferRequestedOutput("y", binary_data=binary_out)],
            request_compression_algorithm=there,
            response_compression_algorithm=back,
        )
        np.testing.assert_array_equal(result.as_numpy("y"), array)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_compresses(server: Workbench, tmp_path: Path) -> None:
    """A file that gzip made goes with its Content-Encoding; --compressed reads the answer."""
    entry = {"name": "x", "shape": [5000], "datatype": "FP32", "data": [1.0] * 5000}
    path = tmp_path / "request.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"inputs": [entry]}).encode()))
    done = subprocess.run(
        ["curl", "-s", "--compressed", "-D", "-", "-H", "Content-Encoding: gzip",
         "--data-binary", f"@{path}", f"{server.url}/v2/models/echo_fp32/infer"],
        capture_output=True, check=True, timeout=200,
    )  # fmt: skip
    head, _, body = done.stdout.partition(b"\r\n\r\n")
    assert b"content-encoding: " in head.lower()
    assert len(json.loads(body)["outputs"][0]["data"]) == 5000
