"""An ONNX model of BF16, over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from onnx_models import identity, written

from workbench import Workbench


def scaled(path: Path) -> Path:
    """A model of y = x * by, with x and y of BF16 and by of FP32."""
    return written(
        path,
        """(bfloat16[n] x, float[1] by) => (bfloat16[n] y) {
            wide = Cast <to = 1> (x)
            product = Mul(wide, by)
            y = Cast <to = 16> (product)
        }""",
    )


@pytest.fixture(scope="module")
def halves(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of a server of the models ``same`` and ``scaled``."""
    folder = tmp_path_factory.mktemp("models")
    for name in ("same", "scaled"):
        (folder / name / "1").mkdir(parents=True)
    identity(folder / "same" / "1" / "model.onnx", "BF16")
    scaled(folder / "scaled" / "1" / "model.onnx")
    with Workbench(folder) as workbench, httpx.Client(base_url=workbench.url) as client:
        yield client


def ask(
    client: httpx.Client, model: str, inputs: list[Any], *blobs: bytes, binary: bool = True
) -> tuple[dict[str, Any], bytes]:
    """The JSON and the binary part of the answer."""
    outputs = [{"name": "y", "parameters": {"binary_data": binary}}]
    head = json.dumps({"inputs": inputs, "outputs": outputs}).encode()
    headers = {"Inference-Header-Content-Length": str(len(head))}
    response = client.post(
        f"/v2/models/{model}/infer", content=head + b"".join(blobs), headers=headers
    )
    assert response.status_code == 200, response.text
    length = int(response.headers.get("Inference-Header-Content-Length", len(response.content)))
    return json.loads(response.content[:length]), response.content[length:]


def bits_in(bits: np.ndarray) -> dict[str, Any]:
    parameters = {"binary_data_size": bits.nbytes}
    return {"name": "x", "datatype": "BF16", "shape": list(bits.shape), "parameters": parameters}


def test_metadata(halves: httpx.Client) -> None:
    """Metadata tells the datatype as Triton names it."""
    told = halves.get("/v2/models/same").json()
    assert told["inputs"] == [{"name": "x", "datatype": "BF16", "shape": [-1]}]
    assert told["outputs"] == [{"name": "y", "datatype": "BF16", "shape": [-1]}]


@pytest.mark.parametrize("count", [0, 1, 2**16])
def test_binary_both_ways(halves: httpx.Client, count: int) -> None:
    """Binary tensors come back to the bit, NaNs and negative zero among them."""
    bits = np.arange(count).astype("<u2")
    told, blob = ask(halves, "same", [bits_in(bits)], bits.tobytes())
    (output,) = told["outputs"]
    assert (output["datatype"], output["shape"]) == ("BF16", [count])
    assert output["parameters"] == {"binary_data_size": 2 * count}
    assert blob == bits.tobytes()


def test_beside_json(halves: httpx.Client) -> None:
    """BF16 as binary goes with FP32 as JSON, and comes back as binary, or as numbers in JSON."""
    bits = np.array([0x3F80, 0xC000], "<u2")
    by = {"name": "by", "datatype": "FP32", "shape": [1], "data": [1.5]}
    _, blob = ask(halves, "scaled", [by, bits_in(bits)], bits.tobytes())
    assert np.frombuffer(blob, "<u2").tolist() == [0x3FC0, 0xC040]
    told, blob = ask(halves, "scaled", [by, bits_in(bits)], bits.tobytes(), binary=False)
    assert told["outputs"][0]["data"] == [1.5, -3]
    assert not blob
