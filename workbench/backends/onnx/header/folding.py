"""What nodes whose inputs are all constant are folded into, as far as the file tells."""

from __future__ import annotations

import math
from collections.abc import Sequence

from workbench.backends.onnx.header.graph import BITS, INT64, Node, Value

_INT64_MAX = 2**63 - 1
FOLD_LIMIT_NBYTES = 16 << 20
UNKNOWN_FOLDS_NBYTES = 512 << 20  # of all results of unknown size together

# The result has the shape of the first input, or as many elements ...
_SAME_SHAPE = frozenset(
    b"Abs Cast Ceil Cos CumSum Erf Exp Floor Identity Log Neg Not Reciprocal Relu Round "
    b"ScatterElements ScatterND Sigmoid Sign Sin Sqrt Tanh Trilu".split()
)
_SAME_COUNT = _SAME_SHAPE | frozenset(
    b"Flatten Reshape Slice Split Squeeze Transpose Unsqueeze".split()
)
# ... or the inputs broadcast against each other ...
_BROADCAST = frozenset(
    b"Add And Div Equal Greater GreaterOrEqual Less LessOrEqual Max Min Mod Mul Or PRelu Pow Sub "
    b"Sum Where Xor".split()
)
# ... or its size is in the numbers of the inputs. Any other: at most the product of the inputs.
_BY_VALUE = frozenset(
    b"AffineGrid BlackmanWindow CenterCropPad Col2Im ConstantOfShape Conv ConvTranspose DFT Expand "
    b"HammingWindow HannWindow ImageDecoder MelWeightMatrix OneHot Pad Range Resize STFT Tile "
    b"Upsample".split()
)
# Never folded, or folded into the node that reads it.
NOT_FOLDED = frozenset(
    b"Bernoulli DequantizeLinear If Loop Multinomial QuantizeLinear RandomNormal "
    b"RandomNormalLike RandomUniform RandomUniformLike Scan SequenceMap".split()
)


def folded(node: Node, given: Sequence[Value]) -> Value:
    """The constant that *node*, with the constant inputs *given*, becomes; count -1: unknown."""
    dims, counts = _dims(node, given), [value.count for value in given]
    elem_type = _elem_type(node, given)
    count, exact = -1 if dims is None else math.prod(dims), dims is not None
    if not exact and min(counts) >= 0 and node.op not in _BY_VALUE:
        exact = node.op in _SAME_COUNT or node.op == b"Concat"
        count = sum(counts) if node.op == b"Concat" else math.prod(counts)
        count = counts[0] if node.op in _SAME_COUNT else count
    nbytes = count * (BITS.get(elem_type, 64) or 256) // 8
    if not 0 <= count <= _INT64_MAX or (nbytes > FOLD_LIMIT_NBYTES and not exact):
        return Value("", elem_type, None, -1, 0, 0, folded=True, grown=True)
    grown = count > sum(counts) or any(value.grown for value in given)
    return Value("", elem_type, dims, count, nbytes, nbytes, folded=True, grown=grown)


def _elem_type(node: Node, given: Sequence[Value]) -> int:
    if node.op == b"Cast":
        return (*node.ints.get(b"to", ()), 0)[0]
    if node.op in (b"Shape", b"Size"):
        return INT64
    return given[-1 if node.op == b"Where" else 0].elem_type


def _dims(node: Node, given: Sequence[Value]) -> tuple[int, ...] | None:
    """The dimensions of a folded constant, where they are easy to tell."""
    shapes = [value.dims for value in given if value.dims is not None]
    if len(shapes) < len(given):
        return None
    first = shapes[0]
    if node.op in (b"Shape", b"Size"):
        return (len(first),)
    if node.op == b"Transpose":
        perm = node.ints.get(b"perm") or tuple(range(len(first)))[::-1]
        return tuple(first[n] for n in perm) if sorted(perm) == list(range(len(first))) else None
    if node.op in _BROADCAST:
        return _broadcast(shapes)
    return first if node.op in _SAME_SHAPE else None


def _broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(max(column) if min(column) else 0 for column in zip(*padded, strict=True))
