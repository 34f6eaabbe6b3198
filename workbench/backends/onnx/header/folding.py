"""What constant nodes fold into, as far as the file says."""

from __future__ import annotations

import math
from collections.abc import Sequence

from workbench.backends.onnx.header.graph import BITS, FLOAT, INT64, Node, Value

_INT64_MAX = 2**63 - 1
FOLD_LIMIT_NBYTES = 16 << 20
UNKNOWN_FOLDS_NBYTES = 512 << 20  # of all results together whose sizes are not known


# What folding a node with constant inputs yields: as many elements as its first input ...
_RESHAPES = frozenset(b"Flatten Reshape Slice Split Squeeze Unsqueeze".split())
_SAME_COUNT = _RESHAPES | frozenset(
    b"Abs Cast Ceil Cos CumSum Erf Exp Floor Identity Log Neg Not Reciprocal Relu Round "
    b"ScatterElements ScatterND Sigmoid Sign Sin Sqrt Tanh Transpose Trilu".split()
)
# ... as its inputs broadcast against each other ...
_BROADCAST = frozenset(
    b"Add And Div Equal Greater GreaterOrEqual Less LessOrEqual Max Min Mod Mul Or PRelu Pow Sub "
    b"Sum Where Xor".split()
)
# ... as the numbers in them say. All others: at most the product of their inputs.
_BY_INTS = frozenset(b"ConstantOfShape Expand Reshape Tile".split())
_BY_VALUE = _BY_INTS | frozenset(
    b"AffineGrid BlackmanWindow CenterCropPad Col2Im Conv ConvTranspose DFT HammingWindow "
    b"HannWindow ImageDecoder MelWeightMatrix OneHot Pad Range Resize STFT Upsample".split()
)
# Never folded, or into its consumer instead
NOT_FOLDED = frozenset(
    b"Bernoulli DequantizeLinear If Loop Multinomial QuantizeLinear RandomNormal "
    b"RandomNormalLike RandomUniform RandomUniformLike Scan SequenceMap".split()
)
_INTS_KEPT = frozenset((b"Identity", b"Cast", b"Squeeze", b"Unsqueeze", b"Reshape"))


def folded(node: Node, given: Sequence[Value]) -> Value:
    """The constant that a node with constant inputs becomes; its count is -1 if unknown."""
    elem_type, dims = _folded_type(node, given), _folded_dims(node, given)
    counts = [value.count for value in given]
    count, exact = -1 if dims is None else math.prod(dims), True
    if dims is None and min(counts) >= 0 and node.op not in _BY_VALUE:
        exact = node.op in _SAME_COUNT or node.op == b"Concat"
        count = counts[0] if node.op in _SAME_COUNT else sum(counts)
        count = count if exact else math.prod(counts)
    nbytes = count * (BITS.get(elem_type, 64) or 256) // 8
    if count < 0 or count > _INT64_MAX or (nbytes > FOLD_LIMIT_NBYTES and not exact):
        return Value("", elem_type, None, -1, 0, 0, folded=True, grown=True)
    ints, grown = _folded_ints(node, given), count > sum(counts)
    return Value("", elem_type, dims, count, nbytes, nbytes, ints=ints, folded=True, grown=grown)


def _folded_type(node: Node, given: Sequence[Value]) -> int:
    if node.op == b"Cast":
        return (*node.ints.get(b"to", ()), 0)[0]
    if node.op == b"ConstantOfShape":
        return node.values[0].elem_type if node.values else FLOAT
    if node.op in (b"Shape", b"Size"):
        return INT64
    return given[-1 if node.op == b"Where" else 0].elem_type


def _folded_ints(node: Node, given: Sequence[Value]) -> tuple[int, ...] | None:
    """Numbers that may become a shape, through the nodes that exporters put around them."""
    if node.op in _INTS_KEPT:
        return given[0].ints
    if node.op == b"Concat" and all(value.ints is not None for value in given):
        return tuple(number for value in given for number in value.ints or ())[:64]
    return None


def _folded_dims(node: Node, given: Sequence[Value]) -> tuple[int, ...] | None:
    """The dimensions of a folded constant, where they are easy to tell."""
    first, ints = given[0].dims, given[-1].ints
    if first is not None and node.op in (b"Shape", b"Size"):
        return (len(first),) if node.op == b"Shape" else ()
    if first is not None and node.op == b"Transpose":
        perm = node.ints.get(b"perm") or tuple(range(len(first)))[::-1]
        valid = sorted(perm) == list(range(len(first)))
        return tuple(first[axis] for axis in perm) if valid else None
    if node.op in _BROADCAST:
        return _broadcast([value.dims for value in given])
    if node.op in (b"MatMul", b"Gemm", b"Gather"):
        second = given[1].dims if len(given) > 1 else None
        return None if first is None or second is None else _dims_by_two(node, first, second)
    if ints is not None and node.op in _BY_INTS and all(0 <= n < 2**40 for n in ints):
        return _dims_by_ints(node.op, given[0], ints)
    return first if node.op in _SAME_COUNT - _RESHAPES else None


def _dims_by_two(
    node: Node, one: tuple[int, ...], other: tuple[int, ...]
) -> tuple[int, ...] | None:
    """The dimensions of a product, or of what is gathered; ``None`` for those that do not fit."""
    if node.op == b"Gather":
        axis = (*node.ints.get(b"axis", ()), 0)[0]
        fits = -len(one) <= axis < len(one)
        return (*one[:axis], *other, *one[axis:][1:]) if fits else None
    if node.op == b"Gemm":
        one = one[::-1] if node.ints.get(b"transA") == (1,) else one
        other = other[::-1] if node.ints.get(b"transB") == (1,) else other
        return (one[0], other[1]) if len(one) == len(other) == 2 else None
    if min(len(one), len(other)) < 2:  # a vector counts as a matrix, and its dimension goes
        vector = one[:-1] if len(other) == 1 else (*other[:-2], *other[-1:])
        return vector if one and other else None
    batch = _broadcast([one[:-2], other[:-2]])
    return None if batch is None else (*batch, one[-2], other[-1])


def _dims_by_ints(op: bytes, data: Value, ints: tuple[int, ...]) -> tuple[int, ...] | None:
    if op == b"ConstantOfShape":
        return ints
    if op == b"Expand":
        return _broadcast([data.dims, ints])
    if op == b"Reshape":
        return ints if math.prod(ints) == data.count else None
    if data.dims is not None and len(data.dims) == len(ints):  # Tile
        return tuple(a * b for a, b in zip(data.dims, ints, strict=True))
    return None


def _broadcast(shapes: Sequence[tuple[int, ...] | None]) -> tuple[int, ...] | None:
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(shapes):
        return None
    rank = max(map(len, known))
    padded = [(1,) * (rank - len(shape)) + shape for shape in known]
    return tuple(max(column) if min(column) else 0 for column in zip(*padded, strict=True))
