"""ONNX models. ``runtime`` alone imports ONNX Runtime; ``header`` reads files without it."""
