"""Images as a model's input: OpenVINO Model Server's rules, one by one, and what goes beyond."""

import io
import struct
import subprocess
import sys
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pictures import KINDS, chunk, jpeg, opencv, png
from PIL import ExifTags, Image

from workbench.annexes.images.decode import decode_images
from workbench.errors import InvalidRequest, NotSupported, RequestTooLarge
from workbench.model import ImageForm, TensorSpec
from workbench.tensor import DATATYPES, Tensor

BGR, RGB = ImageForm("NHWC"), ImageForm("NHWC", rgb=True)
IMAGES = ("FP32", "FP64", "FP16", "INT8", "INT16", "INT32", "UINT8", "UINT16")
RESIZED = ("UINT8", "UINT16", "INT16", "FP32", "FP64")  # the datatypes that OpenCV resizes
ANY = (-1, -1, -1, -1)
SIZES = st.integers(1, 12)

GREY, COLOUR, CLEAR = png("grey 8", 4, 5), png("colour 8", 4, 5), png("colour 8 and alpha", 4, 5)
DEEP, PHOTO = png("colour 16", 4, 5), jpeg("RGB", 4, 5)


def decode(
    files: Any, shape: tuple[int, ...], datatype: str = "FP32", form: ImageForm = BGR,
    limit_nbytes: int = 2**20,
) -> Any:  # fmt: skip
    spec = TensorSpec("x", datatype, shape)
    given = files if isinstance(files, Tensor) else Tensor.of(files, "BYTES")
    tensor = decode_images("x", given, spec, form, limit_nbytes)
    assert tensor.datatype == datatype
    assert tensor.array.dtype == DATATYPES[datatype].dtype
    assert tensor.array.flags.c_contiguous
    assert spec.accepts(tensor.shape)
    return tensor.array


def refusal(files: Any, shape: tuple[int, ...] = ANY) -> str:
    with pytest.raises(InvalidRequest) as caught:
        decode(files, shape)
    assert len(str(caught.value).splitlines()) == 1
    assert "input 'x'" in str(caught.value)
    return str(caught.value)


def saturated(pixels: Any, datatype: str) -> Any:
    dtype = DATATYPES[datatype].dtype
    most = np.inf if dtype.kind == "f" else np.iinfo(dtype).max
    with np.errstate(over="ignore"):  # above 65504, FP16 is infinite
        return np.minimum(pixels.astype(float), most).astype(dtype)


def same_as_opencv(data: bytes) -> None:
    assert np.array_equal(decode([data], ANY, "UINT16")[0], opencv(data))


# ── what is decoded ─────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("datatype", IMAGES)
def test_every_kind_in_every_datatype(kind: str, datatype: str) -> None:
    """Whatever the file and the datatype: OpenCV's pixels, blue first, saturated, not scaled."""
    data = png(kind, 4, 5)
    want = saturated(opencv(data), datatype)
    assert np.array_equal(decode([data], (1, 4, 5, want.shape[2]), datatype)[0], want)


@pytest.mark.parametrize("kind", [kind for kind, (depth, _, _) in KINDS.items() if depth >= 8])
def test_interlaced_png(kind: str) -> None:
    """An interlaced PNG is read as another."""
    same_as_opencv(png(kind, 13, 11, interlaced=True))


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
@pytest.mark.parametrize(
    "options", [{"subsampling": 0}, {"subsampling": 2, "progressive": True}, {"keep_rgb": True}]
)
def test_jpeg(mode: str, options: dict[str, Any]) -> None:
    """A JPEG, grey, in colours or for print, has OpenCV's pixels, whatever its coding."""
    same_as_opencv(jpeg(mode, 19, 17, **options))


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
    """A batch is what OpenCV makes of each: imdecode, convertTo, resize, in either layout."""
    files = [png(kind, *source, seed=1), png(kind, *size, seed=2)]
    resized = datatype if datatype in RESIZED else "FP32"
    want = []
    for data in files:
        pixels = saturated(opencv(data), datatype if "INT" in datatype else "FP64")
        pixels = pixels.astype(DATATYPES[resized].dtype)
        pixels = cv2.resize(pixels, size[::-1]).reshape(*size, -1)
        pixels = np.rint(pixels) if "INT" in datatype else pixels
        swapped = form.rgb and pixels.shape[2] > 1
        want.append(pixels[..., [2, 1, 0, 3][: pixels.shape[2]]] if swapped else pixels)
    batch = np.array(want) if form.layout == "NHWC" else np.array(want).transpose(0, 3, 1, 2)
    with np.errstate(over="ignore"):  # above 65504, FP16 is infinite
        batch = batch.astype(DATATYPES[datatype].dtype)
    assert np.array_equal(decode(files, batch.shape, datatype, form), batch)


@pytest.mark.parametrize(
    ("data", "shape"),
    [
        (COLOUR, (1, 4, 6, 3)),
        (DEEP, (1, 4, 5, 3)),
        (png("grey 16 and alpha", 4, 5), ANY),
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


@pytest.mark.parametrize("data", [GREY, COLOUR, CLEAR, png("grey 16", 4, 5), PHOTO])
def test_what_needs_no_opencv(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    """An image of the model's size is decoded without OpenCV."""
    want = opencv(data)
    monkeypatch.setitem(sys.modules, "cv2", None)
    assert np.array_equal(decode([data], (1, *want.shape))[0], want)


def test_decoders_are_imported_when_needed() -> None:
    """Pillow and OpenCV take no part in starting up."""
    code = "import sys, workbench.annexes.images.decode; sys.exit('PIL' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("datatype", ["FP16", "FP32", "FP64"])
@pytest.mark.parametrize("size", [(4, 5), (6, 3)])
def test_scale(datatype: str, size: tuple[int, int]) -> None:
    """The scale multiplies what would be there without it, before FP16 rounds it."""
    shape = (1, *size, 3)
    plain = decode([DEEP], shape, "FP64")
    made = decode([DEEP], shape, datatype, ImageForm("NHWC", scale=1 / 65535))
    assert np.allclose(made, plain / 65535, rtol=1e-3 if datatype == "FP16" else 1e-6, atol=1e-6)
    large = decode([DEEP], shape, datatype, ImageForm("NHWC", scale=1e308))
    assert np.isinf(large[large != 0]).any()  # in silence


# ── batches and sizes ───────────────────────────────────────────────────────


@pytest.mark.parametrize("form", [BGR, ImageForm("NCHW")])
def test_any_size(form: ImageForm) -> None:
    """A model of any size gets the images as large as they are."""
    made = decode([COLOUR, COLOUR], ANY, form=form)
    assert made.shape == ((2, 4, 5, 3) if form is BGR else (2, 3, 4, 5))


@pytest.mark.parametrize(
    ("files", "shape", "told"),
    [
        ([COLOUR], (2, 4, 5, 3), "input 'x' takes 2 images, got 1"),
        ([COLOUR] * 3, (2, 4, 5, 3), "input 'x' takes 2 images, got 3"),
        ([], (-1, 4, 5, 3), "input 'x' takes at least 1 images, got 0"),
        ([GREY], (1, 4, 5, 3), "input 'x' takes images of 3 channels, image 0 has 1"),
        ([CLEAR], (1, 4, 5, 3), "input 'x' takes images of 3 channels, image 0 has 4"),
        ([COLOUR], (1, 4, 5, 7), "input 'x' takes images of 7 channels, image 0 has 3"),
        ([COLOUR, GREY], ANY, "input 'x' takes images of 3 channels, image 1 has 1"),
        ([COLOUR, png("colour 8", 5, 4)], ANY,
         "input 'x' takes images of 4 x 5 pixels here, image 1 is 5 x 4: the model knows no size"),
        ([COLOUR], (-1, 9, -1, 3), "input 'x' takes images of 9 x 5 pixels here, image 0 is 4 x 5"),
        ([COLOUR], (-1, -1, 9, 3), "input 'x' takes images of 4 x 9 pixels here, image 0 is 4 x 5"),
        (Tensor("BYTES", np.array([[COLOUR]], object)), ANY,
         "input 'x' takes images as BYTES of shape [N], got shape [1, 1]"),
        (Tensor("BYTES", np.array([GREY, None], object)), ANY, "input 'x': null is not a string"),
    ],
)  # fmt: skip
def test_what_is_not_the_models(files: Any, shape: tuple[int, ...], told: str) -> None:
    """Images come as a row of the model's count, each with its channels; one size is resized to."""
    assert refusal(files, shape).startswith(told)


@pytest.mark.parametrize(("shape", "nbytes"), [((-1, 6, 7, 3), 504 * 3), ((-1, 1, 1, 3), 180)])
def test_the_limit(shape: tuple[int, ...], nbytes: int) -> None:
    """The batch, and what all files unpack to, may be as large as the limit, not a byte larger."""
    assert len(decode([COLOUR] * 3, shape, limit_nbytes=nbytes)) == 3
    with pytest.raises(RequestTooLarge, match=r"^the images of input 'x' take .*: send fewer, or "):
        decode([COLOUR] * 3, shape, limit_nbytes=nbytes - 1)


def sized(width: int, height: int) -> bytes:
    """A file that says to have so many pixels."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return COLOUR[:8] + chunk(b"IHDR", header) + COLOUR[33:]


def test_bombs_are_not_unpacked() -> None:
    """A file that promises too many pixels is refused by its header, without a warning."""
    with pytest.raises(RequestTooLarge, match=r"take 12\.0 GiB when decoded"):
        decode([COLOUR, sized(2**16, 2**16)], (-1, 4, 5, 3))


# ── what files say beside their pixels ──────────────────────────────────────


@pytest.mark.parametrize("data", [COLOUR, PHOTO])
@pytest.mark.parametrize("more", [b"\0", b"\xff" * 9, GREY, jpeg("L", 2, 2)])
def test_what_follows_an_image(data: bytes, more: bytes) -> None:
    """After the end of an image anything may come, another image too."""
    same_as_opencv(data + more)


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_exif_does_not_turn(kind: str) -> None:
    """EXIF's orientation is ignored, as OpenCV's IMREAD_UNCHANGED does."""
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6  # a quarter turn
    file = io.BytesIO()
    Image.open(io.BytesIO(COLOUR)).save(file, kind, exif=exif)
    same_as_opencv(file.getvalue())


def test_broken_exif_is_nobodys_business() -> None:
    """What Pillow would warn about in a JPEG, and could be made to unpack, is not even read."""
    exif = b"Exif\0\0II*\0\x08\0\0\0\x02\0\x1a\x01\x05\0\x01\0\0\0\xff\xff\xff\xff\xff"
    segment = struct.pack(">BBH", 0xFF, 0xE1, len(exif) + 2) + exif
    data = PHOTO[:2] + segment + PHOTO[20:]  # in place of JFIF, which has a resolution
    with pytest.warns(UserWarning, match="EXIF|Truncated"):
        Image.open(io.BytesIO(data)).load()
    same_as_opencv(data)


@pytest.mark.parametrize("filling", [b"\xff", b"junk", b"\xff\0", b"\xff\xd0", b"\xff" * 2**20])
def test_between_the_segments_of_a_jpeg(filling: bytes) -> None:
    """What libjpeg passes over between segments is passed over here too."""
    same_as_opencv(PHOTO[:20] + filling + PHOTO[20:])


# ── what is refused ─────────────────────────────────────────────────────────


def saved(kind: str) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (3, 4)).save(file, kind)
    return file.getvalue()


BROKEN = "input 'x': image 1 cannot be decoded: "


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        *((data, "it is neither PNG nor JPEG; send") for data in (b"", b"x", saved("GIF"))),
        *((data, "it is neither PNG nor JPEG; send") for data in (saved("TIFF"), saved("WEBP"))),
        (b"\xff\xd8\xff", "it ends before its pixels"),
        (b"\x89PNG\r\n\x1a\n", ""),
        (COLOUR[:60], ""),
        (PHOTO[:-30], ""),
        (sized(0, 1), ""),
        (jpeg("RGB", 16, 16, progressive=True)[:-2] + b"\xff\xda" * 100, "it has more than 100 sc"),
    ],
)
def test_what_cannot_be_decoded(data: bytes, reason: str) -> None:
    """A file that is broken is refused by its place in the batch, with a reason."""
    told = refusal([COLOUR, data])
    assert told.startswith(BROKEN + reason)
    assert len(told) > len(BROKEN)


def test_no_memory_is_no_bad_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that runs out while decoding is not blamed on the file."""

    def fail(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(Image.Image, "convert", fail)
    with pytest.raises(MemoryError):
        decode([COLOUR], ANY)


def failed(data: bytes) -> bool:
    try:
        decode([data], ANY)
    except (InvalidRequest, RequestTooLarge):
        return True
    return False


@pytest.mark.parametrize(
    "data",
    [png("colour 8", 20, 20), png("colour 16", 9, 9), png("palette 4 and alphas", 9, 9),
     png("colour 8 and a key", 9, 9, interlaced=True), jpeg("RGB", 20, 20), jpeg("CMYK", 9, 9),
     jpeg("L", 9, 9, progressive=True)],
)  # fmt: skip
def test_truncated(data: bytes) -> None:
    """A file that ends too early is refused, unless all of its pixels are there."""
    whole = decode([data], ANY)
    cuts = [cut for cut in range(len(data)) if not failed(data[:cut])]
    assert all(cut > len(data) - 22 for cut in cuts)  # checksums and an end without pixels
    for cut in cuts:
        assert np.array_equal(decode([data[:cut]], ANY), whole)
