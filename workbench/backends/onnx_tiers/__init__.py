"""Prepared models: kept on disk as ONNX Runtime optimized and packed them, to load faster."""
