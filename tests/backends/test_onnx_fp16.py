"""Models in fp16: converted in a process of their own, on the CPU as for a GPU."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx as onnx_proto
import pytest
from cached_models import GIB, MODEL_NBYTES, A, CachedModel
from onnx import TensorProto, helper, numpy_helper
from onnx_models import identity, save

from workbench.backends.onnx import runtime as onnx
from workbench.backends.onnx.fp16 import alike
from workbench.backends.onnx.header import read_onnx_file
from workbench.backends.onnx.runtime import OnnxBackend
from workbench.backends.onnx.session import OnnxSession
from workbench.backends.onnx_tiers import folder as prepared_folder
from workbench.backends.onnx_tiers import prepared
from workbench.backends.onnx_tiers.prepared import PreparedModels
from workbench.errors import LoadFailed, RequestStopped
from workbench.events import EventLog, ModelConverted, ModelNotPrepared, OptionIgnored
from workbench.model import ModelConfig, ModelId, ModelSource
from workbench.samples import write_models
from workbench.stop import Stop
from workbench.tensor import Tensor

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


class Rig(CachedModel):
    """One that converts."""

    accelerated = True

    def load(self, precision: str = "fp16") -> OnnxSession:
        return self.backend.load(self.source(precision=precision))

    def refusal(self) -> str:
        with pytest.raises(LoadFailed) as caught:
            self.load()
        assert len(str(caught.value).splitlines()) == 1
        assert self.entries() == []
        return str(caught.value)

    def told(self) -> list[object]:
        return [entry.event for entry in self.log.since()]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    yield rig
    rig.prepared.close()


@pytest.fixture
def ready(rig: Rig) -> Rig:
    """What was converted is there."""
    rig.load().close()
    (event,) = rig.told()
    assert isinstance(event, ModelConverted)
    assert event.model == A
    assert 0.5 * MODEL_NBYTES <= event.nbytes <= 0.6 * MODEL_NBYTES
    return rig


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that ONNX Runtime loaded since."""
    loads: list[str] = []
    plain = onnx._session

    def session(ort: object, model: str, *more: object, **named: object) -> object:
        loads.append(model)
        return plain(ort, model, *more, **named)

    monkeypatch.setattr(onnx, "_session", session)
    return loads


def answer(session: OnnxSession) -> np.ndarray:
    width = session.signature.inputs["x"].shape[1]
    x = np.random.default_rng(0).random((3, width), dtype=np.float32)
    (y,) = session.run({"x": Tensor("FP32", x)}, ("y",))
    session.close()
    return y.array


def info(name: str, element_type: int = FLOAT, dims: Any = ("n",)) -> Any:
    return helper.make_tensor_value_info(name, element_type, dims)


def test_the_first_load_converts(rig: Rig, loads: list[str]) -> None:
    """The model is converted while it loads, takes and gives what it did, and answers alike."""
    wanted = answer(rig.load("fp32"))
    session = rig.load()
    assert session.signature == rig.backend.inspect(rig.source(precision="fp32")).signature
    found = answer(session)
    assert found.dtype == np.float32
    assert not np.array_equal(found, wanted)
    assert alike(wanted, found)
    (entry,) = rig.entries()
    assert loads == [str(rig.path), str(entry / "model.onnx")]
    weights = onnx_proto.load(entry / "model.onnx").graph.initializer
    assert {weight.data_type for weight in weights} == {TensorProto.FLOAT16}


def test_the_next_loads_find_it(ready: Rig, loads: list[str]) -> None:
    """Later loads take what was converted, in this server and in others."""
    before = answer(ready.load())
    ready.begin()
    assert np.array_equal(answer(ready.load()), before)
    (entry,) = ready.entries()
    assert loads == [str(entry / "model.onnx")] * 2
    assert len(ready.told()) == 1


def test_the_memory_is_that_of_what_is_loaded(ready: Rig) -> None:
    """Once it is converted the estimate is by its header; before, the original's is the bound."""
    (entry,) = ready.entries()
    converted = read_onnx_file(entry / "model.onnx")
    assert converted.weights_nbytes == pytest.approx(read_onnx_file(ready.path).weights_nbytes / 2)
    inspection = ready.backend.inspect(ready.source(precision="fp16"))
    assert inspection.load_nbytes == converted.load_nbytes
    session = ready.load()
    assert session.footprint.weights_nbytes == converted.weights_nbytes
    assert session.footprint.nbytes == converted.resident_nbytes
    session.close()
    shutil.rmtree(ready.cache)
    original = read_onnx_file(ready.path)
    assert ready.backend.inspect(ready.source(precision="fp16")).load_nbytes == original.load_nbytes


def test_halves_on_a_gpu(ready: Rig) -> None:
    """Where fp16 is computed as it is, the converted model is booked at half of the original."""
    (entry,) = ready.entries()
    plain = read_onnx_file(ready.path)
    halves = read_onnx_file(entry / "model.onnx", fp16_kernels=True)
    assert halves.resident_nbytes == pytest.approx(plain.resident_nbytes / 2, rel=0.15)
    assert halves.load_nbytes < plain.load_nbytes


def test_precisions_are_entries_of_their_own(ready: Rig) -> None:
    """What was converted is not taken for what was prepared, nor the other way round."""
    file = read_onnx_file(ready.path)
    assert ready.prepared.find(ModelId("a", 1), file, "1.31", "fp16") is None
    keys = {
        key(file, runtime, precision)
        for key in (prepared_folder.file_key, prepared_folder.content_key)
        for runtime in "12"
        for precision in ("fp32", "fp16")
    }
    assert len(keys) == 8
    (known,) = (ready.cache / "known").iterdir()
    import onnxruntime

    assert known.name == prepared_folder.file_key(file, onnxruntime.__version__, "fp16")


def test_a_copy_is_not_converted_again(ready: Rig) -> None:
    """The same content elsewhere shares what was converted."""
    copy = ready.path.with_name("copy.onnx")
    copy.write_bytes(ready.path.read_bytes())
    ready.path = copy
    ready.load().close()
    event = ready.told()[-1]
    assert isinstance(event, ModelConverted)
    assert event.nbytes == 0
    assert len(ready.entries()) == 1


def test_a_file_that_changed_is_converted_anew(ready: Rig) -> None:
    """Another file of the same name is another model."""
    write_models(ready.path.parent.parent.parent, 1, 2 * MODEL_NBYTES)
    ready.load().close()
    assert [type(event) for event in ready.told()] == [ModelConverted] * 2
    assert len(ready.entries()) == 2


DAMAGES = {
    "a byte changed": lambda path: path.write_bytes(b"x" + path.read_bytes()[1:]),
    "cut off": lambda path: os.truncate(path, path.stat().st_size // 2),
    "gone": Path.unlink,
}


@pytest.mark.parametrize("name", ["model.onnx", "weights.bin", "entry.json"])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_entry(ready: Rig, damage: object, name: str) -> None:
    """What was touched since it was written is not used, with an event, and is written anew."""
    before = answer(ready.load())
    damage(ready.entries()[0] / name)  # type: ignore[operator]
    assert np.array_equal(answer(ready.load()), before)
    kinds = [type(event) for event in ready.told()]
    assert kinds == [ModelConverted, ModelNotPrepared, ModelConverted]


@pytest.mark.parametrize("content", [b"not ONNX", None], ids=["no model", "another model"])
def test_an_entry_that_does_not_load(ready: Rig, content: bytes | None) -> None:
    """It goes, an event says so, and the model is converted once more."""
    before = answer(ready.load())
    (entry,) = ready.entries()
    assert sorted(path.name for path in entry.iterdir()) == [
        "entry.json",
        "model.onnx",
        "weights.bin",
    ]
    model = entry / "model.onnx"
    model.chmod(0o600)
    if content is None:
        node = helper.make_node("Nope", ["x"], ["y"])
        save(model, [node], [info("x")], [info("y")])
    else:
        model.write_bytes(content)
    (entry / "entry.json").write_text(json.dumps(prepared_folder.stamps_of(entry)))
    assert ready.backend.inspect(ready.source(precision="fp16")).load_nbytes > 0
    assert np.array_equal(answer(ready.load()), before)
    assert [type(event) for event in ready.told()] == [
        ModelConverted,
        ModelNotPrepared,
        ModelConverted,
    ]


def test_two_loads_at_once(rig: Rig) -> None:
    """Loads that convert the same file at once, as two servers do, leave one entry."""
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(answer, pool.map(lambda _: rig.load(), range(2)))
    assert np.array_equal(one, other)
    assert len(rig.entries()) == 1
    assert list((rig.cache / "parts").iterdir()) == []


def test_where_no_gpu_is_used(rig: Rig, loads: list[str]) -> None:
    """There the model runs as it is, and each load says so."""
    rig.accelerated = False
    rig.begin()
    rig.load().close()
    assert loads == [str(rig.path)]
    assert rig.told() == [OptionIgnored(A, "fp16", "no GPU is used")]


def test_without_a_cache(rig: Rig) -> None:
    """A server that keeps nothing on disk cannot convert, and says so."""
    rig.backend = OnnxBackend(accelerated=True)
    assert rig.refusal() == (
        "a:1 cannot be had in fp16 without disk to keep that: the setting cache is off"
    )
    assert rig.backend.inspect(rig.source(precision="fp16")).load_nbytes > MODEL_NBYTES


def test_without_the_package(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the converter's package is missing, the refusal names the cure."""
    (rig.path.parent / "onnx.py").write_text("raise ImportError('no', name='onnx')")
    monkeypatch.setenv("PYTHONPATH", str(rig.path.parent))
    assert rig.refusal() == (
        "a:1 cannot be had in fp16: the package 'onnx' is missing: "
        "pip install 'serving-workbench[fp16]'"
    )


def test_over_the_limit(rig: Rig) -> None:
    """What would never fit on the disk is not converted."""
    rig.begin(limit_nbytes=MODEL_NBYTES)
    assert rig.refusal() == (
        "a:1 cannot be had in fp16: it would take 2.1 MiB of disk, the setting cache allows 1.0 MiB"
    )


def test_too_little_memory(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the memory for it is not there, nothing is begun."""
    monkeypatch.setattr(prepared, "_MEMORY_FACTOR", 2**40)
    assert rig.refusal().startswith("a:1 cannot be had in fp16: that takes ")


def test_a_crash_while_converting(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ends the process that converts ends nothing else, and is told."""
    monkeypatch.setenv("PYTHONPATH", str(rig.path.parent))
    (rig.path.parent / "sitecustomize.py").write_text("import os; os.abort()")
    assert rig.refusal() == (
        "a:1 cannot be had in fp16: the process that prepares it ended with -6"
    )


def test_what_does_not_stay(ready: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that changed while it was converted is not loaded as what it was."""
    monkeypatch.setattr(ready.prepared, "find", lambda *_: None)
    with pytest.raises(LoadFailed, match="did not stay, or it changed meanwhile"):
        ready.load()


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Processes that convert never end by themselves; those that were begun."""
    begun: list[Any] = []
    real = subprocess.Popen

    def popen(_command: object, **more: Any) -> Any:
        process = real(
            [sys.executable, "-c", "import signal; signal.pause()"],
            **(more | {"stdin": subprocess.PIPE}),
        )
        begun.append(process)
        return process

    monkeypatch.setattr(subprocess, "Popen", popen)
    return begun


def test_a_load_that_is_stopped(rig: Rig, endless: list[Any]) -> None:
    """A load that nobody wants any more ends the process that converts."""
    stop = Stop()
    stop.set(RequestStopped("enough"))
    with pytest.raises(LoadFailed, match="ended with -9"):
        rig.backend.load(rig.source(precision="fp16"), stop)
    assert endless[0].returncode == -9
    assert rig.told() == []


def test_a_server_that_stops(rig: Rig, endless: list[Any]) -> None:
    """The processes that convert end with the server."""
    with ThreadPoolExecutor(2) as pool:
        loads = [pool.submit(rig.load) for _ in range(2)]
        while len(rig.prepared._processes) < 2:
            assert not any(load.done() for load in loads)
        rig.prepared.close()
        assert all(isinstance(load.exception(30), LoadFailed) for load in loads)
    assert [process.returncode for process in endless] == [-9, -9]
    with pytest.raises(LoadFailed, match="the server is stopping"):
        rig.load()


def converted(tmp_path: Path, path: Path) -> OnnxSession:
    cache = PreparedModels(tmp_path / "cache", GIB, EventLog())
    config = ModelConfig("a", parameters={"precision": "fp16"})
    try:
        backend = OnnxBackend(prepared=cache, accelerated=True)
        return backend.load(ModelSource(A, config, path))
    finally:
        cache.close()


@pytest.mark.parametrize(
    "ops", [("Mul", "Neg"), ("Mul", "Mul", "Sqrt", "Sqrt")], ids=["answers", "on the way"]
)
def test_a_model_that_leaves_the_range(tmp_path: Path, ops: tuple[str, ...]) -> None:
    """A model whose numbers are too large for fp16, if only on the way, is refused."""
    nodes, last = [], "x"
    for index, op in enumerate(ops):
        takes, last = [last, "large"][: 1 + (op == "Mul")], f"v{index}"
        nodes.append(helper.make_node(op, takes, [last]))
    nodes.append(helper.make_node("Identity", [last], ["y"]))
    large = numpy_helper.from_array(np.float32(1e6 if len(ops) == 2 else 6e4), "large")
    path = save(tmp_path / "m.onnx", nodes, [info("x")], [info("y")], [large])
    with pytest.raises(LoadFailed) as caught:
        converted(tmp_path, path)
    assert str(caught.value) == (
        "a:1 cannot be had in fp16: its output 'y' would be too far from what it is in fp32"
    )


def test_rounding_on_the_way(tmp_path: Path) -> None:
    """What is tried rounds after each operator, though the CPU could go on in fp32."""
    nodes = [
        helper.make_node("Add", ["x", "small"], ["z"]),
        helper.make_node("Sub", ["z", "x"], ["y"]),
    ]
    small = numpy_helper.from_array(np.float32(2**-12), "small")
    path = save(tmp_path / "m.onnx", nodes, [info("x")], [info("y")], [small])
    with pytest.raises(LoadFailed, match="its output 'y' would be too far from what it is in fp32"):
        converted(tmp_path, path)


def test_a_model_that_cannot_be_converted(tmp_path: Path) -> None:
    """What the converter or the engine refuses is a failed load with the reason."""
    (tmp_path / "m.onnx").write_bytes(identity(tmp_path / "plain.onnx").read_bytes())
    model = onnx_proto.load(tmp_path / "m.onnx")
    model.graph.node[0].op_type = "Nope"
    onnx_proto.save(model, tmp_path / "m.onnx")
    with pytest.raises(LoadFailed, match="a:1 cannot be had in fp16: it cannot be converted: "):
        converted(tmp_path, tmp_path / "m.onnx")


def test_a_model_that_cannot_be_tried(tmp_path: Path) -> None:
    """A model of text cannot be tried, so it is not used."""
    path = identity(tmp_path / "m.onnx", "BYTES")
    with pytest.raises(LoadFailed, match="it cannot be tried on made-up inputs: there are none of"):
        converted(tmp_path, path)


def test_operators_that_fp16_is_not_for(tmp_path: Path) -> None:
    """Operators without names that stay in fp32 are kept apart, and integers stay integers."""
    nodes = [
        helper.make_node("Max", ["x", "half"], ["a"]),
        helper.make_node("Mul", ["a", "a"], ["b"]),
        helper.make_node("Min", ["b", "half"], ["y"]),
        helper.make_node("ArgMax", ["b"], ["i"], axis=0, keepdims=0),
    ]
    half = numpy_helper.from_array(np.float32(0.5), "half")
    outputs = [info("y"), info("i", INT64, ())]
    path = save(tmp_path / "m.onnx", nodes, [info("x")], outputs, [half])
    session = converted(tmp_path, path)
    y, i = session.run({"x": Tensor("FP32", np.array([0.1, 0.6, 3], np.float32))}, ["y", "i"])
    np.testing.assert_allclose(y.array, [0.25, 0.36, 0.5], rtol=1e-3)
    assert (i.datatype, i.array.tolist()) == ("INT64", 2)
    session.close()


def test_weights_beside_the_model(tmp_path: Path) -> None:
    """Weights in a file of their own are read from there, and the user's files are left alone."""
    (folder,) = write_models(tmp_path / "models", 1, MODEL_NBYTES)
    model = onnx_proto.load(folder / "1" / "model.onnx")
    beside = tmp_path / "beside"
    beside.mkdir()
    onnx_proto.save_model(
        model, beside / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0
    )
    before = sorted(path.name for path in beside.iterdir())
    wanted = OnnxBackend().load(ModelSource(A, ModelConfig("a"), beside / "m.onnx"))
    assert alike(answer(wanted), answer(converted(tmp_path, beside / "m.onnx")))
    assert sorted(path.name for path in beside.iterdir()) == before


@pytest.mark.parametrize("name", ["digits", "digits_conv", "diabetes", "wine"])
def test_sample_models(tmp_path: Path, sample_models: Path, name: str) -> None:
    """Real models are converted, and their answers are near."""
    (path,) = (sample_models / name).rglob("*.onnx")
    session = converted(tmp_path, path)
    session.close()
    assert len(list((tmp_path / "cache" / "entries").iterdir())) == 1


@pytest.mark.parametrize(
    ("wanted", "found", "near"),
    [
        ([1.0, 100.0], [1.0, 101.0], True),
        ([1.0, 100.0], [2.0, 100.0], True),
        ([1.0, 100.0], [1.0, 105.0], False),
        ([1e-9, -1e-9], [0.0, 0.0], False),
        ([1.0, np.inf], [1.0, np.inf], True),
        ([1.0, 2.0], [1.0, np.inf], False),
        ([1.0, np.nan], [1.0, np.nan], True),
        ([1.0, 2.0], [1.0, np.nan], False),
        ([np.nan, np.nan], [np.nan, np.nan], True),
        ([], [], True),
        ([1.0], [1.0, 1.0], False),
    ],
)
def test_what_is_near(wanted: list[float], found: list[float], near: bool) -> None:
    """Near is within 2 % of the number, and of the largest one beside it; nothing overflows."""
    assert alike(np.array(wanted, np.float32), np.array(found, np.float32)) is near


@pytest.mark.parametrize(("found", "near"), [([1, 2], True), ([1, 3], False)])
def test_what_is_no_float_is_equal(found: list[int], near: bool) -> None:
    """An answer of integers, a class for instance, must be the same."""
    assert alike(np.array([1, 2]), np.array(found)) is near
