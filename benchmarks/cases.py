"""What is measured: the requests, and what the figures ought to be."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import bodies
import numpy as np
import onnxruntime
import orjson
from bodies import Asked
from models import IMAGE
from report import LATENCY, RATE, Row, Target

Array = np.ndarray[Any, np.dtype[Any]]

SMALL = (1, 64)
N_SMALL, N_IMAGES = 64, 4  # requests that a case sends in turn


@dataclass(frozen=True)
class Case:
    """One kind of request to one model, from so many clients at a time.

    *inputs* have all the same *shape*; *outputs* are the chosen ones, none for all.
    """

    row: Row
    body: bodies.Body
    model: str = "mlp"
    inputs: tuple[str, ...] = ("x",)
    outputs: tuple[str, ...] = ()
    shape: tuple[int, ...] = SMALL
    clients: int = 1

    @property
    def title(self) -> str:
        """What is sent."""
        return self.row.title.partition(", 16 clients")[0].partition(", 1 client")[0]

    @cached_property
    def asked(self) -> list[Asked]:
        """What its requests ask: of inputs random in [0, 1), always the same."""
        random = np.random.default_rng(1)
        return [
            Asked(
                self.model,
                {name: random.random(self.shape, dtype=np.float32) for name in self.inputs},
                self.outputs,
            )
            for _ in range(N_IMAGES if self.shape == IMAGE else N_SMALL)
        ]

    @cached_property
    def requests(self) -> list[bytes]:
        """The whole requests. Raises ``NotSent`` where a client is not installed."""
        return self.body(self.asked)

    def check(self, answers: list[tuple[dict[str, str], bytes]], models: Path) -> None:
        """Hold the answer to each request against ONNX Runtime's. Raises ``ValueError``."""
        session = onnxruntime.InferenceSession(
            str(models / self.model / "model.onnx"), providers=["CPUExecutionProvider"]
        )
        names = self.outputs or tuple(output.name for output in session.get_outputs())
        for asked, request, (headers, body) in zip(self.asked, self.requests, answers, strict=True):
            expected = session.run(names, asked.inputs)
            tensors = read_answer(headers, body, _id(request))
            if tuple(tensors) != names:
                raise ValueError(f"the answer has {list(tensors)}, not {list(names)}")
            for given, wanted in zip(tensors.values(), expected, strict=True):
                if given.shape != wanted.shape or not np.allclose(given, wanted, rtol=1e-4):
                    raise ValueError("the answer is not ONNX Runtime's")


def _id(request: bytes) -> str | None:
    """The id in a request, if it has one."""
    text = request[request.index(b"\r\n\r\n") :]
    found = bodies.ID.search(text)
    return found[1].decode() if found else None


def read_answer(headers: Mapping[str, str], body: bytes, id_: str | None) -> dict[str, Array]:
    """The tensors of an answer by name. Raises ``ValueError`` if it has another id."""
    coding = headers.get("content-encoding")
    if coding:
        body = zlib.decompress(body, 47)  # gzip or zlib
    n_json = int(headers.get("inference-header-content-length", len(body)))
    message, rest = orjson.loads(body[:n_json]), body[n_json:]
    if id_ is not None and message.get("id") != id_:
        raise ValueError(f"the answer's id is {message.get('id')}, not {id_}")
    tensors = {}
    for output in message["outputs"]:
        if "data" in output:
            data = np.array(output["data"], np.float32)
        else:
            nbytes = output["parameters"]["binary_data_size"]
            data, rest = np.frombuffer(rest[:nbytes], "<f4"), rest[nbytes:]
        tensors[output["name"]] = data.reshape(output["shape"])
    return tensors


def _many(title: str, *targets: Target, least: float = 1.8) -> Row:
    """Sixteen clients."""
    limit = Target("≥ 0.75× the bare server", 0.75, "bare")
    peer = Target(f"≥ {least}× Triton's C++", least, "triton_cpp")
    return Row(f"{title}, 16 clients, requests/s", RATE, (limit, peer, *targets))


def _one(title: str, *targets: Target) -> Row:
    """One client: as 1.43 times as fast it takes 0.7 of the time."""
    peer = Target("≤ 0.7× Triton's C++", 1 / 0.7, "triton_cpp")
    return Row(f"{title}, 1 client, p50", LATENCY, (peer, *targets))


TRITONCLIENT = "tritonclient's bytes: binary both ways"
KSERVE = "KServe's client's bytes: JSON, a new id each, gzip taken"
WITH_ID = "JSON with a new id each"
PLAIN = "JSON of nothing but one input"
PAIR = "tritonclient's bytes: two inputs, one of two outputs"
PAIR_JSON = "JSON by hand: two inputs, one of two outputs, id, parameters"
TWO: dict[str, Any] = {"model": "pair", "inputs": ("a", "b"), "outputs": ("y",)}
CASES = {
    "triton": Case(_many(TRITONCLIENT), bodies.tritonclient, clients=16),
    "triton_one": Case(_one(TRITONCLIENT), bodies.tritonclient),
    "kserve": Case(_many(KSERVE), bodies.kserve, clients=16),
    "kserve_one": Case(_one(KSERVE), bodies.kserve),
    "id": Case(_many(WITH_ID), bodies.json_with_id, clients=16),
    "id_one": Case(_one(WITH_ID), bodies.json_with_id),
    "rate": Case(
        _many(
            PLAIN,
            Target("≥ 10× MLServer", 10, "mlserver"),
            Target("≥ 5× Triton's Python backend", 5, "triton"),
        ),
        bodies.plain_json,
        clients=16,
    ),
    "latency": Case(
        _one(
            PLAIN,
            Target("≤ 0.25× MLServer", 4, "mlserver"),
            Target("≤ 0.5× Triton's Python backend", 2, "triton"),
        ),
        bodies.plain_json,
    ),
    "pair": Case(_many(PAIR, least=1.5), bodies.tritonclient, **TWO, clients=16),
    "pair_json": Case(_many(PAIR_JSON, least=1.5), bodies.json_by_hand, **TWO, clients=16),
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
        bodies.plain_json,
        "mean",
        shape=IMAGE,
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
        bodies.plain_json,
        "add",
        shape=IMAGE,
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
        bodies.binary,
        "add",
        shape=IMAGE,
    ),
}
