"""Outputs that the engine writes straight into the caller's memory."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx_models import ONNX_TYPES, identity, source, written

from workbench.backends.function import FunctionBackend
from workbench.backends.onnx.backend import OnnxBackend
from workbench.backends.onnx.runtime import find_cuda
from workbench.backends.onnx.session import OnnxSession
from workbench.errors import InvalidRequest
from workbench.model import FunctionModel, ModelConfig, ModelId, ModelSource, TensorSpec
from workbench.tensor import DATATYPES, Tensor, room_for

MANY = 2**18  # elements of any datatype are worth a place


def load(path: Path, graph: str, **more: Any) -> OnnxSession:
    return OnnxBackend().load(source(written(path, graph, **more)))


def memory_of(nbytes: int) -> memoryview:
    """Memory that holds something already, at an address as shared memory has it.

    At others an input is copied before the run, and does not lie there any more.
    """
    room = room_for(nbytes, 0)
    room[:] = b"\xab" * nbytes
    return room


def lies_in(tensor: Tensor, memory: memoryview) -> bool:
    """Whether it lies there from the start; else it must not lie there at all."""
    there = np.frombuffer(memory, np.uint8)
    if not np.shares_memory(tensor.array, there):
        return False
    assert tensor.array.ctypes.data == there.ctypes.data
    return True


def untouched(memory: memoryview) -> bool:
    return bool((np.frombuffer(memory, np.uint8) == 0xAB).all())


def fp32(*shape: int, seed: int = 0) -> Tensor:
    return Tensor("FP32", np.random.default_rng(seed).standard_normal(shape, np.float32))


def ints(*values: int) -> Tensor:
    return Tensor("INT64", np.array(values))


@pytest.fixture
def negative(tmp_path: Path) -> OnnxSession:
    """Gives -x, of a fixed shape that is worth a place."""
    return load(tmp_path / "m.onnx", f"(float[{MANY}] x) => (float[{MANY}] y) {{ y = Neg(x) }}")


@pytest.fixture
def reshaped(tmp_path: Path) -> OnnxSession:
    """Gives -x, of the shape that the input s says: what no shapes of inputs tell."""
    return load(
        tmp_path / "m.onnx",
        "(float[n] x, int64[k] s) => (float[n, m] y) { z = Neg(x) y = Reshape(z, s) }",
    )


def run(session: Any, memory: memoryview, **inputs: Tensor) -> Tensor:
    (answer,) = session.run(inputs, ["y"], {"y": memory})
    assert isinstance(answer, Tensor)
    return answer


@pytest.mark.parametrize("datatype", sorted(set(ONNX_TYPES) - {"BYTES"}))
def test_every_datatype(tmp_path: Path, datatype: str) -> None:
    """An output of a declared shape is a view of the memory, which holds its bytes."""
    session = OnnxBackend().load(source(identity(tmp_path / "m.onnx", datatype, (MANY,))))
    x = (np.arange(MANY) % 2000).astype(DATATYPES[datatype].dtype)
    memory = memory_of(x.nbytes)
    answer = run(session, memory, x=Tensor(datatype, x))
    assert lies_in(answer, memory)
    assert answer.datatype == datatype
    assert answer.array.dtype == x.dtype
    assert bytes(memory) == x.tobytes()


@pytest.mark.parametrize(
    ("make", "placed"),
    [
        (memory_of, True),
        (lambda nbytes: memory_of(nbytes + 1000), True),
        (lambda nbytes: memory_of(nbytes + 4)[4:], True),
        (lambda nbytes: memory_of(nbytes + 1)[1:], False),
        (lambda nbytes: memory_of(nbytes + 2)[2:], False),
        (lambda nbytes: memory_of(nbytes - 1), False),
        (lambda nbytes: memory_of(nbytes).toreadonly(), False),
        (lambda nbytes: memory_of(2 * nbytes)[::2], False),
        (lambda nbytes: memory_of(0), False),
    ],
    ids=["as large", "larger", "4 on", "1 on", "2 on", "too small", "read-only", "gaps", "none"],
)
def test_where_an_output_lies(
    negative: OnnxSession, make: Callable[[int], memoryview], placed: bool
) -> None:
    """At the start of memory that can be written, of whole elements into a page; else elsewhere.

    Kernels count on such addresses. What it does not take is left as it is.
    """
    x = fp32(MANY)
    memory = make(x.array.nbytes)
    answer = run(negative, memory, x=x)
    assert np.array_equal(answer.array, -x.array)
    left = bytes(memory[x.array.nbytes :] if placed else memory)
    assert left == b"\xab" * len(left)
    if placed:
        assert lies_in(answer, memory)


def test_little_is_not_worth_a_place(tmp_path: Path) -> None:
    """A small output is its own, since the caller copies it sooner."""
    session = load(tmp_path / "m.onnx", "(float[4] x) => (float[4] y) { y = Neg(x) }")
    memory = memory_of(MANY * 4)
    assert run(session, memory, x=fp32(4)).array.tolist() == (-fp32(4).array).tolist()
    assert untouched(memory)


def test_shapes_are_learned(tmp_path: Path) -> None:
    """Where a shape is not declared, the second run on inputs of those shapes has its place."""
    session = load(tmp_path / "m.onnx", "(float[n, m] x) => (float[n, m] y) { y = Transpose(x) }")
    memory = memory_of(3 * MANY * 4)
    for rows, columns, placed in [
        (2, MANY, False),
        (2, MANY, True),
        (3, MANY, False),
        (MANY, 2, False),  # as many bytes
        (3, MANY, True),
        (2, MANY, True),
        (MANY, 2, True),
    ]:
        x = fp32(rows, columns, seed=rows)
        answer = run(session, memory, x=x)
        assert lies_in(answer, memory) is placed
        assert np.array_equal(answer.array, x.array.T)


@pytest.mark.parametrize(
    "last",
    [
        "y = Identity(a)",
        "y = Neg(a)",
        "y = Transpose(a)",
        "y = Softmax(a)",
        "b = Abs(a) y = Neg(b)",
    ],
)
def test_shapes_that_follow_values(tmp_path: Path, last: str) -> None:
    """Where a learned shape was wrong, the answer is right, and no place is given any more."""
    session = load(
        tmp_path / "m.onnx",
        f"(float[n] x, int64[k] s) => (float[n, m] y) {{ a = Reshape(x, s) {last} }}",
    )
    x, memory = fp32(MANY), memory_of(MANY * 4)
    for rows, placed in [(2, False), (2, True), (4, False), (4, False), (2, False)]:
        shape = ints(rows, MANY // rows)
        (ordinary,) = session.run({"x": x, "s": shape}, ["y"])
        answer = run(session, memory, x=x, s=shape)
        assert lies_in(answer, memory) is placed
        assert answer.shape == ordinary.shape
        assert np.array_equal(answer.array, ordinary.array)


def test_sizes_that_follow_values(tmp_path: Path) -> None:
    """An output that grows or shrinks with the numbers in its input is right each time."""
    session = load(tmp_path / "m.onnx", "(float[n] x) => (int64[n, m] y) { y = NonZero(x) }")
    memory = memory_of(MANY * 8)
    for count in (MANY, MANY, MANY // 2, MANY, 0, MANY - 1):
        x = np.zeros(MANY, np.float32)
        x[:count] = 1
        answer = run(session, memory, x=Tensor("FP32", x))
        assert answer.array.tolist() == [list(range(count))]


def test_what_is_not_steady_is_not_learned(tmp_path: Path) -> None:
    """A model that makes as much as a number says has no place but for declared shapes."""
    session = load(
        tmp_path / "m.onnx",
        f"(float[{MANY}] x, int64[k] s) => (float[n, m] y, float[{MANY}] z)"
        "{ y = Expand(x, s) z = Neg(x) }",
    )
    y, z = memory_of(MANY * 4), memory_of(MANY * 4)
    for _ in range(3):
        given = {"x": fp32(MANY), "s": ints(1, MANY)}
        answers = session.run(given, ["z", "y"], {"y": y, "z": z})
        assert lies_in(answers[0], z)
        assert untouched(y)
        assert np.array_equal(answers[1].array, fp32(MANY).array.reshape(1, -1))


def test_a_declaration_that_is_wrong(tmp_path: Path) -> None:
    """Where the configuration declares another shape than is given, the answer is still right."""
    path = written(tmp_path / "m.onnx", "(float[n, m] x) => (float[n, m] y) { y = Neg(x) }")
    declared = TensorSpec("y", "FP32", (2, MANY))
    session = OnnxBackend().load(source(path, outputs=(declared,)))
    memory = memory_of(MANY * 8)
    for _ in range(2):
        answer = run(session, memory, x=fp32(MANY, 2))
        assert not lies_in(answer, memory)
        assert np.array_equal(answer.array, -fp32(MANY, 2).array)


def test_some_of_several_outputs(tmp_path: Path) -> None:
    """Outputs with and without memory come in the wanted order, each where it is to be."""
    session = load(
        tmp_path / "m.onnx",
        f"""(float[{MANY}] x) => (float[{MANY}] y, float[{MANY}] z, int64[1] s, string[1] t) {{
            y = Neg(x)
            z = Abs(y)
            s = Shape(x)
            t = Cast <to = 8> (s)
        }}""",
    )
    y, z, t = memory_of(MANY * 4), memory_of(MANY * 4), memory_of(MANY * 4)
    x = fp32(MANY)
    text, size, positive, negative = session.run({"x": x}, ["t", "s", "z", "y"], {"y": y, "t": t})
    assert text.array.tolist() == [str(MANY).encode()]
    assert size.array.tolist() == [MANY]
    assert np.array_equal(positive.array, abs(x.array))
    assert np.array_equal(negative.array, -x.array)
    assert lies_in(negative, y)
    assert untouched(t)
    (positive,) = session.run({"x": x}, ["z"], {"y": y, "z": z})
    assert lies_in(positive, z)


def test_memory_of_an_input(tmp_path: Path) -> None:
    """Memory that an input lies in, even in part, is no place: it would be read after writing."""
    session = load(
        tmp_path / "m.onnx",
        f"(float[{MANY}, 1] x, int64[1] l) => (float[{MANY}, 1] y)"
        "{ y = ReverseSequence <batch_axis = 1, time_axis = 0> (x, l) }",
    )
    memory = memory_of(MANY * 8)
    for start in (0, MANY * 2, MANY * 4 - 4, MANY * 4):
        x = np.ndarray((MANY, 1), np.float32, memory)
        x[:] = fp32(MANY, 1).array
        answer = run(session, memory[start:], x=Tensor("FP32", x), l=ints(MANY))
        assert lies_in(answer, memory[start:]) is (start == MANY * 4)
        assert np.array_equal(answer.array, fp32(MANY, 1).array[::-1])


def test_memory_of_another_output(tmp_path: Path) -> None:
    """Of two outputs that are to lie in each other, only the first has its place."""
    session = load(
        tmp_path / "m.onnx",
        f"(float[{MANY}] x) => (float[{MANY}] y, float[{MANY}] z) {{ y = Neg(x) z = Abs(x) }}",
    )
    memory, x = memory_of(MANY * 8), fp32(MANY)
    into = {"y": memory, "z": memory[MANY * 2 :]}
    y, z = session.run({"x": x}, ["y", "z"], into)
    assert lies_in(y, memory)
    assert not lies_in(z, memory)
    assert np.array_equal(y.array, -x.array)
    assert np.array_equal(z.array, abs(x.array))


def test_an_output_that_is_an_input(tmp_path: Path) -> None:
    """An input that is passed through is right, and a copy, though the engine writes it nowhere."""
    session = load(
        tmp_path / "m.onnx",
        f"(float[{MANY}] x) => (float[{MANY}] x, float[{MANY}] y) {{ y = Neg(x) }}",
    )
    memory, other, x = memory_of(MANY * 4), memory_of(MANY * 4), fp32(MANY)
    for into in ({"x": memory, "y": other}, {"y": other}):
        echo, y = session.run({"x": x}, ["x", "y"], into)
        assert np.array_equal(echo.array, x.array)
        assert not np.shares_memory(echo.array, x.array)
        assert not lies_in(echo, memory)
        assert lies_in(y, other)


def test_constants_and_outputs_in_use(tmp_path: Path) -> None:
    """Constants, and outputs that other nodes read, are written whole."""
    outputs = ", ".join(f"float[{MANY}] {name}" for name in "wyzv")
    session = load(
        tmp_path / "m.onnx",
        f"(float[{MANY}] x) => ({outputs}) {{ y = Neg(x) z = Add(y, w) v = Neg(w) }}",
        weights={"w": fp32(MANY, seed=1).array},
    )
    into = {name: memory_of(MANY * 4) for name in "wyzv"}
    answers = session.run({"x": fp32(MANY)}, list("wyzv"), into)
    ordinary = session.run({"x": fp32(MANY)}, list("wyzv"))
    for name, answer, expected in zip("wyzv", answers, ordinary, strict=True):
        assert lies_in(answer, into[name])
        assert np.array_equal(answer.array, expected.array)


def test_text_in(tmp_path: Path) -> None:
    """A model that takes text gives ordinary answers."""
    session = load(
        tmp_path / "m.onnx", f"(string[{MANY}] x) => (float[{MANY}] y) {{ y = Cast <to = 1> (x) }}"
    )
    memory = memory_of(MANY * 4)
    for _ in range(2):
        answer = run(session, memory, x=Tensor.of(["1.5"] * MANY))
        assert answer.array.tolist() == [1.5] * MANY
        assert untouched(memory)


def test_a_run_that_fails(reshaped: OnnxSession) -> None:
    """A run that fails tells what it would have told, and places are given afterwards."""
    memory, x = memory_of(MANY * 4), fp32(MANY)
    good, bad = ints(2, MANY // 2), ints(3, MANY)
    run(reshaped, memory, x=x, s=good)
    with pytest.raises(InvalidRequest) as ordinary:
        reshaped.run({"x": x, "s": bad}, ["y"])
    with pytest.raises(InvalidRequest) as placed:
        run(reshaped, memory, x=x, s=bad)
    assert str(placed.value) == str(ordinary.value)
    assert lies_in(run(reshaped, memory, x=x, s=good), memory)


def test_inputs_that_are_not_contiguous(negative: OnnxSession) -> None:
    """Strided inputs give the elements that they show."""
    memory, wide = memory_of(MANY * 4), fp32(2 * MANY)
    answer = run(negative, memory, x=Tensor("FP32", wide.array[::2]))
    assert lies_in(answer, memory)
    assert np.array_equal(answer.array, -wide.array[::2])


def test_many_at_once(negative: OnnxSession) -> None:
    """Runs of several threads write each into their own memory."""

    def ask(seed: int) -> bool:
        memory, x = memory_of(MANY * 4), fp32(MANY, seed=seed)
        answer = run(negative, memory, x=x)
        return lies_in(answer, memory) and np.array_equal(answer.array, -x.array)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(ask, range(20)))


def test_functions_make_their_own() -> None:
    """A function's outputs are ordinary ones."""
    spec = {name: TensorSpec(name, "FP32", (-1,)) for name in "xy"}
    model = FunctionModel(lambda x: -x, (spec["x"],), (spec["y"],))
    made = FunctionBackend().load(ModelSource(ModelId("f", 1), ModelConfig("f"), model))
    memory = memory_of(MANY * 4)
    assert np.array_equal(run(made, memory, x=fp32(MANY)).array, -fp32(MANY).array)
    assert untouched(memory)


@pytest.mark.gpu
def test_from_a_gpu(tmp_path: Path) -> None:
    """A GPU's output is copied to its place, if no more than one dimension is open."""
    if absence := find_cuda():
        pytest.skip(absence)
    path = written(
        tmp_path / "m.onnx",
        "(float[n] x, int64[2] s) => (float[n, m] y, float[n] u)"
        "{ z = Neg(x) y = Reshape(z, s) u = Neg(x) }",
    )
    session = OnnxBackend(cuda_device=0).load(source(path))
    memory: Mapping[str, memoryview] = {name: memory_of(MANY * 4) for name in "yu"}
    x = fp32(MANY)
    for rows, placed in [(2, False), (2, True), (4, True), (2, True)]:
        shape = ints(rows, MANY // rows)
        y, u = session.run({"x": x, "s": shape}, ["y", "u"], memory)
        assert not lies_in(y, memory["y"])
        assert lies_in(u, memory["u"]) is placed
        assert np.array_equal(y.array, -x.array.reshape(rows, -1))
        assert np.array_equal(u.array, -x.array)
