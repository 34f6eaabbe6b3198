"""The header of an ONNX file, read without loading it: names, shapes, weights, memory.

The file is mapped and its protobuf messages are skipped through (``fields``), which gives
the graph without its numbers (``graph``); every constant is followed to the kernels that
hold it (``estimate``); divisions that could end the process are found (``division``), and
zeros (``zeros``); a model without its weights is written for the engine to infer shapes
(``outline``); ``file`` puts all together, and makes every fault a ``LoadFailed``.
"""

from workbench.backends.onnx.header.division import Division
from workbench.backends.onnx.header.file import (
    OnnxFile,
    OnnxFiles,
    read_onnx_file,
    read_outline,
)
from workbench.backends.onnx.header.graph import ValueInfo
from workbench.backends.onnx.header.zeros import Divisor, Fragile

__all__ = [
    "Division",
    "Divisor",
    "Fragile",
    "OnnxFile",
    "OnnxFiles",
    "ValueInfo",
    "read_onnx_file",
    "read_outline",
]
