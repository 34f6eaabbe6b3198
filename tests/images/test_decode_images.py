"""Images as a model's input: OpenVINO Model Server's rules, one by one, and what goes beyond."""

import io
import subprocess
import sys
import zlib
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pictures import KINDS, jpeg, opencv, png
from PIL import Image

from workbench.errors import InvalidRequest, NotSupported, RequestTooLarge
from workbench.images.decode import decode_images
from workbench.model import ImageForm, TensorSpec
from workbench.tensor import DATATYPES, Tensor

BGR, RGB = ImageForm("NHWC"), ImageForm("NHWC", rgb=True)
IMAGES = ("FP32", "FP64", "FP16", "INT8", "INT16", "INT32", "UINT8", "UINT16")
RESIZED = ("UINT8", "UINT16", "INT16", "FP32", "FP64")  # the datatypes that OpenCV resizes
SIZES = st.integers(1, 12)

GREY, COLOUR, CLEAR = png("grey 8", 4, 5), png("colour 8", 4, 5), png("colour 8 and alpha", 4, 5)
DEEP = png("colour 16", 4, 5)


def decode(
    files: list[bytes], shape: tuple[int, ...], datatype: str = "FP32", form: ImageForm = BGR,
    limit_nbytes: int = 2**20,
) -> Any:  # fmt: skip
    spec = TensorSpec("x", datatype, shape)
    tensor = decode_images("x", Tensor.of(files, "BYTES"), spec, form, limit_nbytes)
    assert tensor.datatype == datatype
    assert tensor.array.dtype == DATATYPES[datatype].dtype
    assert tensor.array.flags.c_contiguous
    assert spec.accepts(tensor.shape)
    return tensor.array


def refusal(
    files: Any, shape: tuple[int, ...], form: ImageForm = BGR, limit_nbytes: int = 2**20
) -> str:
    tensor = files if isinstance(files, Tensor) else Tensor.of(files, "BYTES")
    with pytest.raises(InvalidRequest) as caught:
        decode_images("x", tensor, TensorSpec("x", "FP32", shape), form, limit_nbytes)
    assert len(str(caught.value).splitlines()) == 1
    assert "input 'x'" in str(caught.value)
    return str(caught.value)


# ── what is decoded ─────────────────────────────────────────────────────────


@pytest.mark.parametrize("datatype", IMAGES)
def test_pixels_are_bgr_and_unscaled(datatype: str) -> None:
    """The channels are blue, green, red, and the values those of the file."""
    file = io.BytesIO()
    Image.new("RGB", (1, 1), (3, 2, 1)).save(file, "PNG")
    assert decode([file.getvalue()], (1, 1, 1, 3), datatype).tolist() == [[[[1, 2, 3]]]]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("datatype", IMAGES)
def test_every_kind_in_every_datatype(kind: str, datatype: str) -> None:
    """Whatever the file and the datatype: OpenCV's pixels, saturated, not scaled."""
    data = png(kind, 4, 5)
    want = opencv(data)
    dtype = DATATYPES[datatype].dtype
    most = np.inf if dtype.kind == "f" else np.iinfo(dtype).max
    with np.errstate(over="ignore"):  # above 65504, FP16 is infinite
        want = np.minimum(want.astype(float), most).astype(dtype)
    assert np.array_equal(decode([data], (1, 4, 5, want.shape[2]), datatype)[0], want)


def test_a_jpeg() -> None:
    """A JPEG is an image like a PNG, and both may be in one batch."""
    photo = jpeg("RGB", 4, 5)
    made = decode([photo, COLOUR], (2, 4, 5, 3), "UINT8")
    assert np.array_equal(made, [opencv(photo), opencv(COLOUR)])


@settings(derandomize=True, deadline=None, max_examples=200)
@given(
    st.sampled_from(IMAGES),
    st.sampled_from(["grey 8", "grey 16", "colour 8", "colour 16", "colour 16 and alpha"]),
    st.builds(ImageForm, st.sampled_from(["NHWC", "NCHW"]), st.booleans()),
    st.tuples(SIZES, SIZES),
    st.tuples(SIZES, SIZES),
)
def test_converts_then_resizes(
    datatype: str, kind: str, form: ImageForm, source: tuple[int, int], size: tuple[int, int]
) -> None:
    """A batch is what OpenCV makes of it: imdecode, convertTo, resize, in either layout."""
    files = [png(kind, *source, seed=seed) for seed in range(2)]
    dtype = DATATYPES[datatype].dtype
    most = np.inf if dtype.kind == "f" else np.iinfo(dtype).max
    want = []
    for data in files:
        pixels = np.minimum(opencv(data).astype(float), most)
        pixels = pixels.astype(dtype if datatype in RESIZED else np.float32)
        pixels = cv2.resize(pixels, size[::-1]).reshape(*size, -1)
        pixels = np.rint(pixels) if dtype.kind != "f" else pixels
        swapped = form.rgb and pixels.shape[2] > 1
        want.append(pixels[..., [2, 1, 0, 3][: pixels.shape[2]]] if swapped else pixels)
    batch = np.array(want) if form.layout == "NHWC" else np.array(want).transpose(0, 3, 1, 2)
    with np.errstate(over="ignore"):  # above 65504, FP16 is infinite
        batch = batch.astype(dtype)
    assert np.array_equal(decode(files, batch.shape, datatype, form), batch)


@pytest.mark.parametrize(
    ("datatype", "mean"), [("UINT8", 128), ("INT8", 64), ("INT32", 32768), ("FP32", 32767.5)]
)
def test_saturates_before_it_resizes(datatype: str, mean: float) -> None:
    """The datatype comes first, then the size: 65535 and 0 are 255 and 0 before their mean."""
    file = io.BytesIO()
    Image.fromarray(np.array([[65535, 0]], np.uint16)).save(file, "PNG")
    assert decode([file.getvalue()], (1, 1, 1, 1), datatype).tolist() == [[[[mean]]]]


@pytest.mark.parametrize(
    ("data", "shape"),
    [
        (COLOUR, (1, 4, 6, 3)),
        (DEEP, (1, 4, 5, 3)),
        (png("grey 16 and alpha", 4, 5), (-1, -1, -1, -1)),
        (jpeg("CMYK", 4, 5), (1, 4, 5, 3)),
    ],
)
def test_what_needs_opencv(
    monkeypatch: pytest.MonkeyPatch, data: bytes, shape: tuple[int, ...]
) -> None:
    """Without OpenCV, an image that needs it is refused with what to install."""
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(NotSupported) as caught:
        decode([data], shape)
    assert str(caught.value) == (
        "input 'x': an image of another size than the model's, of CMYK or of 16-bit "
        "colours needs OpenCV: pip install 'serving-workbench[images]'"
    )


@pytest.mark.parametrize("data", [GREY, COLOUR, CLEAR, png("grey 16", 4, 5), jpeg("RGB", 4, 5)])
def test_what_needs_no_opencv(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    """An image of the model's size is decoded without OpenCV."""
    want = opencv(data)
    monkeypatch.setitem(sys.modules, "cv2", None)
    assert np.array_equal(decode([data], (1, *want.shape))[0], want)


# ── the options ─────────────────────────────────────────────────────────────


def test_rgb() -> None:
    """In RGB order red is first, and the fourth channel stays where it is."""
    bgr = decode([CLEAR], (1, 4, 5, 4))
    assert np.array_equal(decode([CLEAR], (1, 4, 5, 4), form=RGB), bgr[..., [2, 1, 0, 3]])
    grey = decode([GREY], (1, 4, 5, 1))
    assert np.array_equal(decode([GREY], (1, 4, 5, 1), form=RGB), grey)


@pytest.mark.parametrize("datatype", ["FP16", "FP32", "FP64"])
@pytest.mark.parametrize("size", [(4, 5), (6, 3)])
def test_scale(datatype: str, size: tuple[int, int]) -> None:
    """The scale multiplies what would be there without it, before FP16 rounds it."""
    shape = (1, *size, 3)
    plain = decode([DEEP], shape, "FP64")
    made = decode([DEEP], shape, datatype, ImageForm("NHWC", scale=1 / 65535))
    assert np.allclose(made, plain / 65535, rtol=1e-3 if datatype == "FP16" else 1e-6, atol=1e-6)
    assert made.max() <= 1


def test_a_scale_beyond_the_datatype() -> None:
    """A scale that makes the values too large for the datatype makes them infinite, in silence."""
    made = decode([COLOUR], (1, 4, 5, 3), form=ImageForm("NHWC", scale=1e300))
    assert np.isinf(made[made != 0]).any()


# ── batches and sizes ───────────────────────────────────────────────────────


@pytest.mark.parametrize("batch", [3, -1])
def test_batches(batch: int) -> None:
    """N images are a batch of N, in their order, resized each from its own size."""
    files = [png("colour 8", size, 2 * size, seed=size) for size in (2, 5, 9)]
    made = decode(files, (batch, 6, 7, 3))
    for index, data in enumerate(files):
        assert np.array_equal(made[index], decode([data], (1, 6, 7, 3))[0])


def test_the_batch_must_be_the_models() -> None:
    """A model of a fixed batch takes that many images, and none is never a batch."""
    assert refusal([COLOUR], (2, 4, 5, 3)) == "input 'x' takes 2 images, got 1"
    assert refusal([COLOUR] * 3, (2, 4, 5, 3)) == "input 'x' takes 2 images, got 3"
    assert refusal([], (-1, 4, 5, 3)) == "input 'x' takes at least 1 images, got 0"


@pytest.mark.parametrize("shape", [(), (1, 1), (2, 1)])
def test_images_come_in_one_dimension(shape: tuple[int, ...]) -> None:
    """The tensor of files has shape [N] and no other."""
    array = np.empty(shape, object)
    array[...] = COLOUR
    message = refusal(Tensor("BYTES", array), (-1, 4, 5, 3))
    assert message == f"input 'x' takes images as BYTES of shape [N], got shape {list(shape)}"


@pytest.mark.parametrize("form", [BGR, ImageForm("NCHW")])
def test_any_size(form: ImageForm) -> None:
    """A model of any size gets the images as large as they are."""
    made = decode([COLOUR, COLOUR], (-1, -1, -1, -1), form=form)
    assert made.shape == ((2, 4, 5, 3) if form is BGR else (2, 3, 4, 5))


def test_any_size_is_the_firsts() -> None:
    """Where nothing is resized, all images are as large as the first, with as many channels."""
    shape = (-1, -1, -1, -1)
    message = refusal([COLOUR, png("colour 8", 5, 4)], shape)
    assert message.startswith(
        "input 'x' takes images of 4 x 5 pixels here, image 1 is 5 x 4: the model knows no size"
    )
    assert refusal([COLOUR, COLOUR, GREY], shape) == (
        "input 'x' takes images of 3 channels, image 2 has 1"
    )


@pytest.mark.parametrize("shape", [(-1, 4, -1, 3), (-1, -1, 5, 3)])
def test_one_size_is_known(shape: tuple[int, ...]) -> None:
    """With only one of height and width known nothing is resized; that one must fit."""
    assert decode([COLOUR], shape).shape == (1, 4, 5, 3)
    assert "takes images of " in refusal([png("colour 8", 5, 4)], shape)


@pytest.mark.parametrize(
    ("data", "channels", "has"),
    [(GREY, 3, 1), (COLOUR, 1, 3), (CLEAR, 3, 4), (COLOUR, 4, 3), (COLOUR, 7, 3)],
)
def test_channels_must_be_the_models(data: bytes, channels: int, has: int) -> None:
    """Nothing is made grey, coloured or opaque: the channels of the file are those of the model."""
    assert refusal([data], (1, 4, 5, channels)) == (
        f"input 'x' takes images of {channels} channels, image 0 has {has}"
    )


# ── what is refused ─────────────────────────────────────────────────────────


def no_memory() -> cv2.error:
    """OpenCV's error when it gets no memory."""
    error = cv2.error("Failed to allocate 9 bytes")
    error.code = -4
    return error


@pytest.mark.parametrize(
    "data", [b"", b"x", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", COLOUR[:60], jpeg("RGB", 9, 9)[:-30]]
)
def test_what_cannot_be_decoded(data: bytes) -> None:
    """A file that is broken is refused by its place in the batch, with a reason."""
    message = refusal([COLOUR, data], (-1, 4, 5, 3))
    prefix = "input 'x': image 1 cannot be decoded: "
    assert message.startswith(prefix)
    assert len(message) > len(prefix)


@pytest.mark.parametrize(
    ("error", "reason"), [(OSError("no such filter"), "no such filter"), (EOFError(), "EOFError")]
)
def test_the_reason_is_pillows(
    monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str
) -> None:
    """The reason is the message of Pillow's error, or the error's kind if it has no message."""

    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr("workbench.images.decode.read_pixels", fail)
    told = refusal([COLOUR], (1, 4, 5, 3))
    assert told == f"input 'x': image 0 cannot be decoded: {reason}"


@pytest.mark.parametrize("error", [MemoryError(), no_memory()])
def test_no_memory_is_no_bad_request(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Memory that runs out while decoding is not blamed on the file, whoever asked for it."""

    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr("workbench.images.decode.read_pixels", fail)
    with pytest.raises(MemoryError):
        decode([COLOUR], (1, 4, 5, 3))


def test_a_missing_image() -> None:
    """``null`` in place of a file is no image."""
    files = Tensor("BYTES", np.array([GREY, None], object))
    assert refusal(files, (-1, 4, 5, 1)).endswith("null is not a string")


def test_the_batch_has_a_limit() -> None:
    """A batch may be as large as the limit, not a byte larger."""
    nbytes = 2 * 6 * 7 * 3 * 4
    assert decode([COLOUR] * 2, (-1, 6, 7, 3), limit_nbytes=nbytes).nbytes == nbytes
    with pytest.raises(RequestTooLarge) as caught:
        decode([COLOUR] * 2, (-1, 6, 7, 3), limit_nbytes=nbytes - 1)
    assert str(caught.value) == (
        "the images of input 'x' take 1008 B when decoded, more than 1007 B: "
        "send fewer, or smaller ones"
    )


def test_the_files_have_a_limit() -> None:
    """What all the files unpack to is limited, however small the batch that they become."""
    nbytes = 3 * 4 * 5 * 3
    assert decode([COLOUR] * 3, (-1, 1, 1, 3), limit_nbytes=nbytes).shape == (3, 1, 1, 3)
    with pytest.raises(RequestTooLarge):
        decode([COLOUR] * 3, (-1, 1, 1, 3), limit_nbytes=nbytes - 1)


def test_bombs_are_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that promises too many pixels is refused by its header, without a warning."""
    header = png("colour 8", 1, 1)[12:16] + b"".join([b"\0\1\0\0", b"\0\1\0\0", b"\10\2\0\0\0"])
    bomb = COLOUR[:12] + header + zlib.crc32(header).to_bytes(4, "big") + COLOUR[33:]
    monkeypatch.setattr("workbench.images.decode.read_pixels", None)
    with pytest.raises(RequestTooLarge, match=r"take 12\.0 GiB when decoded"):
        decode([COLOUR, bomb], (-1, 4, 5, 3))


def test_decoders_are_imported_when_needed() -> None:
    """Pillow and OpenCV take no part in starting up."""
    code = "import sys, workbench.images.decode; sys.exit(bool({'PIL', 'cv2'} & {*sys.modules}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
