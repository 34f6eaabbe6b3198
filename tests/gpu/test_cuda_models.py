"""CUDA graphs and fp16 on a real GPU; skipped, with the reason, where there is none."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx_models import save, source

from workbench.backends.onnx import graphs as onnx_graphs
from workbench.backends.onnx.fp16 import alike
from workbench.backends.onnx.runtime import OnnxBackend
from workbench.backends.onnx.session import OnnxSession
from workbench.backends.onnx_tiers.prepared import PreparedModels
from workbench.events import EventLog
from workbench.model import ModelConfig, ModelId, ModelSource
from workbench.samples import write_models
from workbench.tensor import Tensor

pytestmark = pytest.mark.gpu


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model of some MiB, of many rows."""
    (folder,) = write_models(tmp_path / "models", 1, 2**22)
    return folder / "1" / "model.onnx"


@pytest.fixture
def session(model: Path) -> Iterator[OnnxSession]:
    """It, with graphs."""
    log = EventLog()
    session = OnnxBackend(cuda_device=0, log=log).load(source(model, graphs=True))
    assert log.since() == ()
    assert session._graphs is not None
    yield session
    session.close()


@pytest.fixture
def slots(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each run that went through a slot since: whether it was a replay."""
    runs: list[bool] = []
    plain = onnx_graphs._Slot.run

    def run(slot: Any, inputs: Any) -> Any:
        runs.append(slot.captured)
        return plain(slot, inputs)

    monkeypatch.setattr(onnx_graphs._Slot, "run", run)
    return runs


def rows(session: OnnxSession, count: int, seed: int) -> Tensor:
    width = session.signature.inputs["x"].shape[1]
    random = np.random.default_rng(seed)
    return Tensor("FP32", random.random((count, width), dtype=np.float32))


def answer(session: OnnxSession, x: Tensor) -> np.ndarray:
    (y,) = session.run({"x": x}, ("y",))
    return y.array


def test_graphs_answer_the_same(model: Path, session: OnnxSession, slots: list[bool]) -> None:
    """With graphs and without, answers are the same, also where a shape is replayed."""
    plain = OnnxBackend(cuda_device=0).load(source(model))
    for seed in range(5):
        for count in (1, 3, 8):
            x = rows(plain, count, seed)
            np.testing.assert_allclose(answer(session, x), answer(plain, x), rtol=1e-3, atol=1e-5)
    plain.close()
    assert slots == [False] * 3 + [True] * 9


def test_graphs_beside_other_models(
    model: Path, session: OnnxSession, slots: list[bool], tmp_path: Path
) -> None:
    """While others load, run and unload, captures and replays fail nobody."""
    backend = OnnxBackend(cuda_device=0)
    plain = backend.load(source(model))
    barrier = threading.Barrier(4)

    def with_graphs(number: int) -> None:
        barrier.wait(30)
        for seed in range(30):
            x = rows(plain, 1 + (number + seed) % 6, seed)
            np.testing.assert_allclose(answer(session, x), answer(plain, x), rtol=1e-3, atol=1e-5)

    def others(_number: int) -> None:
        barrier.wait(30)
        for seed in range(10):
            other = backend.load(source(model))
            assert np.isfinite(answer(other, rows(other, 5 + seed, seed))).all()
            other.close()

    with ThreadPoolExecutor(4) as pool:
        done = [pool.submit(with_graphs, n) for n in range(2)]
        done += [pool.submit(others, n) for n in range(2)]
        for future in done:
            future.result(60)
    for seed in range(3):
        answer(session, rows(plain, 2, seed))
    plain.close()
    assert slots[-1]


def test_numbers_that_the_cpu_reads(tmp_path: Path, slots: list[bool]) -> None:
    """A model that reads a shape from an input is not captured, and answers by its numbers."""
    info = helper.make_tensor_value_info
    inputs = [info("x", TensorProto.FLOAT, ["n"]), info("s", TensorProto.INT64, [2])]
    node = helper.make_node("Reshape", ["x", "s"], ["y"])
    path = save(tmp_path / "m.onnx", [node], inputs, [info("y", TensorProto.FLOAT, ["a", "b"])])
    log = EventLog()
    session = OnnxBackend(cuda_device=0, log=log).load(source(path, graphs=True))
    x = Tensor("FP32", np.arange(4, dtype=np.float32))
    for shape in ([2, 2], [2, 2], [4, 1], [1, 4]):
        (y,) = session.run({"x": x, "s": Tensor("INT64", np.array(shape))}, ["y"])
        assert y.array.tolist() == x.array.reshape(shape).tolist()
    session.close()
    assert [entry.event.kind for entry in log.since()] == ["ignored"]
    assert slots == []


def test_fp16(model: Path, tmp_path: Path) -> None:
    """A model that was converted answers alike, with graphs and without, and is booked smaller."""
    cache = PreparedModels(tmp_path / "cache", 2**30, EventLog())
    backend = OnnxBackend(cuda_device=0, prepared=cache)

    def of(precision: str, *, graphs: bool = False) -> ModelSource:
        config = ModelConfig("m", parameters={"precision": precision}, graphs=graphs)
        return ModelSource(ModelId("m", 1), config, model)

    plain, halves, replayed = map(backend.load, (of("fp32"), of("fp16"), of("fp16", graphs=True)))
    cache.close()
    for seed in range(4):
        x = rows(plain, 3, seed)
        wanted = answer(plain, x)
        assert all(alike(wanted, answer(each, x)) for each in (halves, replayed))
    assert halves.footprint.nbytes < 0.6 * plain.footprint.nbytes
    for session in (plain, halves, replayed):
        session.close()
