"""Rules that hold on all wires, on those of SageMaker."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from onnx_models import identity

from workbench import Workbench

TOKEN = "a-token-of-my-own-0123"
FLOATS = {"inputs": {"x": ("FP32", [-1])}, "outputs": {"y": ("FP32", [-1])}}


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/endpoints/double/invocations", ""),
        ("/models/code/invoke", ""),
        ("/invocations", "code"),
        ("/invocations?model_name=code", ""),
        ("/invocations", ""),
        ("/invocations", "artifact"),
        ("/endpoints/any/invocations", "artifact"),
    ],
)
def test_closed_functions(tmp_path: Path, path: str, target: str) -> None:
    """By whichever route they are run, they are refused, with the token too."""
    code = tmp_path / "artifact" / "code"
    code.mkdir(parents=True)
    (code / "inference.py").write_text(
        "def model_fn(folder):\n    return 2\n\n\ndef predict_fn(x, model):\n    return x * model\n"
    )
    settings: dict[str, Any] = {"artifact_code": True, "artifacts": tmp_path, "token": TOKEN}
    headers = {"X-Amzn-SageMaker-Target-Model": target} if target else {}
    with Workbench(device="cpu", restrict="functions", **settings) as workbench:
        if path.startswith("/endpoints/double"):
            workbench.register(lambda x: 2 * x, name="double", **FLOATS)
        load = {"model_name": "code", "url": str(code.parent)}
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        assert httpx.post(f"{workbench.url}/models", json=load, headers=bearer).status_code == 200
        for token, status in ((TOKEN, 403), (TOKEN[::-1], 401)):
            headers["Authorization"] = f"Bearer {token}"
            reply = httpx.post(workbench.url + path, json=[2.0], headers=headers)
            assert reply.status_code == status


@pytest.mark.parametrize("given", [[0.5], [[0.5, 1.5]], [[[1.0], [2.0]], [[3.0], [4.0]]]])
def test_any_rank(tmp_path: Path, given: Any) -> None:
    """JSON as arrays and as rows, and JSON lines, have the shape that they are of."""
    identity(tmp_path / "model.onnx", dims=None)
    with Workbench(device="cpu") as workbench:
        load = {"model_name": "any", "url": str(tmp_path)}
        httpx.post(f"{workbench.url}/models", json=load).raise_for_status()
        url = f"{workbench.url}/models/any/invoke"
        for body, answer in ((given, given), ({"instances": given}, {"predictions": given})):
            for _ in range(3):
                reply = httpx.post(url, json=body)
                assert (reply.status_code, reply.json()) == (200, answer)
        lines = "".join(json.dumps(row) + "\n" for row in given)
        headers = {"content-type": "application/jsonlines", "accept": "application/jsonlines"}
        reply = httpx.post(url, content=lines, headers=headers)
        assert [json.loads(line) for line in reply.text.splitlines()] == given


def test_a_function_that_runs_out_of_memory() -> None:
    """It is the platform's error of a model, with the status of the container."""

    def fails(x: Any) -> Any:
        raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")

    with Workbench(device="cpu") as workbench:
        workbench.register(fails, **FLOATS)
        reply = httpx.post(f"{workbench.url}/endpoints/fails/invocations", json=[1.0])
    assert (reply.status_code, reply.json()["OriginalStatusCode"]) == (424, 507)
    assert "fails:1 raised RuntimeError: CUDA out of mem" in reply.json()["OriginalMessage"]
