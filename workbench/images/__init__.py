"""Decodes images to tensors by the rules of OpenVINO Model Server."""

from workbench.images.decode import decode_images

__all__ = ["decode_images"]
