"""Runs that are captured and replayed: all of it but the replaying, on the CPU."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import ONNX_TYPES, identity, loop, save, source

from workbench import Workbench
from workbench.backends.onnx import graphs as onnx_graphs
from workbench.backends.onnx.errors import load_error
from workbench.backends.onnx.graphs import Device, unfit_session
from workbench.backends.onnx.runtime import OnnxBackend
from workbench.backends.onnx.session import OnnxSession
from workbench.errors import InvalidRequest, LoadFailed, RequestStopped, RunFailed
from workbench.events import EventLog, OptionIgnored
from workbench.gate import GATE
from workbench.model import ModelId
from workbench.stop import Stop
from workbench.tensor import DATATYPES, Tensor

FP32, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


class Captured(NamedTuple):
    """A run that went through a slot: the slot's options, whether it was a replay, and where."""

    slot: int
    replayed: bool
    thread: threading.Thread


@pytest.fixture
def slots(monkeypatch: pytest.MonkeyPatch) -> list[Captured]:
    """The runs that went through slots since."""
    runs: list[Captured] = []
    plain = onnx_graphs._Slot.run

    def run(slot: Any, inputs: Any) -> Any:
        runs.append(Captured(id(slot), slot.captured, threading.current_thread()))
        return plain(slot, inputs)

    monkeypatch.setattr(onnx_graphs._Slot, "run", run)
    return runs


def load(path: Path) -> OnnxSession:
    return OnnxBackend(accelerated=True).load(source(path, graphs=True))


def info(name: str, element_type: int = FP32, dims: Any = ("n",)) -> Any:
    return helper.make_tensor_value_info(name, element_type, dims)


@pytest.fixture
def session(tmp_path: Path) -> Iterator[OnnxSession]:
    """A model of two outputs: y is the square of x, z whether x is below 0."""
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["y"]),
        helper.make_node("Less", ["x", "zero"], ["z"]),
    ]
    zero = numpy_helper.from_array(np.float32(0), "zero")
    path = save(tmp_path / "m.onnx", nodes, [info("x")], [info("y"), info("z", BOOL)], [zero])
    session = load(path)
    yield session
    session.close()


def fp32(*numbers: float) -> Tensor:
    return Tensor("FP32", np.array(numbers, np.float32))


def squares(session: OnnxSession, *numbers: float) -> list[float]:
    (y,) = session.run({"x": fp32(*numbers)}, ["y"])
    squared: list[float] = y.array.tolist()
    return squared


def test_a_shape_that_returns_is_captured(session: OnnxSession, slots: list[Captured]) -> None:
    """The first run of a shape is as ever, the second captured, and all others replayed."""
    assert squares(session, 1, -2) == [1, 4]
    assert slots == []
    for number in (3, 4, 5):
        assert squares(session, number, 0) == [number**2, 0]
    assert [run.replayed for run in slots] == [False, True, True]
    assert len({run.slot for run in slots}) == 1


def test_shapes_have_slots_of_their_own(session: OnnxSession, slots: list[Captured]) -> None:
    """Each shape, and each choice of outputs, is captured for itself."""
    for _ in range(3):
        assert squares(session, 2) == [4]
        assert squares(session, 2, 3) == [4, 9]
        z, y = session.run({"x": fp32(-1, 2)}, ["z", "y"])
        assert (z.array.tolist(), y.array.tolist()) == ([True, False], [1, 4])
    assert [run.replayed for run in slots] == [False] * 3 + [True] * 3
    assert len({run.slot for run in slots}) == 3


def test_more_shapes_than_slots(session: OnnxSession, slots: list[Captured]) -> None:
    """Where all slots are taken, a further shape is run as ever."""
    for _ in range(3):
        for size in range(1, 12):
            assert squares(session, *range(size)) == [n**2 for n in range(size)]
    assert len({run.slot for run in slots}) == onnx_graphs._SLOTS_MOST
    assert len(slots) == 2 * onnx_graphs._SLOTS_MOST


def test_many_shapes(session: OnnxSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more shapes are remembered than a few; the rest is learned anew."""
    monkeypatch.setattr(onnx_graphs, "_SHAPES_MOST", 3)
    for size in range(1, 9):
        squares(session, *range(size))
        assert len(session._graphs._seen) <= 3  # type: ignore[union-attr]


@pytest.mark.parametrize("datatype", sorted(set(ONNX_TYPES) - {"BYTES", "BF16"}))
@pytest.mark.parametrize("dims", [("n",), ()], ids=["vector", "scalar"])
def test_every_datatype(tmp_path: Path, datatype: str, dims: Any, slots: list[Captured]) -> None:
    """Every datatype that is a number goes through a slot unchanged, and so do scalars."""
    session = load(identity(tmp_path / "m.onnx", datatype, dims))
    array = np.array([0, 1, 1] if dims else 1, DATATYPES[datatype].dtype)
    for _ in range(3):
        (answer,) = session.run({"x": Tensor(datatype, array)}, ["y"])
        assert answer.datatype == datatype
        assert answer.array.dtype == array.dtype
        assert answer.array.tolist() == array.tolist()
    session.close()
    assert len(slots) == 2


def test_inputs_as_they_come(session: OnnxSession, slots: list[Captured]) -> None:
    """Views that are read-only, not aligned or not contiguous are read right."""
    body = b"x" + np.arange(4, dtype=np.float32).tobytes()
    unaligned = np.frombuffer(memoryview(body)[1:], np.float32)
    strided = np.arange(8, dtype=np.float32)[::2]
    for array in (unaligned, strided, unaligned, strided):
        (y,) = session.run({"x": Tensor("FP32", array)}, ["y"])
        assert y.array.tolist() == (array**2).tolist()
    assert len(slots) == 3


def test_answers_are_their_readers(session: OnnxSession, slots: list[Captured]) -> None:
    """No run writes into the answer of another, nor does what a reader writes come back."""
    squares(session, 1, 2)
    (before,) = session.run({"x": fp32(3, 4)}, ["y"])
    (after,) = session.run({"x": fp32(5, 6)}, ["y"])
    assert (before.array.tolist(), after.array.tolist()) == ([9, 16], [25, 36])
    after.array[:] = 7
    assert squares(session, 1, 2) == [1, 4]
    assert len(slots) == 3


def test_nothing_to_compute(session: OnnxSession, slots: list[Captured]) -> None:
    """Tensors without elements are not captured."""
    for _ in range(3):
        assert squares(session) == []
    assert slots == []


def test_large_runs(
    session: OnnxSession, slots: list[Captured], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What would take much memory in a slot is not captured."""
    monkeypatch.setattr(onnx_graphs, "_SLOT_NBYTES_MOST", 16)
    for _ in range(3):
        squares(session, 1, 2)
        squares(session, 1, 2, 3)
    assert len(slots) == 2


def test_memory_that_is_given(session: OnnxSession, slots: list[Captured]) -> None:
    """A run that may write into its caller's memory is as ever."""
    x = fp32(*range(2**17))
    memory = {"y": memoryview(bytearray(x.array.nbytes))}
    for _ in range(3):
        (y,) = session.run({"x": x}, ["y"], memory)
        assert np.array_equal(y.array, x.array**2)
    assert np.shares_memory(y.array, np.frombuffer(memory["y"], np.uint8))
    assert slots == []


def test_threads_at_once(session: OnnxSession, slots: list[Captured]) -> None:
    """Runs of many threads are made in one, and each gets its own answer."""
    barrier = threading.Barrier(8)

    def ask(number: int) -> bool:
        barrier.wait(30)
        wanted = [float((number + step) ** 2) for step in range(50)]
        return wanted == [
            squares(session, *[number + step] * (1 + number % 3))[0] for step in range(50)
        ]

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(8)))
    assert len({run.slot for run in slots}) == 3
    assert len({run.thread for run in slots}) == 1
    assert threading.current_thread() not in {run.thread for run in slots}


def test_nothing_keeps_a_closed_session(session: OnnxSession, slots: list[Captured]) -> None:
    """Once closed, neither slot nor binding nor thread keeps the engine's own session."""
    for _ in range(3):
        squares(session, 1)
    thread = slots[0].thread
    engines = weakref.ref(session._engine)
    session.close()
    gc.collect()
    assert engines() is None
    thread.join(30)
    assert not thread.is_alive()
    session._graphs = None  # the fixture closes it once more


def test_a_run_that_is_stopped(session: OnnxSession, slots: list[Captured]) -> None:
    """A run that nobody waits for any more ends before it begins; others go on."""
    for _ in range(2):
        squares(session, 1)
    stop = Stop()
    stop.set(RequestStopped("enough"))
    with pytest.raises(RunFailed, match="terminate"):
        session.run({"x": fp32(1)}, ["y"], None, stop)
    assert len(slots) == 1
    (y,) = session.run({"x": fp32(2)}, ["y"], None, Stop())
    assert y.array.tolist() == [4]
    assert len(slots) == 2
    session.cancel()
    with pytest.raises(RunFailed, match="terminate"):
        squares(session, 1)


def test_a_run_that_fails(tmp_path: Path, slots: list[Captured]) -> None:
    """The error is that of a run without graphs, and what was captured is not used again."""
    nodes = [helper.make_node("Gather", ["x", "i"], ["y"])]
    path = save(tmp_path / "m.onnx", nodes, [info("x"), info("i", INT64)], [info("y")])
    x = fp32(1, 2)

    def pick(index: int, session: OnnxSession) -> list[float]:
        (y,) = session.run({"x": x, "i": Tensor("INT64", np.array([index]))}, ["y"])
        picked: list[float] = y.array.tolist()
        return picked

    plain, session = OnnxBackend().load(source(path)), load(path)
    with pytest.raises(InvalidRequest) as expected:
        pick(9, plain)
    for _ in range(4):
        assert [pick(1, session) for _ in range(3)] == [[2]] * 3
        with pytest.raises(InvalidRequest) as caught:
            pick(9, session)
        assert str(caught.value) == str(expected.value)
    plain.close()
    session.close()
    # of each four: a capture or none, replays, and the one that failed
    assert [run.replayed for run in slots] == [False, True, True] + [False, True, True, True] * 3


def test_graphs_that_fail(
    tmp_path: Path, slots: list[Captured], caplog: pytest.LogCaptureFixture
) -> None:
    """Where only the graph fails, here by an output of another size, it is tried thrice."""
    node = helper.make_node("Slice", ["x", "from", "to"], ["y"])
    start = numpy_helper.from_array(np.array([0], np.int64), "from")
    inputs = [info("x"), info("to", INT64, (1,))]
    session = load(save(tmp_path / "m.onnx", [node], inputs, [info("y", dims=("k",))], [start]))
    for count in (1, 2, 3, 2, 1, 2, 3):
        to = Tensor("INT64", np.array([count]))
        (y,) = session.run({"x": fp32(0, 1, 2), "to": to}, ["y"])
        assert y.array.tolist() == list(range(count))
    session.close()
    assert [run.replayed for run in slots] == [False] * 3
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [
        "m:1 runs without CUDA graphs: they failed thrice"
    ]


def test_a_capture_is_alone(session: OnnxSession, slots: list[Captured]) -> None:
    """While others use the GPU a run is as ever, and captured when they have left."""
    squares(session, 1)
    with GATE:
        assert squares(session, 2) == [4]
    assert slots == []
    assert squares(session, 3) == [9]
    with GATE:
        assert squares(session, 4) == [16]
    assert [run.replayed for run in slots] == [False, True]


def test_memory_of_older_engines() -> None:
    """Where a session allocates nothing itself, the memory is of the same kind."""
    import onnxruntime

    value = onnx_graphs._allocate(onnxruntime, object(), Device("cpu", 0), "FP16", (2, 3))
    assert (value.shape(), value.element_type()) == ([2, 3], TensorProto.FLOAT16)


def ignored(path: Path, **switch: bool) -> list[object]:
    """What the log hears of two loads with graphs; the models answer."""
    log = EventLog()
    backend = OnnxBackend(log=log, **switch)
    for _ in range(2):
        backend.load(source(path, graphs=True)).close()
    backend.load(source(path)).close()
    return [entry.event for entry in log.since()]


def test_without_a_gpu(tmp_path: Path) -> None:
    """Where no GPU is used, each load says that there are no graphs."""
    event = OptionIgnored(ModelId("m", 1), "CUDA graphs", "no GPU is used")
    assert ignored(identity(tmp_path / "m.onnx")) == [event] * 2
    assert ignored(identity(tmp_path / "m.onnx"), accelerated=True) == []


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("BYTES", "'x' is BYTES"),
        ("BF16", "'x' is BF16"),
        ("loop", "what it does depends on the numbers in its inputs, not only on their shapes"),
    ],
)
def test_models_that_are_not_captured(tmp_path: Path, kind: str, reason: str) -> None:
    """Text, BF16 and what depends on numbers is run as ever, and each load says so."""
    path = tmp_path / "m.onnx"
    path = loop(path) if kind == "loop" else identity(path, kind)
    event = OptionIgnored(ModelId("m", 1), "CUDA graphs", reason)
    assert ignored(path, accelerated=True) == [event] * 2


class Named(NamedTuple):
    name: str


class Placed:
    """A session whose input lies on the GPU, and its output on the CPU."""

    def get_inputs(self) -> list[Named]:
        return [Named("x")]

    def get_outputs(self) -> list[Named]:
        return [Named("y")]

    def get_input_memory_infos(self) -> list[Named]:
        return [Named("Cuda")]

    def get_output_memory_infos(self) -> list[Named]:
        return [Named("Cpu")]


def test_what_lies_elsewhere() -> None:
    """A model that reads or makes something on the CPU is not captured on the GPU."""
    assert unfit_session(Placed(), Device("cuda", 0)) == "its output 'y' lies in memory of Cpu"
    assert unfit_session(Placed(), Device("cpu", 0)) == "its input 'x' lies in memory of Cuda"


def test_an_unfit_session_runs_as_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slots: list[Captured]
) -> None:
    """What is found only once it is loaded is said, and the model answers without graphs."""
    monkeypatch.setitem(onnx_graphs._MEMORY, "cpu", "Elsewhere")
    log = EventLog()
    backend = OnnxBackend(accelerated=True, log=log)
    session = backend.load(source(identity(tmp_path / "m.onnx"), graphs=True))
    for _ in range(3):
        assert session.run({"x": fp32(1)}, ["y"])[0].array.tolist() == [1]
    (entry,) = log.since()
    assert str(entry.event) == ("m:1 runs without CUDA graphs: its input 'x' lies in memory of Cpu")
    assert slots == []


def test_a_model_that_the_engine_does_not_capture() -> None:
    """The engine's refusal says what to do."""
    error = RuntimeError(
        "This session cannot use the graph capture feature as requested by the user as "
        "the model has control flow nodes"
    )
    failure = load_error(ModelId("m", 1), error)
    assert isinstance(failure, LoadFailed)
    assert str(failure).endswith("control flow nodes: leave graphs out of its config.pbtxt")


def test_a_server_without_a_gpu(tmp_path: Path) -> None:
    """A server answers for a model that asks for graphs and fp16, and says what it leaves out."""
    folder = tmp_path / "m"
    folder.mkdir()
    identity(folder / "model.onnx")
    (folder / "config.pbtxt").write_text(
        "optimization { cuda { graphs: true } } "
        'parameters { key: "precision" value { string_value: "fp16" } }'
    )
    with Workbench(tmp_path, device="cpu") as workbench:
        assert workbench.infer("m", [1.0, 2.0]).tolist() == [1, 2]
        told = [str(entry.event) for entry in workbench.events if entry.event.kind == "ignored"]
    assert told == [
        "m:1 runs without CUDA graphs: no GPU is used",
        "m:1 runs without fp16: no GPU is used",
    ]
