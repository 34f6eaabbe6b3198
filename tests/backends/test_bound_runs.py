"""Runs that are bound to memory of their own: it is used again, and never by two runs at once."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx_models import source, written

from workbench.backends.onnx.backend import OnnxBackend
from workbench.backends.onnx.bound_runs import BoundRuns
from workbench.backends.onnx.session import OnnxSession
from workbench.errors import InvalidRequest
from workbench.tensor import ALIGNED_NBYTES, Tensor


def tensor(value: object, dtype: str = "float32") -> Tensor:
    return Tensor.of(np.array(value, dtype))


def load(folder: Path, graph: str) -> OnnxSession:
    session = OnnxBackend().load(source(written(folder / "m.onnx", graph)))
    assert isinstance(session, OnnxSession)
    return session


def bound(session: OnnxSession) -> BoundRuns:
    assert session._bound is not None
    return session._bound


@pytest.fixture
def session(tmp_path: Path) -> OnnxSession:
    """One that gives -x, of any length."""
    return load(tmp_path, "(float[n] x) => (float[n] y) { y = Neg(x) }")


def ask(session: OnnxSession, **inputs: Tensor) -> list[Any]:
    return [answer.array.tolist() for answer in session.run(inputs, ("y",))]


def test_runs_of_one_shape_have_one_binding(session: OnnxSession) -> None:
    """A run reads and writes the aligned memory of the run before, with its own elements in it."""
    assert [ask(session, x=tensor([n, 1])) for n in range(3)] == [[[-n, -1]] for n in range(3)]
    (kept,) = bound(session)._free.values()
    place, result = kept.place["x"].array, kept.result["y"].array
    assert (place.tolist(), result.tolist()) == ([2, 1], [-2, -1])
    for array in (place, result):
        assert array.ctypes.data % ALIGNED_NBYTES == 0


def test_each_shape_has_its_own(session: OnnxSession) -> None:
    """Inputs of another shape take other memory, and answers have their lengths."""
    for _ in range(2):
        for length in (1, 3, 2):
            assert ask(session, x=tensor([1] * length)) == [[-1] * length]
    assert len(bound(session)._free) == 3


def test_there_is_a_limit_of_shapes(session: OnnxSession) -> None:
    """A model that gets inputs of ever new shapes keeps memory for a limited number of them."""
    for length in range(1, 200):
        assert ask(session, x=tensor([1] * length)) == [[-1] * length]
    assert len(bound(session)._free) == 64


def test_a_run_in_progress_keeps_its_memory(session: OnnxSession) -> None:
    """Another run meanwhile, of the same shape, is made without."""
    for _ in range(2):
        ask(session, x=tensor([1, 2]))
    runs = bound(session)
    ((key, kept),) = runs._free.items()
    del runs._free[key]
    assert ask(session, x=tensor([3, 4])) == [[-3, -4]]
    assert not runs._free
    assert kept.place["x"].array.tolist() == [1, 2]


def test_a_model_without_inputs(tmp_path: Path) -> None:
    """It runs as it did before there was a binding."""
    session = load(tmp_path, "() => (float[2] y) { y = Constant<value_floats = [5.0, 6.0]>() }")
    for _ in range(2):
        assert ask(session) == [[5, 6]]
    assert not bound(session)._free


@pytest.mark.parametrize("length", [0, 1025])
def test_what_is_not_bound(session: OnnxSession, length: int) -> None:
    """Runs on large and on empty inputs keep nothing, and take no place of others."""
    for _ in range(2):
        assert ask(session, x=tensor([1] * length)) == [[-1] * length]
    assert not bound(session)._free
    assert not bound(session)._known


def test_elements_are_never_converted(session: OnnxSession) -> None:
    """An input of another type is refused, as before there was a binding."""
    ask(session, x=tensor([1, 2]))
    with pytest.raises(InvalidRequest, match="Unexpected input data type"):
        ask(session, x=tensor([1, 2], "int32"))


def test_a_failed_run(tmp_path: Path) -> None:
    """The engine's own error is raised, and later runs succeed."""
    session = load(
        tmp_path,
        "(int64[1] i) => (float[1] y) <float[2] w = {5, 6}> { y = Gather(w, i) }",
    )
    for _ in range(2):
        assert ask(session, i=tensor([1], "int64")) == [[6]]
        with pytest.raises(Exception, match="indices element out of data bounds"):
            ask(session, i=tensor([7], "int64"))
    assert ask(session, i=tensor([0], "int64")) == [[5]]


@pytest.mark.parametrize("operator", ["Identity", "Flatten", "Dropout", "Neg"])
@pytest.mark.parametrize("outputs", [("y",), ("x",), ("x", "y"), ("w", "y")])
def test_an_answer_is_not_changed_by_later_runs(
    operator: str, outputs: tuple[str, ...], tmp_path: Path
) -> None:
    """A model may pass inputs and weights on as outputs: the next run does not write there."""
    session = load(
        tmp_path,
        "(float[n, 2] x) => (float[n, 2] y, float[n, 2] x, float[2] w) "
        f"<float[2] w = {{5, 6}}> {{ y = {operator}(x) }}",
    )
    answers = [session.run({"x": tensor([[n, n]])}, outputs) for n in range(4)]
    sign = -1 if operator == "Neg" else 1
    for n, answer in enumerate(answers):
        expected = {"x": [[n, n]], "y": [[sign * n, sign * n]], "w": [5, 6]}
        assert [each.array.tolist() for each in answer] == [expected[name] for name in outputs]
