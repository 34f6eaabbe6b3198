"""Decodes images to tensors by the rules of OpenVINO Model Server."""
