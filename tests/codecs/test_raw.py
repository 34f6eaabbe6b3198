"""Raw requests: a body that is all data, for the one input of a model."""

import numpy as np
import pytest

from workbench.codecs import v2
from workbench.codecs.v2 import ReplyForm
from workbench.errors import InvalidRequest
from workbench.inference import InferRequest
from workbench.model import Signature, TensorSpec
from workbench.tensor import DATATYPES, Tensor


def signature(*shapes: tuple[int, ...], datatype: str = "FP32") -> Signature:
    """A model with an input of each of *shapes*."""
    specs = {f"x{n}": TensorSpec(f"x{n}", datatype, shape) for n, shape in enumerate(shapes)}
    return Signature("fake", specs, {"y": TensorSpec("y", "FP32", (-1,))})


def decode(body: bytes, shape: tuple[int, ...], datatype: str = "FP32") -> Tensor:
    """The one input."""
    request, _ = v2.decode_raw("m", None, body, signature(shape, datatype=datatype))
    assert list(request.inputs) == ["x0"]
    return request.inputs["x0"]


def refusal(body: bytes, *shapes: tuple[int, ...], datatype: str = "FP32") -> str:
    with pytest.raises(InvalidRequest) as caught:
        v2.decode_raw("m", None, body, signature(*shapes, datatype=datatype))
    return str(caught.value)


def test_a_raw_request() -> None:
    """The body is the data of the only input, a batch of one; all outputs come as binary data."""
    body = np.array([1.5, -2.5], "<f4").tobytes()
    request, form = v2.decode_raw("m", 7, body, signature((-1, 2)))
    assert request == InferRequest("m", request.inputs, 7, made_s=request.made_s)
    tensor = request.inputs["x0"]
    assert (tensor.datatype, tensor.array.tolist()) == ("FP32", [[1.5, -2.5]])
    assert form == ReplyForm(binary=True)
    assert np.shares_memory(tensor.array, np.frombuffer(body, np.uint8))


@pytest.mark.parametrize(
    ("shape", "count", "made"),
    [
        ((), 1, ()),
        ((3,), 3, (3,)),
        ((2, 3), 6, (2, 3)),
        ((-1,), 1, (1,)),
        ((-1,), 5, (5,)),
        ((-1, 3), 3, (1, 3)),
        ((-1, -1), 5, (1, 5)),
        ((-1, 2, -1), 6, (1, 2, 3)),
        ((2, -1), 6, (2, 3)),
        ((3, -1, 2), 0, (3, 0, 2)),
        ((-1, 0), 0, (1, 0)),
        ((0, -1), 0, (0, 1)),
    ],
)
@pytest.mark.parametrize("datatype", ["BOOL", "FP64"])
def test_shapes(datatype: str, shape: tuple[int, ...], count: int, made: tuple[int, ...]) -> None:
    """The batch is one, and one more free dimension is what the size of the body makes it."""
    body = bytes(count * DATATYPES[datatype].itemsize)
    assert decode(body, shape, datatype).shape == made


@pytest.mark.parametrize("shape", [(1,), (-1,), (-1, 1), (1, 1, 1), ()])
@pytest.mark.parametrize("text", [b"", b"a", b"\xff\0\1"])
def test_bytes(shape: tuple[int, ...], text: bytes) -> None:
    """A BYTES body is one element, without a length before it."""
    tensor = decode(text, shape, "BYTES")
    assert tensor.shape == tuple(abs(dim) for dim in shape)
    assert tensor.array.reshape(-1).tolist() == [text]


_FREE = "a raw request does not tell the shape of input 'x0', of which more than one size is free"


def _inputs(count: int) -> str:
    return f"a raw request is for a model of one input; 'm' has {count}"


@pytest.mark.parametrize(
    ("shapes", "told"),
    [
        ((), _inputs(0)),
        (((1,), (1,)), _inputs(2)),
        (((-1, -1, -1),), _FREE),
        (((2, -1, -1),), _FREE),
        (((3,),), "input 'x0' has 8 bytes of data; FP32 of shape [3] takes 12"),
        (((-1, 3),), "input 'x0' has 8 bytes of data; FP32 of shape [1, 3] takes 12"),
        (((3, -1),), "input 'x0' has 8 bytes of data; FP32 of shape [3, 0] takes 0"),
        (((),), "input 'x0' has 8 bytes of data; FP32 of shape [] takes 4"),
    ],
)
def test_what_cannot_be_raw(shapes: tuple[tuple[int, ...], ...], told: str) -> None:
    """A model of several inputs, or of a shape that the size does not tell, is refused."""
    assert refusal(bytes(8), *shapes) == told


def test_several_texts_cannot_be_raw() -> None:
    """A BYTES input that may have more than one element cannot be told from one body."""
    told = "a raw request has one element of BYTES; input 'x0' takes shape "
    assert refusal(b"abc", (2,), datatype="BYTES") == told + "[2]"
    assert refusal(b"abc", (-1, -1), datatype="BYTES") == told + "[-1, -1]"
