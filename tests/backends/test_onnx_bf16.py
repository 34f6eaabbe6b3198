"""BF16, which numpy lacks, in and out of ONNX Runtime as its bits."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx_models import identity, source, written

from workbench.backends.onnx.backend import OnnxBackend
from workbench.backends.onnx.session import OnnxSession
from workbench.errors import LoadFailed
from workbench.model import TensorSpec
from workbench.tensor import Tensor


def load(path: Path, graph: str, **more: Any) -> OnnxSession:
    return OnnxBackend().load(source(written(path, graph, **more)))


@pytest.fixture
def session(tmp_path: Path) -> OnnxSession:
    return OnnxBackend().load(source(identity(tmp_path / "m.onnx", "BF16")))


def bf16(*bits: int) -> Tensor:
    return Tensor("BF16", np.array(bits, np.uint16))


def through(session: OnnxSession, bits: Any) -> Any:
    (answer,) = session.run({"x": Tensor("BF16", bits)}, ["y"])
    assert answer.datatype == "BF16"
    return answer.array


def test_every_pattern_comes_out_as_it_went_in(session: OnnxSession) -> None:
    """All 65536 patterns are kept: each NaN, both zeros, the infinities, the subnormals."""
    bits = np.arange(2**16, dtype=np.uint16)
    assert np.array_equal(through(session, bits), bits)


def test_however_the_bits_lie(tmp_path: Path, session: OnnxSession) -> None:
    """Strided, transposed, unaligned and read-only arrays give the elements that they show."""
    bits = np.arange(24, dtype=np.uint16)
    assert through(session, bits[::3]).tolist() == bits[::3].tolist()
    body = b"x" + bits.tobytes()
    unaligned = np.frombuffer(memoryview(body)[1:], np.uint16)
    assert np.array_equal(through(session, unaligned), bits)
    matrix = bits.reshape(4, 6).T
    two = OnnxBackend().load(source(identity(tmp_path / "two.onnx", "BF16", ("n", "m"))))
    assert np.array_equal(through(two, matrix), matrix)


def test_bf16_beside_others(tmp_path: Path) -> None:
    """Inputs and outputs of several datatypes are told apart, in whatever order they are wanted."""
    session = load(
        tmp_path / "m.onnx",
        """(bfloat16[n] a, float[n] b) => (float[n] sum, bfloat16[n] half, string[n] text) {
            wide = Cast <to = 1> (a)
            sum = Add(wide, b)
            half = Cast <to = 16> (sum)
            text = Cast <to = 8> (sum)
        }""",
    )
    given = {"a": bf16(0x3F80, 0xC000), "b": Tensor("FP32", np.array([2, 0.5], np.float32))}
    text, half, total = session.run(given, ["text", "half", "sum"])
    assert (text.datatype, text.array.tolist()) == ("BYTES", [b"3", b"-1.5"])
    assert (half.datatype, half.array.tolist()) == ("BF16", [0x4040, 0xBFC0])
    assert (total.datatype, total.array.tolist()) == ("FP32", [3, -1.5])
    (alone,) = session.run(given, ["sum"])
    assert alone.array.tolist() == [3, -1.5]


def test_bf16_in_only(tmp_path: Path) -> None:
    """A model may take BF16 and text, and give what is neither, or text."""
    session = load(
        tmp_path / "m.onnx",
        "(bfloat16[n] x, string[m] t) => (float[n] y, string[m] u)"
        "{ y = Cast <to = 1> (x) u = Identity(t) }",
    )
    number, text = session.run({"x": bf16(0x4049), "t": Tensor.of(["grün"])}, ["y", "u"])
    assert number.array.tolist() == [3.140625]
    assert text.array.tolist() == ["grün".encode()]


def test_text_in_and_bf16_out(tmp_path: Path) -> None:
    """Text in and BF16 out is a failed load in one line, unless that output is not served."""
    path = written(
        tmp_path / "m.onnx",
        "(string[n] t) => (float[n] wide, bfloat16[n] half)"
        "{ wide = Cast <to = 1> (t) half = Cast <to = 16> (wide) }",
    )
    for act in (OnnxBackend().inspect, OnnxBackend().load):
        with pytest.raises(LoadFailed, match=r"takes text \('t'\) and gives BF16 \('half'\)") as no:
            act(source(path))
        assert "\n" not in str(no.value)
    served = source(path, outputs=(TensorSpec("wide", "FP32", (-1,)),))
    (answer,) = OnnxBackend().load(served).run({"t": Tensor.of(["1.5"])}, ["wide"])
    assert answer.array.tolist() == [1.5]


def test_weights_are_counted(tmp_path: Path) -> None:
    """Weights of BF16 take two bytes an element."""
    zeros = ", ".join(["0"] * 1000)
    path = written(
        tmp_path / "m.onnx",
        f"(bfloat16[n] x) => (bfloat16[n] y, bfloat16[n] z) <bfloat16[1000] w = {{{zeros}}}>"
        "{ y = Identity(w) z = Identity(x) }",
    )
    assert OnnxBackend().load(source(path)).footprint.nbytes >= 2000
    weights, given = OnnxBackend().load(source(path)).run({"x": bf16(1)}, ["y", "z"])
    assert weights.array.tolist() == [0] * 1000
    assert given.array.tolist() == [1]


def test_answers_are_their_readers(tmp_path: Path) -> None:
    """An output that is an input too is a copy of it, of whatever datatype."""
    session = load(
        tmp_path / "m.onnx",
        "(bfloat16[n] x, float[n] z) => (bfloat16[n] x, float[n] z, bfloat16[n] y)"
        "{ y = Cast <to = 16> (z) }",
    )
    inputs = {"x": bf16(1, 2), "z": Tensor("FP32", np.ones(2, np.float32))}
    echoes = session.run(inputs, ["x", "z"])
    for name, echo in zip("xz", echoes, strict=True):
        assert np.array_equal(echo.array, inputs[name].array)
        assert not np.shares_memory(echo.array, inputs[name].array)
