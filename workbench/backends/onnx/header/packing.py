"""In which form a kernel holds a constant, and how large that is."""

from __future__ import annotations

import math
from collections.abc import Sequence

from workbench.backends.onnx.header.graph import BITS, FLOAT, HALVES, Node, Value


def _up16(n: int) -> int:
    return -(-n // 16) * 16


# Which inputs (operator, index) a kernel packs, and how.
PACKED = {
    **dict.fromkeys([(b"MatMul", 1), (b"Gemm", 1)], "float"),
    **dict.fromkeys([(b"FusedMatMul", 1), (b"FusedGemm", 1)], "float"),
    **dict.fromkeys([(b"Conv", 1), (b"FusedConv", 1)], "conv"),
    **dict.fromkeys([(b"MatMulInteger", 1), (b"MatMulIntegerToFloat", 1)], "8bit"),
    **dict.fromkeys([(b"DynamicQuantizeMatMul", 1), (b"QLinearMatMul", 3), (b"QGemm", 3)], "8bit"),
    (b"QLinearConv", 3): "8bit conv",
    **dict.fromkeys([(b"LSTM", 1), (b"LSTM", 2), (b"GRU", 1), (b"GRU", 2)], "rnn"),
    (b"MatMulNBits", 2): "scales",
    (b"Attention", 1): "attention",
}
# The same between DequantizeLinear and QuantizeLinear
QUANTIZED = {"float": "8bit", "conv": "8bit conv"}
# fp16 kernels of the CPU provider; everything else is computed in fp32


def packed_nbytes(node: Node, how: str, value: Value) -> int | None:
    """The size of the form that the kernel makes of its input; None if it takes it raw."""
    dims, bits = value.dims, BITS[value.elem_type]
    floats = value.elem_type in (FLOAT, *HALVES)
    if not how or dims is None or bits < 8 or floats == how.startswith("8bit"):
        return None
    if how in ("conv", "8bit conv"):
        group = max((1, *node.ints.get(b"group", ())))
        return (_nchwc_nbytes if how == "conv" else _qconv_nbytes)(dims, group)
    if how == "scales":
        plain = value.elem_type == FLOAT and node.ints.get(b"accuracy_level") != (4,)
        return value.held_nbytes * (1 if plain else 3)
    return _matrix_nbytes(node, how, dims)


def _matrix_nbytes(node: Node, how: str, dims: Sequence[int]) -> int | None:
    """A matrix [K, N] is packed with N in multiples of 16, an 8-bit one with K in those of 4."""
    if how == "rnn":
        return dims[0] * _up16(dims[1]) * dims[2] * 4 if len(dims) == 3 else None
    if len(dims) != 2:
        return None
    if how == "attention":
        heads = 3 * max((1, *node.ints.get(b"num_heads", ())))
        return dims[0] * heads * _up16(-(-dims[1] // heads)) * 4
    k, n = reversed(dims) if node.ints.get(b"transB") == (1,) else dims
    return _up16(n) * (4 * k if how == "float" else -(-k // 4) * 4 + 4)


def _nchwc_nbytes(dims: Sequence[int], group: int) -> int | None:
    """Conv weights [M, C / group, H, W] in blocks of 16 channels; None: left as they are."""
    if len(dims) != 4:
        return None
    m, c, height, width = dims
    if group > 1 and c == 1 and m == group:  # depthwise
        return _up16(m) * height * width * 4
    if group > 1:
        blocked = c % 16 == 0 and (m // group) % 16 == 0
        return math.prod(dims) * 4 if blocked else None
    if c >= 16 and c % 4:
        return None
    return _up16(m) * (c if c < 16 else _up16(c)) * height * width * 4


def _qconv_nbytes(dims: Sequence[int], group: int) -> int | None:
    """8-bit Conv weights: one packed matrix per group, but for depthwise ones."""
    m, k = dims[0] // group if dims else 0, math.prod(dims[1:])
    if len(dims) < 3 or (group > 1 and m == 1):
        return None
    return group * _up16(m) * (-(-k // 4) * 4 + 4)
