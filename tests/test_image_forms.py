"""Which inputs take images, in which layout, and what a configuration may change of it."""

import pytest

from workbench.errors import LoadFailed
from workbench.image_forms import PARAMETERS, image_form, image_forms
from workbench.model import ImageForm, ModelId, TensorSpec
from workbench.tensor import DATATYPES

MODEL = ModelId("m", 1)
SHAPE = (-1, 3, 8, 8)


def spec(shape: tuple[int, ...] = SHAPE, datatype: str = "FP32", declared: str = "") -> TensorSpec:
    return TensorSpec("x", datatype, shape, format=declared)


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
def test_layout_from_the_channels(shape: tuple[int, ...], layout: str) -> None:
    """A count of channels, 1, 3 or 4, says the layout: NHWC, unless it is only second."""
    assert image_form(spec(shape), {}) == ImageForm(layout)


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("shape", [(-1, 3, 8, 8), (-1, 8, 8, 3), (-1, -1, -1, -1), (1, 2, 5, 7)])
def test_the_declared_layout_wins(layout: str, shape: tuple[int, ...]) -> None:
    """A format in the configuration is the layout, whatever the shape looks like."""
    assert image_form(spec(shape, declared=f"FORMAT_{layout}"), {}) == ImageForm(layout)


@pytest.mark.parametrize("datatype", DATATYPES)
def test_datatypes(datatype: str) -> None:
    """Images become floats but BF16, and integers but those of 64 bits and UINT32."""
    taken = {"FP16", "FP32", "FP64", "INT8", "INT16", "INT32", "UINT8", "UINT16"}
    assert (image_form(spec(datatype=datatype), {}) is not None) == (datatype in taken)


@pytest.mark.parametrize("shape", [(), (3,), (-1, 3), (3, 8, 8), (1, 1, 3, 8, 8), (-1, 0, 8, 3)])
def test_four_dimensions(shape: tuple[int, ...]) -> None:
    """An image's input has four dimensions, none of them empty."""
    assert image_form(spec(shape), {}) is None


@pytest.mark.parametrize(("order", "rgb"), [("RGB", True), ("BGR", False)])
def test_order(order: str, rgb: bool) -> None:
    """image_order is RGB or BGR, and BGR without it."""
    assert image_form(spec(), {"image_order": order}) == ImageForm("NCHW", rgb=rgb)
    assert image_form(spec(), {}) == ImageForm("NCHW", rgb=False)


@pytest.mark.parametrize(
    ("text", "scale"), [("0.00392156862745098", 1 / 255), ("1", 1.0), ("2e-3", 0.002)]
)
def test_scale(text: str, scale: float) -> None:
    """image_scale is a number above 0, for floats only."""
    assert image_form(spec(), {"image_scale": text}) == ImageForm("NCHW", scale=scale)
    whole = spec(datatype="UINT8")
    assert image_form(whole, {"image_scale": text}) == ImageForm("NCHW", scale=1.0)


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
        image_form(spec(), parameters)
    assert str(caught.value).startswith(message)


def test_forms_of_a_model() -> None:
    """Of a model's inputs, those that take images have a form."""
    inputs = {
        "image": spec(),
        "mask": spec((-1, 8, 8, 1), "UINT8"),
        "tokens": spec((-1, 9), "INT64"),
    }
    parameters = {"image_order": "RGB", "image_scale": "0.5"}
    assert image_forms(MODEL, inputs, parameters) == {
        "image": ImageForm("NCHW", rgb=True, scale=0.5),
        "mask": ImageForm("NHWC", rgb=True, scale=1.0),
    }
    assert image_forms(MODEL, {"tokens": inputs["tokens"]}, {}) == {}


@pytest.mark.parametrize(
    ("parameters", "inputs", "what"),
    [
        ({"image_order": "RGB"}, {}, "image_order, but no input takes images: "),
        ({"image_order": "BGR"}, {"x": spec((-1, 3))}, "image_order, but no input takes images: "),
        ({"image_scale": "2"}, {"x": spec(datatype="UINT8")},
         "image_scale, but no input takes images as floats: "),
    ],
)  # fmt: skip
def test_options_without_effect(
    parameters: dict[str, str], inputs: dict[str, TensorSpec], what: str
) -> None:
    """An option that no input can follow is a failed load, not silence."""
    with pytest.raises(LoadFailed) as caught:
        image_forms(MODEL, inputs, parameters)
    assert str(caught.value).startswith(f"config.pbtxt of m:1 sets {what}")


def test_the_known_names() -> None:
    """There are two parameters, each of which acts."""
    assert PARAMETERS == ("image_order", "image_scale")
