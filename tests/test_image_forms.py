"""Which inputs take images, in which layout, and what a configuration may change of it."""

from collections.abc import Mapping

import pytest

from workbench.errors import LoadFailed
from workbench.image_forms import PARAMETERS, image_forms
from workbench.model import ImageForm, ModelId, TensorSpec
from workbench.tensor import DATATYPES

SHAPE = (-1, 3, 8, 8)


def spec(shape: tuple[int, ...] = SHAPE, datatype: str = "FP32", declared: str = "") -> TensorSpec:
    return TensorSpec("x", datatype, shape, format=declared)


def forms(parameters: Mapping[str, str], **inputs: TensorSpec) -> dict[str, ImageForm]:
    return image_forms(ModelId("m", 1), inputs, parameters)


@pytest.mark.parametrize(
    ("shape", "layout"),
    [
        ((-1, 224, 224, 3), "NHWC"),
        ((1, 28, 28, 1), "NHWC"),
        ((8, -1, -1, 4), "NHWC"),
        ((-1, 3, 224, 224), "NCHW"),
        ((1, 1, 28, 28), "NCHW"),
        ((1, 4, -1, -1), "NCHW"),
        ((1, 3, 5, 3), "NHWC"),
        ((1, 3, 2, 1), "NHWC"),
        ((-1, -1, -1, -1), "NHWC"),
        ((1, 2, 5, 7), "NHWC"),
    ],
)
def test_layouts(shape: tuple[int, ...], layout: str) -> None:
    """A declared format wins; else a count of channels, 1, 3 or 4, says NHWC, or is only second."""
    assert forms({}, x=spec(shape)) == {"x": ImageForm(layout)}
    for declared in ("NHWC", "NCHW"):
        found = forms({}, x=spec(shape, declared=f"FORMAT_{declared}"))
        assert found == {"x": ImageForm(declared)}


@pytest.mark.parametrize("datatype", DATATYPES)
def test_datatypes(datatype: str) -> None:
    """Images become floats but BF16, and integers but those of 64 bits and UINT32."""
    taken = {"FP16", "FP32", "FP64", "INT8", "INT16", "INT32", "UINT8", "UINT16"}
    assert bool(forms({}, x=spec(datatype=datatype))) == (datatype in taken)


@pytest.mark.parametrize("shape", [(), (3,), (-1, 3), (3, 8, 8), (1, 1, 3, 8, 8), (-1, 0, 8, 3)])
def test_four_dimensions(shape: tuple[int, ...]) -> None:
    """An image's input has four dimensions, none of them empty."""
    assert forms({}, x=spec(shape)) == {}


@pytest.mark.parametrize(
    ("parameters", "rgb", "scale"),
    [
        ({"image_order": "RGB"}, True, 1.0),
        ({"image_order": "BGR", "image_scale": "0.00392156862745098"}, False, 1 / 255),
        ({"image_scale": "2e-3"}, False, 0.002),
    ],
)
def test_parameters(parameters: dict[str, str], rgb: bool, scale: float) -> None:
    """The order is that of all inputs that take images, and the scale that of their floats."""
    found = forms(parameters, x=spec(), mask=spec((-1, 8, 8, 1), "UINT8"), tokens=spec((-1, 9)))
    assert found == {"x": ImageForm("NCHW", rgb, scale), "mask": ImageForm("NHWC", rgb)}
    assert set(parameters) <= set(PARAMETERS)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"image_order": "rgb"}, "parameter 'image_order' is 'rgb'; it must be RGB or BGR"),
        ({"image_order": ""}, "parameter 'image_order' is ''; it must be RGB or BGR"),
        *(
            ({"image_scale": text}, f"parameter 'image_scale' is {text!r}; it must be a number")
            for text in ("", "a", "0", "-1", "nan", "inf", "1e999", "1/255", "0,5")
        ),
    ],
)
def test_bad_values(parameters: dict[str, str], message: str) -> None:
    """A bad value is a failed load that names the parameter and the value."""
    with pytest.raises(LoadFailed) as caught:
        forms(parameters, x=spec())
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("parameters", "taker", "what"),
    [
        ({"image_order": "BGR"}, spec((-1, 3)), "image_order, but no input takes images: "),
        ({"image_scale": "2"}, spec(datatype="UINT8"), "image_scale, but no input takes images as"),
    ],
)
def test_options_without_effect(parameters: dict[str, str], taker: TensorSpec, what: str) -> None:
    """An option that no input can follow is a failed load, not silence."""
    with pytest.raises(LoadFailed) as caught:
        forms(parameters, x=taker)
    assert str(caught.value).startswith(f"config.pbtxt of m:1 sets {what}")
