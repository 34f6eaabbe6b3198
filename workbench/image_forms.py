"""Which inputs of a model take encoded images, and how.

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

ORDER, SCALE = "image_order", "image_scale"
PARAMETERS = (ORDER, SCALE)
"""The known names among the ``parameters`` of a configuration."""

_FLOATS = ("FP16", "FP32", "FP64")
_DATATYPES = (*_FLOATS, "INT8", "INT16", "INT32", "UINT8", "UINT16")
_CHANNELS = (1, 3, 4)
_ORDERS = ("BGR", "RGB")


def image_form(spec: TensorSpec, parameters: Mapping[str, str]) -> ImageForm | None:
    """How *spec* takes encoded images; ``None`` if it does not.

    It does with four dimensions, none of them 0, of a datatype from INT8 to
    INT32, UINT8, UINT16 or FP16 to FP64. The layout is the declared format, or
    else where a count of channels (1, 3 or 4) stands: NCHW if second and not
    last, NHWC otherwise. Raises ``LoadFailed`` for a parameter's bad value.
    """
    rgb, scale = image_options(parameters)
    if len(spec.shape) != 4 or 0 in spec.shape or spec.datatype not in _DATATYPES:
        return None
    return ImageForm(_layout(spec), rgb, scale if spec.datatype in _FLOATS else 1.0)


def image_forms(
    model: ModelId, inputs: Mapping[str, TensorSpec], parameters: Mapping[str, str]
) -> dict[str, ImageForm]:
    """The forms of those *inputs* that take encoded images, by name.

    Raises ``LoadFailed`` for a parameter that has a bad value, or no input to act on.
    """
    found = {name: image_form(spec, parameters) for name, spec in inputs.items()}
    forms = {name: form for name, form in found.items() if form is not None}
    scaled = [name for name in forms if inputs[name].datatype in _FLOATS]
    for parameter, takers, what in ((ORDER, forms, ""), (SCALE, scaled, " as floats")):
        if parameter in parameters and not takers:
            raise LoadFailed(
                f"config.pbtxt of {model} sets {parameter}, but no input takes images{what}: "
                f"that is one of four dimensions"
            )
    return forms


def image_options(parameters: Mapping[str, str]) -> tuple[bool, float]:
    """Whether the order is RGB, and the scale; ``LoadFailed`` names a bad value."""
    order = parameters.get(ORDER, "BGR")
    if order not in _ORDERS:
        raise LoadFailed(f"parameter {ORDER!r} is {order!r}; it must be RGB or BGR")
    text = parameters.get(SCALE, "1")
    try:
        scale = float(text)
    except ValueError:
        scale = math.nan
    if not 0 < scale < math.inf:
        raise LoadFailed(f"parameter {SCALE!r} is {text!r}; it must be a number above 0")
    return order == "RGB", scale


def _layout(spec: TensorSpec) -> str:
    if spec.format:
        return spec.format.removeprefix("FORMAT_")
    return "NCHW" if channels_first(spec.shape) else "NHWC"


def channels_first(shape: Sequence[int]) -> bool:
    """Whether the channels (1, 3 or 4) of images of this *shape* stand before their rows."""
    return shape[-3] in _CHANNELS and shape[-1] not in _CHANNELS
