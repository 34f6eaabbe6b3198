"""Conversion of served objects to ONNX, where that is asked for, with the evidence for it."""
