"""What is measured: the requests, and what the figures ought to be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import orjson
from models import IMAGE
from report import LATENCY, RATE, Row, Target

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Case:
    """One kind of request to one model, from so many clients at a time."""

    row: Row
    model: str
    shape: tuple[int, ...]
    clients: int = 1
    binary: bool = False  # the binary tensor extension, both ways

    @cached_property
    def array(self) -> Array:
        """The input, FP32 of *shape*: random in [0, 1), always the same."""
        return np.random.default_rng(1).random(self.shape, dtype=np.float32)

    @cached_property
    def request(self) -> tuple[Mapping[str, str], bytes]:
        """Headers and body. JSON is flat, its numbers as short as FP32 allows."""
        entry: dict[str, Any] = {"name": "x", "shape": self.shape, "datatype": "FP32"}
        if not self.binary:
            entry["data"] = self.array.reshape(-1)
            body = orjson.dumps({"inputs": [entry]}, option=orjson.OPT_SERIALIZE_NUMPY)
            return {"Content-Type": "application/json"}, body
        data = self.array.tobytes()
        entry["parameters"] = {"binary_data_size": len(data)}
        head = orjson.dumps({"inputs": [entry], "parameters": {"binary_data_output": True}})
        headers = {
            "Content-Type": "application/octet-stream",
            "Inference-Header-Content-Length": str(len(head)),
        }
        return headers, head + data

    def check(self, headers: Mapping[str, str], body: bytes, models: Path) -> None:
        """Hold an answer against ONNX Runtime's. Raises ``ValueError`` if it differs."""
        session = onnxruntime.InferenceSession(
            str(models / self.model / "model.onnx"), providers=["CPUExecutionProvider"]
        )
        (expected,) = session.run(None, {"x": self.array})
        given = self._tensor(headers, body)
        if given.shape != expected.shape or not np.allclose(given, expected, rtol=1e-5):
            raise ValueError("the answer is not ONNX Runtime's")

    def _tensor(self, headers: Mapping[str, str], body: bytes) -> Array:
        head = int(headers.get("inference-header-content-length", len(body)))
        if self.binary != (head < len(body)):
            raise ValueError(f"the answer is {'no ' if self.binary else ''}binary tensor")
        (output,) = orjson.loads(body[:head])["outputs"]
        data = np.frombuffer(body[head:], "<f4") if self.binary else np.array(output["data"])
        return data.astype(np.float32).reshape(output["shape"])


SMALL = (1, 64)
CASES = {
    "rate": Case(
        Row(
            "small JSON, 16 clients, requests/s",
            RATE,
            (
                Target("≥ 10× MLServer", 10, "mlserver"),
                Target("≥ 5× Triton's Python backend", 5, "triton"),
                Target("≥ 1.8× Triton's C++ (45,000 to 25,000)", 1.8, "triton_cpp"),
            ),
        ),
        "mlp",
        SMALL,
        clients=16,
    ),
    "latency": Case(
        Row(
            "small JSON, 1 client, p50",
            LATENCY,
            (
                Target("≤ 0.25× MLServer", 4, "mlserver"),
                Target("≤ 0.5× Triton's Python backend", 2, "triton"),
            ),
        ),
        "mlp",
        SMALL,
    ),
    "image": Case(
        Row(
            "1×3×224×224 as JSON, small answer, p50",
            LATENCY,
            (
                Target("≥ 1.8× MLServer", 1.8, "mlserver"),
                Target("≥ 2× Triton's C++", 2, "triton_cpp"),
                Target("≥ 3.5× KServe", 3.5, "kserve"),
            ),
        ),
        "mean",
        IMAGE,
    ),
    "images": Case(
        Row(
            "the same tensor in and out as JSON, p50",
            LATENCY,
            (
                Target("≤ 6 ms", 6e-3),
                Target("≥ 4× Triton's C++ (6 to 24 ms)", 4, "triton_cpp"),
                Target("≥ 2.3× MLServer (6 to 14 ms)", 14 / 6, "mlserver"),
                Target("≥ 27× KServe (6 to 165 ms)", 165 / 6, "kserve"),
            ),
        ),
        "add",
        IMAGE,
    ),
    "binary": Case(
        Row(
            "the same, binary both ways, p50",
            LATENCY,
            (
                Target("as fast as Triton's C++", 1, "triton_cpp"),
                Target("≥ 10× KServe", 10, "kserve"),
            ),
        ),
        "add",
        IMAGE,
        binary=True,
    ),
}
