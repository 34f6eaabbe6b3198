"""Prepared models: optimized and packed by ONNX Runtime and kept on disk, to load faster."""
