"""ONNX Runtime, with the traps that it sets."""

import gc
import json
import os
import shutil
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import psutil
import pytest
from elsewhere import Elsewhere
from onnx_models import LOOP, ONNX_TYPES, identity, loop, source, written
from other_process import python

from workbench.backends.onnx.backend import OnnxBackend
from workbench.backends.onnx.header.file import read_onnx_file
from workbench.backends.onnx.runtime import LIBRARIES_MISSING, NOT_IN_BUILD, find_cuda
from workbench.errors import InvalidRequest, LoadFailed, MemoryExhausted, RequestStopped, RunFailed
from workbench.model import ImageForm, TensorSpec
from workbench.samples import write_models
from workbench.stop import CancellationToken
from workbench.tensor import DATATYPES, Tensor, room_for


@pytest.fixture
def backend() -> OnnxBackend:
    return OnnxBackend()


def test_a_path_that_is_not_utf_8(backend: OnnxBackend, tmp_path: Path) -> None:
    """ONNX Runtime cannot open it; the error says what to rename."""
    path = Path(os.fsdecode(bytes(identity(tmp_path / "m.onnx", "FP32").parent) + b"/caf\xe9.onnx"))
    (tmp_path / "m.onnx").rename(path)
    with pytest.raises(LoadFailed, match="is not UTF-8, which ONNX Runtime cannot open: rename"):
        backend.load(source(path))


@pytest.mark.parametrize("datatype", ONNX_TYPES)
def test_every_datatype(backend: OnnxBackend, tmp_path: Path, datatype: str) -> None:
    """Every datatype goes through the engine unchanged."""
    session = backend.load(source(identity(tmp_path / "m.onnx", datatype)))
    if datatype == "BYTES":
        given = Tensor.of(["", "grün", "a\0b"])
    else:
        given = Tensor(datatype, np.array([0, 1, 1], DATATYPES[datatype].dtype))
    (answer,) = session.run({"x": given}, ["y"])
    assert answer.datatype == datatype
    assert answer.array.dtype == given.array.dtype
    assert answer.array.tolist() == given.array.tolist()


def test_signature_is_the_files(backend: OnnxBackend, tmp_path: Path) -> None:
    """Names, datatypes and shapes come from the file; what may be any size is -1."""
    path = identity(tmp_path / "m.onnx", "INT64", ("batch", 3, None))
    inspection = backend.inspect(source(path))
    assert inspection.signature.inputs == {"x": TensorSpec("x", "INT64", (-1, 3, -1))}
    assert inspection.signature.platform == "onnxruntime_onnx"
    assert backend.load(source(path)).signature == inspection.signature


@pytest.mark.parametrize("datatype", ["FP32", "BF16"])
@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (1, 1), (2, 3)])
def test_shapes(
    backend: OnnxBackend, tmp_path: Path, datatype: str, shape: tuple[int, ...]
) -> None:
    """A scalar stays a scalar, and a tensor of no elements keeps its shape."""
    dims = [f"d{axis}" for axis in range(len(shape))]
    session = backend.load(source(identity(tmp_path / "m.onnx", datatype, dims)))
    given = np.full(shape, 0x4000, DATATYPES[datatype].dtype)
    (answer,) = session.run({"x": Tensor(datatype, given)}, ["y"])
    assert answer.shape == shape
    assert np.array_equal(answer.array, given)


def test_a_request_body_is_not_copied(backend: OnnxBackend, tmp_path: Path) -> None:
    """Read-only views, unaligned ones too, go in as they are."""
    session = backend.load(source(identity(tmp_path / "m.onnx")))
    body = b"x" + np.arange(4, dtype=np.float32).tobytes()
    view = np.frombuffer(memoryview(body)[1:], np.float32)
    (answer,) = session.run({"x": Tensor("FP32", view)}, ["y"])
    assert answer.array.tolist() == [0, 1, 2, 3]


def test_text_that_is_no_utf8(backend: OnnxBackend, tmp_path: Path) -> None:
    """Bytes that are not UTF-8 cannot enter a string tensor: the request is invalid."""
    session = backend.load(source(identity(tmp_path / "m.onnx", "BYTES")))
    with pytest.raises(InvalidRequest, match="element 1 is not UTF-8"):
        session.run({"x": Tensor.of([b"ok", b"\xff"])}, ["y"])


def test_configuration_narrows_the_file(backend: OnnxBackend, tmp_path: Path) -> None:
    """A configuration may name sizes, order and fewer outputs; what it names must be there."""
    path = identity(tmp_path / "m.onnx", dims=("n", "m"))
    spec = TensorSpec("x", "FP32", (-1, 4))
    assert backend.inspect(source(path, inputs=(spec,))).signature.inputs["x"].shape == (-1, 4)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"inputs": (TensorSpec("z", "FP32", (-1,)),)}, "declares input 'z'; the file has 'x'"),
        ({"inputs": (TensorSpec("x", "INT8", (-1,)),)}, "as INT8; the file says FP32"),
        ({"inputs": (TensorSpec("x", "FP32", (1, 2)),)}, r"shape \[1, 2\]; the file says \[-1\]"),
        ({"outputs": (TensorSpec("z", "FP32", (-1,)),)}, "declares output 'z'"),
    ],
)
def test_configuration_that_contradicts(
    backend: OnnxBackend, tmp_path: Path, config: dict[str, Any], message: str
) -> None:
    """A configuration that the file contradicts is a failed load that says where."""
    with pytest.raises(LoadFailed, match=message):
        backend.inspect(source(identity(tmp_path / "m.onnx"), **config))


def test_inputs_that_take_images(backend: OnnxBackend, tmp_path: Path) -> None:
    """An input of four dimensions has its image form, by the configuration's format and options."""
    path = identity(tmp_path / "m.onnx", dims=("n", 3, 8, 8))
    assert backend.inspect(source(path)).signature.image_forms == {"x": ImageForm("NCHW")}
    declared = TensorSpec("x", "FP32", (-1, 3, 8, 8), format="FORMAT_NHWC")
    parameters = {"image_order": "RGB", "image_scale": "0.5"}
    signature = backend.inspect(source(path, inputs=(declared,), parameters=parameters)).signature
    assert signature.image_forms == {"x": ImageForm("NHWC", rgb=True, scale=0.5)}
    flat = identity(tmp_path / "flat.onnx", dims=("n", 3))
    assert backend.inspect(source(flat)).signature.image_forms == {}
    with pytest.raises(LoadFailed, match=r"^config\.pbtxt of m:1 sets image_order, but no input"):
        backend.inspect(source(flat, parameters={"image_order": "RGB"}))


X, B = TensorSpec("x", "FP32", (-1,)), TensorSpec("b", "FP32", (1,), optional=True)


# Y = x + b, of which b is 10 unless it is given
DEFAULT = "(float[n] x, float[1] b = {10}) => (float[n] y) { y = Add(x, b) }"
TOTAL = """(float[n, 2] x) => (float[n, 1] sums, float[1] total) {
    total = ReduceSum <keepdims = 0> (x)
    sums = ReduceMax <axes = [1]> (x)
}"""


def test_an_input_with_a_default(backend: OnnxBackend, tmp_path: Path) -> None:
    """It is an input where the configuration declares it, and may always be left out."""
    path = written(tmp_path / "m.onnx", DEFAULT)
    assert list(backend.inspect(source(path)).signature.inputs) == ["x"]
    needed = backend.inspect(source(path, inputs=(X, replace(B, optional=False)))).signature
    assert needed.inputs["b"].optional
    session = backend.load(source(path, inputs=(X, B)))
    assert session.signature.inputs == {"x": X, "b": B}
    x, b = (Tensor("FP32", np.array([value], np.float32)) for value in (1, 5))
    for inputs, expected in (({"x": x}, 11), ({"x": x, "b": b}, 6), ({"x": x}, 11)):
        (y,) = session.run(inputs, ["y"])
        assert y.array.tolist() == [expected]


@pytest.mark.parametrize(
    ("ir_version", "inputs", "told"),
    [
        (8, (replace(X, optional=True), B), "input 'x' optional; the file has no default for it"),
        (3, (X, B), "declares input 'b'; the file has 'x'"),
    ],
)
def test_an_input_without_a_default(
    backend: OnnxBackend, tmp_path: Path, ir_version: int, inputs: Any, told: str
) -> None:
    """What the model needs cannot be optional: the load says so, and no run has to."""
    path = written(tmp_path / "m.onnx", DEFAULT, ir_version=ir_version)
    with pytest.raises(LoadFailed, match=told):
        backend.inspect(source(path, inputs=inputs))


@pytest.mark.parametrize(
    ("graph", "config", "told"),
    [
        ("(float[3] x) => (float[3] y) { y = Neg(x) }", {}, "without a batch dimension"),
        (TOTAL, {}, r"output 'total' has shape \[1\], without a batch dimension"),
        (DEFAULT, {"inputs": (X, replace(B, shape=(-1,)))},
         r"input 'b' has shape \[1\], without a batch dimension"),
    ],
)  # fmt: skip
def test_batching_needs_a_batch_dimension(
    backend: OnnxBackend, tmp_path: Path, graph: str, config: dict[str, Any], told: str
) -> None:
    """max_batch_size is a failed load where an input, or an output that is given, has no batch."""
    path = written(tmp_path / "m.onnx", graph)
    with pytest.raises(LoadFailed, match=told):
        backend.inspect(source(path, max_batch_size=8, **config))
    if graph == TOTAL:
        wanted = (TensorSpec("sums", "FP32", (-1, 1)),)
        signature = backend.inspect(source(path, max_batch_size=8, outputs=wanted)).signature
        assert signature.max_batch_size == 8


def test_what_v2_cannot_carry(backend: OnnxBackend, tmp_path: Path) -> None:
    """Inputs of an unknown type are refused at load with the reason."""
    graph = "(float8e4m3fn[n] x) => (float8e4m3fn[n] y) { y = Identity(x) }"
    path = written(tmp_path / "m.onnx", graph)
    with pytest.raises(LoadFailed, match="'x' of m:1 is a tensor of ONNX type 17, which V2 cannot"):
        backend.inspect(source(path))


@pytest.mark.parametrize("content", [b"", b"junk", b"\x08\x01" * 100, None])
def test_broken_files(backend: OnnxBackend, tmp_path: Path, content: bytes | None) -> None:
    """A file that is missing, empty or no model is a failed load in one line."""
    path = tmp_path / "m.onnx"
    if content is not None:
        path.write_bytes(content)
    for act in (backend.inspect, backend.load):
        with pytest.raises(LoadFailed) as caught:
            act(source(path))
        assert "\n" not in str(caught.value)


def test_a_folder_in_place_of_the_file(backend: OnnxBackend, tmp_path: Path) -> None:
    """The error says that it is a folder, and does not tell to rename it."""
    (tmp_path / "model.onnx").mkdir()
    with pytest.raises(LoadFailed, match=r"m:1 has no file '.*model.onnx': that is a folder$"):
        backend.inspect(source(tmp_path / "model.onnx"))


def test_a_file_of_another_name(backend: OnnxBackend, tmp_path: Path) -> None:
    """If the version has ONNX files of other names, the error names them, and the cures."""
    (tmp_path / "1").mkdir()
    for name in ("resnet50.onnx", "notes.txt"):
        (tmp_path / "1" / name).touch()
    with pytest.raises(LoadFailed) as caught:
        backend.inspect(source(tmp_path / "1" / "model.onnx"))
    assert str(caught.value) == (
        f"m:1 has no file {str(tmp_path / '1' / 'model.onnx')!r}: there is 'resnet50.onnx'; rename "
        "it, or name it as default_model_filename in config.pbtxt"
    )


@pytest.mark.parametrize(
    ("graph", "operator"),
    [
        ("(float[n] x) => (float[n] y) { y = Nope(x) }", "Nope"),
        ("(bfloat16[2, 2] x) => (bfloat16 y) { y = Det(x) }", "Det"),  # it has none of BF16
    ],
)
def test_operators_that_do_not_exist(
    backend: OnnxBackend, tmp_path: Path, graph: str, operator: str
) -> None:
    """A model that the engine refuses is a failed load in one line, with the engine's reason."""
    with pytest.raises(LoadFailed, match=operator) as caught:
        backend.load(source(written(tmp_path / "m.onnx", graph)))
    assert "\n" not in str(caught.value)


def test_a_run_that_fails(backend: OnnxBackend, tmp_path: Path) -> None:
    """A run that the engine gives up is a failed run, and the session goes on."""
    path = written(tmp_path / "m.onnx", "(string[n] x) => (float[n] y) { y = Cast<to = 1>(x) }")
    session = backend.load(source(path))
    with pytest.raises(RunFailed) as caught:
        session.run({"x": Tensor.of(["no number"])}, ["y"])
    assert "\n" not in str(caught.value)
    (answer,) = session.run({"x": Tensor.of(["6"])}, ["y"])
    assert answer.array.tolist() == [6.0]


@pytest.mark.parametrize(
    ("graph", "shapes"),
    [
        ("(float[n] x, float[m] y) => (float[k] z) { z = Add(x, y) }", [(2,), (3,)]),
        (("(float[n, 1] x, float[m, 1] y, float[k, 1] w) => (float[l, 3] z) "
         "{ z = Concat <axis = 1> (x, y, w) }"), [(2, 1), (3, 1), (2, 1)]),
        ("(float[n, k] x, float[m, l] y) => (float[a, b] z) { z = MatMul(x, y) }",
         [(2, 3), (4, 5)]),
        (("(float[n, c, h, w] x, float[o, i, k, l] y) => (float[a, b, d, e] z) "
         "{ z = Conv(x, y) }"), [(1, 3, 5, 5), (1, 2, 3, 3)]),
        ("(float[n] x) => (float[a, b] z) <int64[2] s = {3, -1}> { z = Reshape(x, s) }", [(4,)]),
        ("(float[n] x) => (float z) <int64[1] a = {0}> { z = Squeeze(x, a) }", [(3,)]),
        ("(float[] x) => (float[] z) { z = Softmax <axis = 2> (x) }", [(2, 3)]),
    ],
)  # fmt: skip
def test_inputs_that_do_not_fit_each_other(
    backend: OnnxBackend, tmp_path: Path, graph: str, shapes: list[tuple[int, ...]]
) -> None:
    """An error of the shapes that a request has is the request's, whatever the engine calls it."""
    session = backend.load(source(written(tmp_path / "m.onnx", graph)))
    inputs = {
        name: Tensor("FP32", np.ones(shape, np.float32))
        for name, shape in zip("xyw", shapes, strict=False)
    }
    with pytest.raises(InvalidRequest, match="m:1 refused its inputs"):
        session.run(inputs, ["z"])


# an output as large as the numbers in the input say
FILLED = "(int64[n] s) => (float[a, b] y) { y = ConstantOfShape(s) }"


def test_a_run_out_of_memory(backend: OnnxBackend, tmp_path: Path) -> None:
    """A run for which there is no memory says so, and the session goes on."""
    path = written(tmp_path / "m.onnx", FILLED)
    session = backend.load(source(path))
    with pytest.raises(MemoryExhausted):
        session.run({"s": Tensor("INT64", np.array([2**31, 2**20]))}, ["y"])
    (answer,) = session.run({"s": Tensor("INT64", np.array([1, 2]))}, ["y"])
    assert answer.shape == (1, 2)


MANY = 2**18  # elements that are worth a place
# a model whose run is endless, and what it is given beside x and n; its output is memory, or not
KINDS: dict[str, tuple[str, dict[str, Tensor], int]] = {
    "plain": (f"(int64 n, float[8, 8] x) => (float[8, 8] y) {{ y = {LOOP} }}", {}, 0),
    "BF16": (
        f"(int64 n, float[8, 8] x) => (bfloat16[8, 8] y) {{ z = {LOOP} y = Cast <to = 16> (z) }}",
        {}, 0,
    ),
    "into memory": (
        ("(int64 n, float[8, 8] x, float[8192, 1, 1] v) => (float[8192, 8, 8] y)"
         f"{{ z = {LOOP} y = Add(z, v) }}"),
        {"v": Tensor("FP32", np.ones((2**13, 1, 1), np.float32))}, 2**21,
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_keeps_a_closed_session(backend: OnnxBackend, tmp_path: Path, kind: str) -> None:
    """Once closed, neither outputs nor errors keep the engine's own session: its memory is free."""
    datatype = "BF16" if kind == "BF16" else "FP32"
    session = backend.load(source(identity(tmp_path / "m.onnx", datatype, (MANY,))))
    x = np.ones(MANY, DATATYPES[datatype].dtype)
    into = {"y": room_for(x.nbytes, 0)} if kind == "into memory" else None
    (kept,) = session.run({"x": Tensor(datatype, x)}, ["y"], into)
    with pytest.raises(InvalidRequest, match="Invalid rank") as caught:
        session.run({"x": Tensor(datatype, x.reshape(2, -1))}, ["y"], into)
    engine = weakref.ref(session._engine)
    assert engine() is not None
    session.close()
    gc.collect()
    assert engine() is None
    assert str(caught.value)
    assert np.array_equal(kept.array, x)


def test_what_the_engine_is_told(
    backend: OnnxBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load is by path, without fallback, arena, telemetry's threads or unbounded folding."""
    import onnxruntime

    told: dict[str, Any] = {}
    real = onnxruntime.InferenceSession

    def watched(model: Any, options: Any, **more: Any) -> Any:
        folds = "optimization.constant_folding_max_output_size_in_bytes"
        told.update(
            more, model=model, arena=options.enable_cpu_mem_arena,
            threads=options.intra_op_num_threads, folds=options.get_session_config_entry(folds),
        )  # fmt: skip
        return real(model, options, **more)

    monkeypatch.setattr(onnxruntime, "InferenceSession", watched)
    path = identity(tmp_path / "m.onnx")
    backend.load(source(path)).close()
    assert told == {
        "model": str(path),
        "arena": False,
        "threads": 1,
        "folds": str(16 << 20),
        "providers": ["CPUExecutionProvider"],
        "enable_fallback": 0,
    }


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_can_be_cancelled(backend: OnnxBackend, tmp_path: Path, kind: str) -> None:
    """Its stop ends a run between two nodes, as a failed one; a cancel also all runs to come."""
    graph, more, nbytes = KINDS[kind]
    session = backend.load(source(written(tmp_path / "m.onnx", graph)))
    feed = {**more, "x": Tensor("FP32", np.zeros((8, 8), np.float32))}
    brief, endless = ({**feed, "n": Tensor("INT64", np.array(count))} for count in (2, 2**62))
    into, stop = {"y": room_for(nbytes, 0)} if nbytes else None, CancellationToken()
    session.run(brief, ["y"], into)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(session.run, endless, ["y"], into, stop)
        stop.set(RequestStopped("enough"))
        assert isinstance(running.exception(), RunFailed)
        running = pool.submit(session.run, endless, ["y"], into)
        while not running.done():
            session.cancel()
        assert isinstance(running.exception(), RunFailed)
    with pytest.raises(RunFailed, match="terminate"):
        session.run(brief, ["y"], into)


def test_a_run_that_begins_can_be_cancelled(backend: OnnxBackend, tmp_path: Path) -> None:
    """Cancelled between the steps in which a run with a stop of its own begins, it ends too."""
    session = backend.load(source(loop(tmp_path / "m.onnx")))

    class CancelledThen:
        @property
        def terminate(self) -> bool:
            """False, and right afterwards all runs are cancelled."""
            for options in session._stoppable:
                options.terminate = True
            return False

    session._options = CancelledThen()
    x = Tensor("FP32", np.zeros((8, 8), np.float32))
    with pytest.raises(RunFailed, match="terminate"):
        session.run({"x": x, "n": Tensor("INT64", np.array(2))}, ["y"], None, CancellationToken())


def test_a_load_can_be_stopped(backend: OnnxBackend, tmp_path: Path) -> None:
    """A load that nobody wants any more ends inside the engine, and the next one succeeds."""
    path = identity(tmp_path / "m.onnx")
    stop = CancellationToken()
    stop.set(RequestStopped("enough"))
    with pytest.raises(LoadFailed, match="cancel"):
        backend.load(source(path), stop)
    backend.load(source(path), CancellationToken()).close()


def test_one_run_can_be_stopped(backend: OnnxBackend, tmp_path: Path) -> None:
    """A run that has a stop of its own ends by it, and no other run does."""
    session = backend.load(source(loop(tmp_path / "m.onnx")))
    feed = {"x": Tensor("FP32", np.eye(8, dtype=np.float32))}
    endless = {**feed, "n": Tensor("INT64", np.array(2**62))}
    brief = {**feed, "n": Tensor("INT64", np.array(2))}
    stop, other = CancellationToken(), CancellationToken()
    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(session.run, endless, ["y"], None, one) for one in (stop, other)]
        stop.set(RequestStopped("enough"))
        assert isinstance(running[0].exception(), RunFailed)
        assert not running[1].done()
        assert session.run(brief, ["y"], None, CancellationToken())[0].array.shape == (8, 8)
        assert isinstance(pool.submit(session.run, brief, ["y"], None, stop).exception(), RunFailed)
        session.cancel()
        assert isinstance(running[1].exception(), RunFailed)
    with pytest.raises(RunFailed, match="terminate"):
        session.run(brief, ["y"], None, CancellationToken())


def test_a_steady_session(backend: OnnxBackend, tmp_path: Path) -> None:
    """A run whose length depends on what is in its inputs is not expected to be brief."""
    assert backend.load(source(identity(tmp_path / "m.onnx"))).steady
    assert not backend.load(source(written(tmp_path / "g.onnx", FILLED))).steady


IF = """(bool c, float[1, n] x) => (float[1, n] y) {
    y = If (c) <
        then_branch = cheap () => (float[] o) { o = Identity(x) },
        else_branch = dear () => (float[] o) { o = Softmax(x) }
    >
}"""
RANGE = """(int64 end) => (int64[?] y)
    <int64 begin = {0}, int64 end = {8}, int64 step = {1}> { y = Range(begin, end, step) }"""
ROI = "(float[1, 1, h, w] x, float[r, 4] a, int64[r] b) => (float[] y) { y = RoiAlign(x, a, b) }"


def called(node: str, function: str = "Neg") -> tuple[str, dict[str, Any]]:
    """A model of one node, and a function of its own that has one."""
    functions = f'<domain: "d", opset_import: ["": 17]> f (x) => (y) {{ y = {function}(x) }}'
    return f"(float[n] x) => (float[] y) {{ y = {node}(x) }}", {"functions": functions}


def resized(begin: str, inputs: str = "") -> str:
    """A picture that is brought to the size s."""
    return f"(float[1, 1, h, w] x{inputs}) => (float[1, 1, ?, ?] y) {begin} y = Resize(x, , , s) }}"


STEADY = {
    "DFT": ("(float[1, n, 1] x) => (float[1, n, 2] y) { y = DFT(x) }", {}),
    "a function of listed nodes": called("d.f"),
    "a constant, which no request replaces": (RANGE, {"ir_version": 3}),
    "the size of a constant": (resized("<int64[4] s = {1, 1, 4, 4}> {"), {}),
    "of a node": (resized("{ s = Constant <value = int64[4] {1, 1, 4, 4}> ()"), {}),
}
BY_VALUE = {
    "a branch that no run took so far": (IF, {}),
    "HannWindow": ("(int64 n) => (float[?] y) { y = HannWindow(n) }", {}),
    "HammingWindow": ("(int64 n) => (float[?] y) { y = HammingWindow(n) }", {}),
    "BlackmanWindow": ("(int64 n) => (float[?] y) { y = BlackmanWindow(n) }", {}),
    "NonZero": ("(int64[n] n) => (int64[?, ?] y) { y = NonZero(n) }", {}),
    "DFT of a length": ("(float[1, n, 1] x, int64 a) => (float[1, ?, 2] y) { y = DFT(x, a) }", {}),
    "RoiAlign": (ROI, {}),
    "a function of others": called("d.f", "NonZero"),
    "an unknown function": called("d.Neg"),
    "a name that is known elsewhere": called("com.microsoft.Pad"),
    "a default, which a request may replace": (RANGE, {"ir_version": 9}),
    "the size of an input": (resized("{", ", int64[4] s"), {}),
}


@pytest.mark.parametrize("case", [*STEADY, *BY_VALUE])
def test_what_a_run_follows(tmp_path: Path, case: str) -> None:
    """Runs follow their shapes if each operator is listed, and no number in an input is a size."""
    graph, more = (STEADY | BY_VALUE)[case]
    file = read_onnx_file(written(tmp_path / "m.onnx", graph, **more))
    assert file.by_value == (case in BY_VALUE)


@pytest.mark.parametrize("name", ["digits", "wine"])
def test_the_sample_models_are_steady(sample_models: Path, name: str) -> None:
    """Ordinary networks and what scikit-learn writes may run on the spot."""
    assert not read_onnx_file(sample_models / name / "1" / "model.onnx").by_value


def test_an_ir_version_too_new(backend: OnnxBackend, tmp_path: Path) -> None:
    """A file of a newer IR version than the engine's is refused with the line that mends it."""
    model = onnx.load(identity(tmp_path / "m.onnx"))
    model.ir_version = 99
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(
        LoadFailed, match=r"set model\.ir_version = \d+ before onnx\.save"
    ) as caught:
        backend.load(source(tmp_path / "m.onnx"))
    assert "onnxruntime_src" not in str(caught.value)


def threads_of_libraries() -> set[int]:
    """Those that Python did not start: other tests' servers may do so at any time."""
    all_threads = {each.id for each in psutil.Process().threads()}
    return all_threads - {each.native_id for each in threading.enumerate()}


def test_models_bring_no_threads(backend: OnnxBackend, tmp_path: Path) -> None:
    """However many models are loaded, the engine starts no threads for them."""
    path = identity(tmp_path / "m.onnx")
    sessions = [backend.load(source(path))]
    before = threads_of_libraries()
    sessions += [backend.load(source(path)) for _ in range(20)]
    assert threads_of_libraries() <= before
    for session in sessions:
        session.close()


HAS_DRIVER = Path("/dev/nvidiactl").exists() or shutil.which("nvidia-smi") is not None


@pytest.mark.skipif(HAS_DRIVER, reason="this machine has NVIDIA's driver")
def test_no_gpu_without_a_driver(tmp_path: Path) -> None:
    """Where CUDA does not work, that is said, and nothing runs on the CPU in silence."""
    assert find_cuda() in {LIBRARIES_MISSING, NOT_IN_BUILD}
    with pytest.raises(LoadFailed):
        OnnxBackend(cuda_device=0).load(source(identity(tmp_path / "m.onnx")))


PROBE = """
import json, os, pathlib, sys, threading
import numpy as np
from workbench.backends.onnx.backend import OnnxBackend
from workbench.host_memory import anonymous_nbytes
from workbench.model import ModelConfig, ModelId, ModelSource
from workbench.tensor import Tensor

backend = OnnxBackend()
def source(path):
    return ModelSource(ModelId("m", 1), ModelConfig("m"), pathlib.Path(path))
paths = sys.argv[1:]
backend.load(source(paths[0])).close()
start = anonymous_nbytes()
live, worst = [], 0
for turn in range(12):
    if len(live) == 3:
        live.pop(0).close()
    live.append(backend.load(source(paths[turn % len(paths)])))
    books = sum(session.footprint.nbytes for session in live)
    worst = max(worst, anonymous_nbytes() - start - books)
held = anonymous_nbytes() - start
def ask(session):
    spec = session.signature.inputs["x"]
    rows = np.ones((2000, spec.shape[1]), np.float32)
    session.run({"x": Tensor("FP32", rows)}, ["y"])
asking = [threading.Thread(target=ask, args=(session,)) for session in live * 2]
for thread in asking: thread.start()
for thread in asking: thread.join()
books = sum(session.footprint.nbytes for session in live)
while live:
    live.pop().close()
print(json.dumps({
    "held": held, "books": books, "worst": worst, "left": anonymous_nbytes() - start,
    "telemetry": os.environ["ORT_DISABLE_TELEMETRY"],
}))
"""


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux's /proc")
def test_memory_is_counted_and_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system agrees with the books, and gets everything back, also after large runs."""
    folders = write_models(tmp_path, 4, 32 * 2**20)
    paths = [str(folder / "1" / "model.onnx") for folder in folders]
    monkeypatch.delenv("ORT_DISABLE_TELEMETRY")
    told = json.loads(python(PROBE, *paths).stdout)
    assert told["held"] == pytest.approx(told["books"], rel=0.05)
    assert told["worst"] < 0.05 * told["books"]
    assert told["left"] < 16 * 2**20
    assert told["telemetry"] == "1"


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_empty_batches_of_recurrent_models(backend: OnnxBackend, tmp_path: Path, op: str) -> None:
    """They are refused, since ONNX Runtime would end the process."""
    rows = {"LSTM": 4, "GRU": 3, "RNN": 1}[op] * 2
    path = written(
        tmp_path / "m.onnx",
        f"(float[s, n, 3] x) => (float[s, 1, n, 2] y) {{ y = {op} <hidden_size = 2> (x, w, r) }}",
        weights={n: np.ones((1, rows, size), np.float32) for n, size in (("w", 3), ("r", 2))},
    )
    session = backend.load(source(path))
    with pytest.raises(InvalidRequest, match=r"input 'x' of m:1 is empty, shape \[1, 0, 3\]"):
        session.run({"x": Tensor("FP32", np.zeros((1, 0, 3), np.float32))}, ["y"])
    (y,) = session.run({"x": Tensor("FP32", np.zeros((1, 2, 3), np.float32))}, ["y"])
    assert y.array.shape == (1, 1, 2, 2)


@pytest.mark.parametrize("made_by", ["", "Constant", "Identity", "Constant, Identity"])
@pytest.mark.parametrize(
    ("kind", "value", "refused"),
    [("int64", "{0}", True), ("int64", "{4}", False), ("float[0]", "{}", True)],
)
def test_frames_without_samples(
    tmp_path: Path, kind: str, value: str, refused: bool, made_by: str
) -> None:
    """An STFT with such frames is refused at its load, since ONNX Runtime would divide by 0."""
    weight, nodes, name = f", {kind} f = {value}", "", "f"
    if "Constant" in made_by:
        weight, nodes = "", f"f = Constant <value = {kind} {value}> ()"
    if "Identity" in made_by:
        nodes, name = f"{nodes} again = Identity(f)", "again"
    frames = f", {name}" if kind == "int64" else name  # their length, or their window
    ports = "(float[1, n, 1] x) => (float[] y)"
    begin = f"{ports} <int64 step = {{2}}{weight}>"
    graph = f"{begin} {{ {nodes} y = STFT(x, step, {frames}) }}"
    path = written(tmp_path / "m.onnx", graph)
    if refused:
        with pytest.raises(LoadFailed, match="has an STFT with frames of 0 samples"):
            OnnxBackend().load(source(path))
    else:
        OnnxBackend().load(source(path)).close()


@pytest.mark.parametrize(
    ("kernel_shape", "rank", "of_empty"),
    [
        ("<kernel_shape = [3, 3, 3]>", 5, "input 'x' of m:1 is empty"),
        ("", 5, "input 'x' of m:1 is empty"),
        ("<kernel_shape = [3, 3]>", 4, "(1, 1, 2, 4)"),
        ("", 4, "(1, 1, 2, 4)"),
    ],
)
def test_empty_inputs_of_transposed_convolutions(
    elsewhere: Elsewhere, tmp_path: Path, kernel_shape: str, rank: int, of_empty: str
) -> None:
    """With three dimensions they are refused, since ONNX Runtime would end the process."""
    dims = ", ".join(f"d{n}" for n in range(rank))
    path = written(
        tmp_path / "m.onnx",
        f"(float[{dims}] x) => (float[{dims}] y) {{ y = ConvTranspose {kernel_shape} (x, w) }}",
        weights={"w": np.ones([1, 1] + [3] * (rank - 2), np.float32)},
    )
    sizes = [2] * (rank - 3)
    assert elsewhere.run(path, {"x": [1, 1, 0, *sizes]}, 1).startswith(of_empty)
    assert elsewhere.run(path, {"x": [1, 1, 2, *sizes]}, 1) == str((1, 1, 4, *[4] * len(sizes)))


_QKV = "float[b, s, h] q, float[b, s, h] k, float[b, s, h] v"
_PAST = "float[b, n, p, d] pk, float[b, n, p, d] pv, int32[b] l, int32 t"
_EXPERTS = "float[r, h] x, float[r, e] p, float[e, i, h] w, float[f, i] c, float[e, h, i] u"
_LSTM = {"w": (1, 2, 8), "r": (1, 2, 8), "m": [1], "z": [1]}


def _qkv(*shape: int) -> dict[str, object]:
    return dict.fromkeys("qkv", shape)


def _with_past(batch: int, hidden: int) -> dict[str, object]:
    past = dict.fromkeys(("pk", "pv"), (batch, 1, 0, hidden))
    return {**_qkv(batch, 2, hidden), **past, "l": [1] * batch, "t": 2}


def _experts(rows: int, hidden: int) -> dict[str, object]:
    shapes = (rows, hidden), (rows, 2), (2, 4, hidden), (2, 4), (2, hidden, 4)
    return dict(zip("xpwcu", shapes, strict=True))


@pytest.mark.parametrize(
    ("inputs", "node", "told"),
    [
        (
            "float[b, n, s, h] q, float[b, n, s, h] k, float[b, n, s, h] v",
            "Attention (q, k, v)",
            [(_qkv(1, 0, 2, 8), "[1, 0, 2, 8]"), (_qkv(1, 1, 2, 8), "(1, 1, 2, 8)")],
        ),
        (
            _QKV,
            "a = Add (k, q) | com.microsoft.MultiHeadAttention <num_heads=1> (a, k, v)",
            [(_qkv(1, 2, 0), "[1, 2, 0]"), (_qkv(0, 2, 8), "(0, 2, 8)")],
        ),
        (
            f"{_QKV}, {_PAST}",
            "com.microsoft.GroupQueryAttention <num_heads=1, kv_num_heads=1> (q,k,v,pk,pv,l,t)",
            [
                (_with_past(0, 8), "[0, 2, 8]"),
                (_with_past(1, 0), "[1, 2, 0]"),
                (_with_past(1, 8), "(1, 2, 8)"),
            ],
        ),
        (
            "float[b, s] f, int32[b] l, int32 t",
            """sizes = Constant <value_ints = [3, 8]> () table = ConstantOfShape (sizes)
            i = Cast <to=7> (f) q = Gather (table, i) |
            com.microsoft.GroupQueryAttention <num_heads=1, kv_num_heads=1> (q,q,q,,,l,t)""",
            [
                ({"f": (0, 2), "l": [], "t": 2}, "'f' of m:1 has the shape [0, 2]"),
                ({"f": (1, 2), "l": [1], "t": 2}, "(1, 2, 8)"),
            ],
        ),
        (
            _QKV,
            "com.microsoft.MultiHeadAttention <num_heads=1> (q, k, v)",
            [(_qkv(1, 2, 0), "[1, 2, 0]"), (_qkv(0, 2, 8), "(0, 2, 8)")],
        ),
        (
            _QKV,
            "com.microsoft.DecoderMaskedMultiHeadAttention <num_heads=1> (q, k, v)",
            [(_qkv(1, 1, 0), "[1, 1, 0]"), (_qkv(0, 1, 8), "(0, 1, 8)")],
        ),
        (
            _QKV,
            "com.microsoft.MultiHeadAttention <num_heads=1> (q, k, v)",
            [({**_qkv(1, 2, 8), "v": (1, 2, 0)}, "'v' of m:1 has the shape [1, 2, 0]")],
        ),
        (
            _EXPERTS,
            "com.microsoft.MoE <k=1> (x, p, w, c, u)",
            [(_experts(3, 0), "[3, 0]"), (_experts(0, 8), "(0, 8)")],
        ),
        (
            _EXPERTS.replace("float[e, i", "uint8[e, i").replace("float[e, h", "uint8[e, g")
            + ", float[m, h] d",
            "com.microsoft.QMoE <k=1, expert_weight_bits=8> (x, p, w, c,, u, d)",
            [
                ({**_experts(3, 0), "d": (2, 0)}, "[3, 0]"),
                ({**_experts(3, 8), "d": (2, 8)}, "(3, 8)"),
            ],
        ),
        (
            "uint8[b, s, h] x, uint8[h, i] w, float[i] c, float z",
            "com.microsoft.QAttention <num_heads=1> (x, w, c, z, z)",
            [
                ({"x": (0, 2, 8), "w": (8, 24), "c": [24], "z": 1}, "[0, 2, 8]"),
                ({"x": (1, 2, 8), "w": (8, 24), "c": [24], "z": 1}, "(1, 2, 8)"),
            ],
        ),
        (
            "float[b, s, h] x, int64[b, s] p, float[m, d] c",
            "com.microsoft.RotaryEmbedding <num_heads=1> (x, p, c, c)",
            [
                ({"x": (1, 2, 0), "p": (1, 2), "c": (4, 4)}, "[1, 2, 0]"),
                ({"x": (1, 2, 8), "p": (1, 2), "c": (4, 4)}, "(1, 2, 8)"),
            ],
        ),
        (
            _QKV,
            """com.microsoft.LinearAttention <q_num_heads=1, kv_num_heads=1, update_rule="linear">
            (q, k, v)""",
            [
                (_qkv(1, 2, 0), "'q' of m:1 has the shape [1, 2, 0]"),
                ({**_qkv(1, 2, 8), "k": (1, 2, 0)}, "'k' of m:1 has the shape [1, 2, 0]"),
                (_qkv(1, 2, 8), "(1, 2, 8)"),
            ],
        ),
        (
            "float[s, b, i] x, uint8[d, i, g] w, uint8[d, h, g] r, float[d] m, uint8[d] z",
            "com.microsoft.DynamicQuantizeLSTM <hidden_size=2> (x, w, r,,,,,, m, z, m, z)",
            [
                ({**_LSTM, "x": (3, 0, 2)}, "'x' of m:1 is empty, shape [3, 0, 2]"),
                ({**_LSTM, "x": (3, 1, 2)}, "(3, 1, 1, 2)"),
            ],
        ),
        (
            "float[b, n, k] x, int8[c, k, m] w, float[c, d, m] s",
            "com.microsoft.DynamicQuantizeMatMul (x, w, s)",
            [
                ({"x": (1, 2, 0), "w": (1, 0, 4), "s": (1, 1, 4)}, "[1, 2, 0]"),
                ({"x": (0, 2, 3), "w": (1, 3, 4), "s": (1, 1, 4)}, "(0, 2, 4)"),
            ],
        ),
        (
            "float[b, c, h, w] x, float[m, c, i, j] k",
            "Conv <strides=[2, 2]> (x, k)",
            [
                ({"x": (1, 0, 5, 5), "k": (3, 0, 2, 2)}, "[1, 0, 5, 5]"),
                ({"x": (0, 4, 5, 5), "k": (3, 4, 2, 2)}, "(0, 3, 2, 2)"),
            ],
        ),
    ],
)
def test_zeros_that_the_engine_divides_by(
    elsewhere: Elsewhere,
    tmp_path: Path,
    inputs: str,
    node: str,
    told: list[tuple[dict[str, object], str]],
) -> None:
    """A request with such a size or length is refused, since it would end the process."""
    outputs = "y, a, b" if "Group" in node else "y, a" if "Linear" in node else "y"
    made, _, node = node.rpartition("|")
    body = f"step = Constant <value_int=4> () {made} {outputs} = {node}"
    opset = 23 if node.startswith("Attention") else 17
    path = written(tmp_path / "m.onnx", f"({inputs}) => (float y) {{ {body} }}", opset=opset)
    for shapes, words in told:
        line = elsewhere.run(path, shapes)
        assert words in line
        assert words.startswith("(") or "the engine cannot take" in line
