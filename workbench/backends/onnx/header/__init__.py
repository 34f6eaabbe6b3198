"""The header of an ONNX file, read without loading it: names, shapes, weights, memory.

The file is mapped and its protobuf messages are skipped through (``fields``), which gives
the graph without its numbers (``graph``); every constant is followed to the kernels that
hold it (``estimate``); divisions that could end the process are found (``division``), and
zeros (``zeros``); a model without its weights is written for the engine to infer shapes
(``outline``); ``file`` puts all together, and makes every fault a ``LoadFailed``.
"""
