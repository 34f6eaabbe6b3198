"""A model runs on the samples of its configuration before it is READY."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import inside
import numpy as np
import pytest
from onnx_models import identity, widened

from doubles import FakeMeter, FakeSession
from workbench.backends.onnx.session import OnnxSession
from workbench.core import ServerCore
from workbench.core.lifecycle.warm_up import request_of
from workbench.core.records import Records
from workbench.core.runs import Runs
from workbench.errors import LoadFailed
from workbench.events import EventLog, MemoryDrifted
from workbench.inference import InferRequest
from workbench.memory.watch import MemoryWatch
from workbench.model import ModelId, ModelState, Signature, TensorSpec, WarmUpInput, WarmUpSample
from workbench.residency import Purpose
from workbench.settings import Settings
from workbench.stop import CancellationToken
from workbench.tensor import DATATYPES, Tensor

M = ModelId("m", 1)


@pytest.fixture
def core(tmp_path: Path) -> Iterator[ServerCore]:
    """Of a model *m*, whose configuration each test writes."""
    (tmp_path / "m").mkdir()
    with inside.opened(ServerCore(Settings.of(tmp_path, environ={}, device="cpu"))) as core:
        yield core


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "m"


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """What each run got as *x*."""
    seen: list[np.ndarray] = []
    spy(monkeypatch, lambda inputs: seen.append(inputs["x"].array))
    return seen


def spy(monkeypatch: pytest.MonkeyPatch, look: Callable[[Any], None]) -> None:
    """*look* at the inputs of each run before it begins."""
    run = OnnxSession.run

    def spied(self: OnnxSession, inputs: Any, *rest: Any) -> list[Tensor]:
        look(inputs)
        return run(self, inputs, *rest)

    monkeypatch.setattr(OnnxSession, "run", spied)


def configure(folder: Path, *samples: str, batch: int = 8) -> None:
    text = " ".join(f"model_warmup {{ {sample} }}" for sample in samples)
    (folder / "config.pbtxt").write_text(f"max_batch_size: {batch} {text}")


def x(data: str, dims: str = "2") -> str:
    return f'inputs {{ key: "x" value {{ data_type: TYPE_FP32 dims: [{dims}] {data} }} }}'


def is_brief(core: ServerCore) -> bool:
    return inside.is_brief(core, "m")


def test_samples_run_in_order(core: ServerCore, folder: Path, runs: list[np.ndarray]) -> None:
    """Each sample runs as often as it is to, with its batch; it counts as no request."""
    identity(folder / "model.onnx", dims=("n", 2))
    (folder / "warmup").mkdir()
    (folder / "warmup" / "pair").write_bytes(np.array([1.5, 2.5], np.float32).tobytes())
    configure(
        folder,
        f'name: "a" batch_size: 2 count: 2 {x("zero_data: true")}',
        f'batch_size: 3 {x("""input_data_file: "pair" """)}',
        f"batch_size: 0 {x('zero_data: true')}",
        f"batch_size: 1 {x('random_data: true')}",
    )
    assert is_brief(core)  # though only a request asked for it
    assert [run.shape for run in runs] == [(2, 2), (2, 2), (3, 2), (1, 2)]
    assert runs[2].tolist() == [[1.5, 2.5]] * 3
    status = core.status.of("m")
    assert (status.requests.succeeded, status.requests.failed) == (0, 0)


def test_a_sample_that_changes(core: ServerCore, folder: Path, runs: list[np.ndarray]) -> None:
    """The file of a sample is one of the model's: where it changes, a load loads anew."""
    identity(folder / "model.onnx", dims=("n", 2))
    (folder / "warmup").mkdir()
    configure(folder, f'batch_size: 1 {x("""input_data_file: "pair" """)}')
    for pair in ([1, 2], [1, 2], [3, 4, 5]):
        (folder / "warmup" / "pair").write_bytes(np.array(pair[:2], np.float32).tobytes())
        core.models.load("m")
        core.models.load("m")
    assert [run.tolist() for run in runs] == [[[1, 2]], [[1, 2]], [[3, 4]]]


def test_a_model_that_does_not_batch(
    core: ServerCore, folder: Path, runs: list[np.ndarray]
) -> None:
    """Without batches the dims are all of the shape, whatever batch_size is above 0."""
    identity(folder / "model.onnx", dims=("n", 2))
    configure(folder, f"batch_size: 5 {x('zero_data: true', '3, 2')}", batch=0)
    inside.lease(core, "m").release()
    assert [run.shape for run in runs] == [(3, 2)]


def test_before_it_is_ready(core: ServerCore, folder: Path, monkeypatch: Any) -> None:
    """A model is LOADING until its last sample has run."""
    identity(folder / "model.onnx", dims=("n", 2))
    configure(folder, f"batch_size: 1 {x('zero_data: true')}")
    states: list[ModelState] = []
    spy(monkeypatch, lambda _: states.append(core._running().residency.state(M)))
    assert core.models.load("m").state is ModelState.READY
    assert states == [ModelState.LOADING]


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        (x("zero_data: true", "3"), r"input 'x' of m:1 takes shape \[-1, 2\], got \[1, 3\]"),
        (x("zero_data: true").replace('"x"', '"y"'), "m:1 has no input 'y'"),
        (x('input_data_file: "short"'),
         r"the file '.*/short': input 'x' has 3 bytes of data; FP32 of shape \[2\] takes 8"),
        (x("zero_data: true", "2").replace("FP32", "INT8"), "input 'x' of m:1 takes FP32"),
    ],
)  # fmt: skip
def test_a_sample_that_fails(core: ServerCore, folder: Path, sample: str, message: str) -> None:
    """It fails the load, with its name and the reason, and leaves nothing behind."""
    identity(folder / "model.onnx", dims=("n", 2))
    (folder / "warmup").mkdir()
    (folder / "warmup" / "short").write_bytes(b"abc")
    configure(folder, f'name: "s" batch_size: 1 {sample}')
    with pytest.raises(LoadFailed, match=f"^sample 's' of model_warmup of m:1 failed: {message}"):
        core.models.load("m")
    assert core.status.snapshot().models == ()
    assert core.status.snapshot().held_nbytes == 0
    configure(folder)
    assert core.models.load("m").state is ModelState.READY


def test_a_file_that_is_too_large(tmp_path: Path) -> None:
    """More than a sample may have is not read, however little of it is wanted."""
    with (tmp_path / "large").open("wb") as file:
        file.truncate(2**30)
    sample = WarmUpSample("s", 1, 1, {"x": WarmUpInput("BYTES", (1,), tmp_path / "large")})
    with pytest.raises(LoadFailed, match=r"large' is larger than 256\.0 MiB$"):
        request_of(M, Signature("fake", {}, {}), sample, CancellationToken())


def test_a_file_that_goes(core: ServerCore, folder: Path) -> None:
    """Data that is gone by the time of the load fails it, in one line."""
    (folder / "warmup").mkdir()
    sample = WarmUpSample("s", 1, 1, {"x": WarmUpInput("FP32", (2,), folder / "warmup" / "gone")})
    signature = Signature("fake", {"x": TensorSpec("x", "FP32", (2,))}, {})
    with pytest.raises(LoadFailed, match=r"gone' cannot be read: No such file or directory$"):
        request_of(M, signature, sample, CancellationToken())


@pytest.mark.parametrize("datatype", DATATYPES)
@pytest.mark.parametrize("data", ["zero", "random"])
@pytest.mark.parametrize("batch", [0, 4])
def test_every_datatype(datatype: str, data: str, batch: int) -> None:
    """Made-up data is of the datatype and the shape, with the batch; zeros are, and texts empty."""
    signature = Signature("fake", {}, {}, batch)
    sample = WarmUpSample("s", 3, 1, {"x": WarmUpInput(datatype, (2, 5), data)})
    tensor = request_of(M, signature, sample, CancellationToken()).inputs["x"]
    assert (tensor.datatype, tensor.array.dtype) == (datatype, DATATYPES[datatype].dtype)
    assert tensor.shape == ((3, 2, 5) if batch else (2, 5))
    assert tensor.array.flags.c_contiguous
    assert bool(tensor.array.any()) == (data == "random")
    if datatype == "BYTES":
        assert {type(element) for element in tensor.array.flat} == {bytes}


def test_what_it_teaches(core: ServerCore, folder: Path) -> None:
    """What the samples' runs took is known before the first request."""
    widened(folder / "model.onnx", 2**22)
    configure(folder, f"batch_size: 1 {x('zero_data: true', '4, 1')}", batch=0)
    inside.lease(core, "m").release()
    assert 60 * 2**20 <= core.status.of("m").run_nbytes < 80 * 2**20
    assert not any(isinstance(e.event, MemoryDrifted) for e in core.events.since(0))


def test_what_a_gpu_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the first runs took and an arena keeps is the model's, in the books too."""
    meter = FakeMeter(keeps=True)
    watch = MemoryWatch("fake", meter, EventLog())
    session = FakeSession(M, 40, lambda: None)

    def run(inputs: Any, *_: object) -> list[Tensor]:
        assert meter.nbytes is not None
        meter.most_nbytes = meter.nbytes + 30
        return [inputs["x"]]

    monkeypatch.setattr(session, "run", run)
    request = InferRequest("m", {"x": Tensor.of(np.zeros(1, np.float32))})
    Runs(Records()).warm_up(M, session, request, watch)
    assert session.footprint.nbytes == 70


def test_an_unload_ends_it(core: ServerCore, folder: Path, monkeypatch: Any) -> None:
    """An unload while a sample runs ends that and the load."""
    identity(folder / "model.onnx", dims=("n", 2))
    configure(folder, f"batch_size: 1 count: 10000 {x('zero_data: true')}")
    begun, ended = threading.Event(), threading.Event()
    run = OnnxSession.run

    def slow(
        self: OnnxSession, inputs: Any, outputs: Any, into: Any, stop: CancellationToken
    ) -> list[Tensor]:
        begun.set()
        with stop.calls(ended.set):
            assert ended.wait(30)
        return run(self, inputs, outputs, into, stop)

    monkeypatch.setattr(OnnxSession, "run", slow)
    loading = core._running().residency.acquire(M, purpose=Purpose.LOAD)
    assert begun.wait(30)
    core.models.unload("m")
    assert loading.exception(30) is not None
    core._running().residency.unload(M, until_gone=True).result(30)  # the engine ends its run
    assert core.status.snapshot().models == ()
