"""Requests against a model's signature: what fits, and what the refusal says."""

import pickle
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from workbench.errors import InvalidRequest
from workbench.inference import (
    Fit,
    InferRequest,
    InferResponse,
    check_request,
    zeros,
    zeros_of,
)
from workbench.model import ModelId, Signature, TensorSpec
from workbench.stop import CancellationToken
from workbench.tensor import Tensor

MODEL = ModelId("m", 2)
SIGNATURE = Signature(
    "fake",
    {
        "a": TensorSpec("a", "FP32", (-1, 3)),
        "b": TensorSpec("b", "INT64", (2,)),
        "c": TensorSpec("c", "BYTES", (-1,), optional=True),
    },
    {name: TensorSpec(name, "FP32", (-1,)) for name in ("y", "z", "w")},
)
TAKES = "it takes 'a' FP32 [-1, 3], 'b' INT64 [2], 'c' BYTES [-1]"
A = Tensor.of(np.zeros((4, 3), np.float32))
B = Tensor.of(np.zeros(2, np.int64))
C = Tensor.of(["text"])
BATCHED = Signature(
    "fake",
    {"a": TensorSpec("a", "FP32", (-1, 3)), "b": TensorSpec("b", "FP32", (-1,), optional=True)},
    {"y": TensorSpec("y", "FP32", (-1,))},
    max_batch_size=4,
)


def ask(inputs: Mapping[str, Tensor], *outputs: str) -> tuple[str, ...]:
    return check_request(MODEL, SIGNATURE, InferRequest("m", inputs, outputs=outputs)).to_compute


def batch(**sizes: int) -> dict[str, Tensor]:
    shapes: dict[str, Any] = {"a": (3,), "b": ()}
    return {
        name: Tensor.of(np.zeros((size, *shapes[name]), np.float32)) for name, size in sizes.items()
    }


LONG = Tensor("FP32", np.zeros((1000, 3), np.float32))


@pytest.mark.parametrize(
    "inputs",
    [{"a": A, "b": B}, {"b": B, "a": A}, {"c": C, "a": A, "b": B}, {"a": LONG, "b": B}],
)
def test_a_fitting_request(inputs: dict[str, Tensor]) -> None:
    """Inputs fit in any order, with or without the optional ones, and give all outputs.

    Without max_batch_size the first dimension is one like any other.
    """
    assert ask(inputs) == ("y", "z", "w")


def test_any_rank() -> None:
    """An input of any rank takes every shape, and none is made up for a trial run."""
    spec = TensorSpec("x", "FP32", (-1,), any_rank=True)
    signature = Signature("fake", {"x": spec}, {})
    for shape in ((), (3,), (2, 3), (0, 2, 1)):
        request = InferRequest("m", {"x": Tensor.of(np.zeros(shape, np.float32))})
        assert check_request(MODEL, signature, request).signature is signature
    assert zeros(signature) is None


@pytest.mark.parametrize("wanted", [("y", "z", "w"), ("z",), ("w", "y"), ("w", "z", "y")])
def test_wanted_outputs(wanted: tuple[str, ...]) -> None:
    """A request that names outputs gets just those, in its own order."""
    assert ask({"a": A, "b": B}, *wanted) == wanted


@pytest.mark.parametrize(
    ("inputs", "outputs", "message"),
    [
        (
            {"a": A},
            (),
            f"the request lacks input 'b' of m:2, which {TAKES.removeprefix('it ')}",
        ),
        (
            {},
            (),
            f"the request lacks input 'a', 'b' of m:2, which {TAKES.removeprefix('it ')}",
        ),
        ({"a": A, "b": B, "d": A}, (), f"m:2 has no input 'd'; {TAKES}"),
        ({"A": A, "b": B}, (), f"m:2 has no input 'A'; {TAKES}"),
        ({"a": Tensor.of(np.zeros((4, 3))), "b": B}, (), "input 'a' of m:2 takes FP32, got FP64"),
        ({"a": A, "b": A}, (), "input 'b' of m:2 takes INT64, got FP32"),
        ({"a": A, "b": B, "c": Tensor("FP32", np.zeros(1, np.float32))}, (),
         "input 'c' of m:2 takes BYTES, got FP32"),
        ({"a": Tensor("FP32", np.zeros((4, 5), np.float32)), "b": B}, (),
         "input 'a' of m:2 takes shape [-1, 3], got [4, 5]"),
        ({"a": Tensor("FP32", np.zeros(3, np.float32)), "b": B}, (),
         "input 'a' of m:2 takes shape [-1, 3], got [3]"),
        ({"a": A, "b": Tensor("INT64", np.zeros((), np.int64))}, (),
         "input 'b' of m:2 takes shape [2], got []"),
        ({"a": A, "b": B}, ("y", "x"),
         "m:2 has no output 'x'; it has 'y' FP32 [-1], 'z' FP32 [-1], 'w' FP32 [-1]"),
    ],
)  # fmt: skip
def test_what_does_not_fit(
    inputs: dict[str, Tensor], outputs: tuple[str, ...], message: str
) -> None:
    """A refusal names the model, the input or output, what is expected and what came."""
    with pytest.raises(InvalidRequest) as caught:
        ask(inputs, *outputs)
    assert str(caught.value) == message


def test_a_bit_pattern_has_a_datatype() -> None:
    """UINT16 is not taken for BF16, though both are carried alike."""
    signature = Signature("fake", {"a": TensorSpec("a", "BF16", (1,))}, {})
    bits = np.zeros(1, np.uint16)
    assert (
        check_request(MODEL, signature, InferRequest("m", {"a": Tensor("BF16", bits)})).to_compute
        == ()
    )
    with pytest.raises(InvalidRequest, match="takes BF16, got UINT16"):
        check_request(MODEL, signature, InferRequest("m", {"a": Tensor("UINT16", bits)}))


def test_a_model_without_inputs() -> None:
    """A model that takes nothing takes nothing, and says so."""
    signature = Signature("fake", {}, SIGNATURE.outputs)
    assert check_request(MODEL, signature, InferRequest("m", {})).to_compute == ("y", "z", "w")
    with pytest.raises(InvalidRequest, match=r"^m:2 has no input 'a'; it takes none$"):
        check_request(MODEL, signature, InferRequest("m", {"a": A}))


@pytest.mark.parametrize("inputs", [batch(a=1), batch(a=4), batch(a=4, b=4), batch(a=0, b=0)])
def test_batches(inputs: dict[str, Tensor]) -> None:
    """A batch up to the limit fits, the same for every input."""
    assert check_request(MODEL, BATCHED, InferRequest("m", inputs)).to_compute == ("y",)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (batch(a=5), "input 'a' of m:2 has batch size 5; at most 4 is allowed"),
        (batch(a=2, b=3), "the inputs of m:2 have different batch sizes: {'a': 2, 'b': 3}"),
    ],
)
def test_bad_batches(inputs: dict[str, Tensor], message: str) -> None:
    """A batch over the limit, or of different sizes, is refused with the sizes."""
    with pytest.raises(InvalidRequest) as caught:
        check_request(MODEL, BATCHED, InferRequest("m", inputs))
    assert str(caught.value) == message


def test_a_request_of_its_own() -> None:
    """Requests share neither parameters nor classes, and each knows when it was made."""
    before_s = time.perf_counter()
    early, late = InferRequest("m", {}), InferRequest("m", {})
    assert before_s <= early.made_s <= late.made_s <= time.perf_counter()
    assert early.parameters is not late.parameters
    assert early.classes is not late.classes


def test_nbytes() -> None:
    """A request is as large as its inputs; of BYTES only the references count."""
    assert InferRequest("m", {}).nbytes == 0
    assert InferRequest("m", {"a": A, "b": B}).nbytes == 4 * 3 * 4 + 2 * 8
    assert InferRequest("m", {"c": Tensor.of(["x" * 1000])}).nbytes == C.array.itemsize


def test_requests_and_responses_cross_processes() -> None:
    """They are values: what is asked is pickled, what belongs to a process is not."""
    request = InferRequest(
        "m", MappingProxyType({"a": A, "c": C}), 2, ("y",), "7", {"priority": 1}, {"y": 2}
    )
    request.stop, request.into = CancellationToken(), {"y": memoryview(bytearray(4))}
    request.fit = Fit(SIGNATURE, ("y",))
    request.functions, request.scalars_of_one = False, True
    again = pickle.loads(pickle.dumps(request))
    for name in ("model", "version", "outputs", "id", "parameters", "classes"):
        assert getattr(again, name) == getattr(request, name)
    assert (again.functions, again.scalars_of_one) == (False, True)
    assert (again.stop, again.fit, again.into) == (None, None, None)
    arrays = {name: tensor.array.tolist() for name, tensor in again.inputs.items()}
    assert arrays == {"a": A.array.tolist(), "c": [b"text"]}
    response = InferResponse(MODEL, {"y": B}, "7", {"sequence_id": 0})
    told = pickle.loads(pickle.dumps(response))
    assert (told.model, told.id, told.parameters) == (MODEL, "7", {"sequence_id": 0})
    assert np.array_equal(told.outputs["y"].array, B.array)


@pytest.mark.parametrize(
    ("spec", "batch", "shape", "element"),
    [
        (TensorSpec("x", "FP32", (-1, 3, -1)), 4, (4, 3, 1), 0.0),
        (TensorSpec("x", "INT8", (2, 2)), 4, (2, 2), 0),
        (TensorSpec("x", "BYTES", (-1,)), 2, (2,), "text"),
        (TensorSpec("x", "BOOL", ()), 2, (), False),
        (TensorSpec("x", "BF16", (-1,)), 1, (1,), 0.0),
    ],
)
def test_zeros_that_a_tensor_takes(
    spec: TensorSpec, batch: int, shape: tuple[int, ...], element: object
) -> None:
    """Zeros have a declared shape, with the batch first; texts are texts."""
    zeros = zeros_of(spec, batch)
    assert zeros.shape == shape
    assert set(zeros.reshape(-1).tolist()) == {element}
