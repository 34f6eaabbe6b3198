"""Requests that work as they are, made from a model's signature."""

from __future__ import annotations

import base64
from functools import lru_cache
from io import BytesIO
from math import prod

from workbench.http.shapes import Schema
from workbench.inference import zeros_of
from workbench.model import ImageForm, Signature, TensorSpec

_MAX_ELEMENTS = 1024  # with more, the page cannot be read
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}  # Pillow's, by the number of channels
_SIDE = 64  # pixels of a picture, where the model takes any size


def is_showable(signature: Signature) -> bool:
    """True if an example is readable: small tensors or pictures, as JSON has them."""
    return all(
        _is_picture(signature, spec) or _is_small(spec) for spec in signature.required.values()
    )


def infer_example(signature: Signature) -> Schema:
    """An inference request: one element of each batch, all zeros; grey pictures for images."""
    return {
        "inputs": [
            _picture(spec, signature.image_forms[spec.name])
            if _is_picture(signature, spec)
            else {
                "name": spec.name,
                "shape": [*zeros_of(spec).shape],
                "datatype": spec.datatype,
                "data": _data(spec),
            }
            for spec in signature.required.values()
        ]
    }


def generate_example(signature: Signature) -> Schema | None:
    """The same for the generate extension, which takes no pictures."""
    if not all(_is_small(spec) for spec in signature.required.values()):
        return None
    data = {spec.name: _data(spec) for spec in signature.required.values()}
    return {name: value[0] if len(value) == 1 else value for name, value in data.items()}


def _is_small(spec: TensorSpec) -> bool:
    return spec.datatype != "BF16" and prod(map(abs, spec.shape)) <= _MAX_ELEMENTS


def _is_picture(signature: Signature, spec: TensorSpec) -> bool:
    """True if *spec* takes pictures, and is too large to be written out, or of any size."""
    form = signature.image_forms.get(spec.name)
    if form is None:
        return False
    height, width, channels = _sides(spec, form)
    return channels in _MODES and (not _is_small(spec) or min(height, width) < 0)


def _sides(spec: TensorSpec, form: ImageForm) -> tuple[int, int, int]:
    """Height, width and channels."""
    first, second, third = spec.shape[-3:]
    return (first, second, third) if form.layout == "NHWC" else (second, third, first)


def _picture(spec: TensorSpec, form: ImageForm) -> Schema:
    """An entry with one grey picture as a PNG file."""
    height, width, channels = _sides(spec, form)
    file = _png(*(side if side > 0 else _SIDE for side in (height, width)), channels)
    return {
        "name": spec.name,
        "shape": [1],
        "datatype": "BYTES",
        "parameters": {"content_type": "base64"},
        "data": [base64.b64encode(file).decode()],
    }


@lru_cache(16)
def _png(height: int, width: int, channels: int) -> bytes:
    from PIL import Image  # takes its time

    mode = _MODES[channels]
    file = BytesIO()
    Image.new(mode, (width, height), (128,) * len(mode)).save(file, "PNG", optimize=True)
    return file.getvalue()


def _data(spec: TensorSpec) -> list[object]:
    data: list[object] = zeros_of(spec).reshape(-1).tolist()
    return data
