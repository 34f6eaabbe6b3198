"""The inputs of a model that take encoded images, and their forms.

OpenVINO Model Server reads BYTES as images where an input has four dimensions,
by its layout, always as BGR and unscaled. Two ``parameters`` of config.pbtxt
change that for a model here: ``image_order``, ``RGB`` or ``BGR``, and
``image_scale``, a number that float inputs are multiplied by, such as 0.00392156862745098.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from workbench.errors import LoadFailed
from workbench.model import ImageForm, ModelId, TensorSpec

PARAMETERS = ("image_order", "image_scale")
"""The known names among the ``parameters`` of a configuration."""

_FLOATS = ("FP16", "FP32", "FP64")
_DATATYPES = (*_FLOATS, "INT8", "INT16", "INT32", "UINT8", "UINT16")
_CHANNELS = (1, 3, 4)


def image_forms(
    model: ModelId, inputs: Mapping[str, TensorSpec], parameters: Mapping[str, str]
) -> dict[str, ImageForm]:
    """The forms of those *inputs* that take encoded images, by name.

    They have four dimensions, none of them 0. The layout is the declared format, or else where a
    count of channels stands: NCHW if second and not last, NHWC otherwise. Raises ``LoadFailed``
    for a parameter that has a bad value, or no input to act on.
    """
    rgb, scale = image_options(parameters)
    forms, scaled = {}, False
    for name, spec in inputs.items():
        if len(spec.shape) == 4 and 0 not in spec.shape and spec.datatype in _DATATYPES:
            layout = "NCHW" if channels_first(spec.shape) else "NHWC"
            layout = spec.format.removeprefix("FORMAT_") or layout
            is_float = spec.datatype in _FLOATS
            forms[name] = ImageForm(layout, rgb, scale if is_float else 1.0)
            scaled |= is_float
    for parameter, has_effect, what in (
        ("image_order", forms, ""),
        ("image_scale", scaled, " as floats"),
    ):
        if parameter in parameters and not has_effect:
            raise LoadFailed(
                f"config.pbtxt of {model} sets {parameter}, but no input takes images{what}: "
                f"that is one of four dimensions"
            )
    return forms


def image_options(parameters: Mapping[str, str]) -> tuple[bool, float]:
    """The order of colours (True: RGB) and the scale; ``LoadFailed`` names a bad value."""
    order, text = parameters.get("image_order", "BGR"), parameters.get("image_scale", "1")
    if order not in ("BGR", "RGB"):
        raise LoadFailed(f"parameter 'image_order' is {order!r}; it must be RGB or BGR")
    try:
        scale = float(text)
    except ValueError:
        scale = math.nan
    if not 0 < scale < math.inf:
        raise LoadFailed(f"parameter 'image_scale' is {text!r}; it must be a number above 0")
    return order == "RGB", scale


def channels_first(shape: Sequence[int]) -> bool:
    """True if the channels (1, 3 or 4) of images of this *shape* stand before their rows."""
    return shape[-3] in _CHANNELS and shape[-1] not in _CHANNELS
