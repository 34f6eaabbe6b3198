"""PNG and JPEG: the pixels that OpenCV reads, from files that say too much or too little."""

import io
import logging
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pictures import KINDS, chunk, jpeg, opencv, png
from PIL import ExifTags, Image, UnidentifiedImageError

from workbench.images.decode import ImageFile, read_header, read_pixels

deterministic = settings(derandomize=True, deadline=None, max_examples=60)
SIZES = st.integers(1, 20)

# Between Pillow's libjpeg-turbo and OpenCV's, of the wheels of both, there is no difference;
# builds that have another libjpeg may interpolate the colours in another way.
JPEG_DIFFERENCE = 0


def check(data: bytes, *, difference: int = 0) -> ImageFile:
    """Header and pixels are OpenCV's."""
    want = opencv(data)
    file = read_header(data)
    assert file.size == want.shape
    assert file.nbytes == want.nbytes
    got = read_pixels(file)
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    assert np.abs(got.astype(int) - want).max() <= difference
    return file


@pytest.mark.parametrize("kind", KINDS)
@deterministic
@given(SIZES, SIZES, st.integers(0, 2**32))
def test_every_kind_of_png(kind: str, height: int, width: int, seed: int) -> None:
    """A PNG of any colour type and depth has OpenCV's channels, depth and pixels, to the bit."""
    check(png(kind, height, width, seed=seed))


@pytest.mark.parametrize("kind", [kind for kind, (depth, _, _) in KINDS.items() if depth >= 8])
def test_interlaced_png(kind: str) -> None:
    """An interlaced PNG is read as another."""
    check(png(kind, 13, 11, interlaced=True))


@pytest.mark.parametrize(("mode", "channels"), [("L", 1), ("RGB", 3), ("CMYK", 3)])
@deterministic
@given(
    SIZES,
    SIZES,
    st.fixed_dictionaries(
        {
            "seed": st.integers(0, 9),
            "quality": st.integers(5, 100),
            "progressive": st.booleans(),
            "subsampling": st.integers(0, 2),
        }
    ),
)
def test_jpeg(mode: str, channels: int, height: int, width: int, options: dict[str, Any]) -> None:
    """A JPEG, grey, in colours or for print, has OpenCV's pixels, whatever its coding."""
    data = jpeg(mode, height, width, **options)
    assert check(data, difference=JPEG_DIFFERENCE).size[2] == channels


def test_a_jpeg_that_is_rgb_itself() -> None:
    """The one segment of an application that says how colours are coded is heeded."""
    data = jpeg("RGB", 8, 9, keep_rgb=True)
    assert b"Adobe" in data
    check(data, difference=JPEG_DIFFERENCE)


@pytest.mark.parametrize("data", [png("colour 8", 4, 5), jpeg("RGB", 4, 5)], ids=["PNG", "JPEG"])
@pytest.mark.parametrize("more", [b"\0", b"\xff" * 9, png("grey 8", 2, 2), jpeg("L", 2, 2)])
def test_what_follows_an_image(data: bytes, more: bytes) -> None:
    """After the end of an image anything may come, another image too."""
    check(data + more, difference=JPEG_DIFFERENCE)


def with_exif(kind: str) -> bytes:
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6  # a quarter turn
    file = io.BytesIO()
    Image.open(io.BytesIO(png("colour 8", 4, 9))).save(file, kind, exif=exif)
    return file.getvalue()


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_exif_does_not_turn(kind: str) -> None:
    """EXIF's orientation is ignored, as OpenCV's IMREAD_UNCHANGED does."""
    data = with_exif(kind)
    assert Image.open(io.BytesIO(data)).getexif()[ExifTags.Base.Orientation] == 6
    file = check(data, difference=JPEG_DIFFERENCE)
    assert file.size[:2] == (4, 9)


def segment(marker: int, data: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(data) + 2) + data


def test_broken_exif_is_nobodys_business(caplog: pytest.LogCaptureFixture) -> None:
    """Metadata that Pillow would warn about is not even read."""
    data = jpeg("RGB", 5, 6)
    broken = (
        b"Exif\0\0II*\0\x08\0\0\0\x02\0" + b"\x1a\x01\x05\0\x01\0\0\0\xff\xff\xff\xff" + b"\xff"
    )
    start = data[:2] + segment(0xE1, broken) + data[20:]  # in place of JFIF, which has a resolution
    with pytest.warns(UserWarning, match="EXIF|Truncated"):
        Image.open(io.BytesIO(start)).load()
    with caplog.at_level(logging.DEBUG):
        check(start, difference=JPEG_DIFFERENCE)
    assert caplog.messages == []


def test_an_animation_is_its_default_image() -> None:
    """What makes a PNG move is left out, broken or not."""
    still = png("colour 8", 5, 6)
    start = still.index(b"IDAT") - 4
    moving = still[:start] + chunk(b"acTL", bytes(8)) + still[start:]
    with pytest.warns(UserWarning, match="Invalid APNG"):
        Image.open(io.BytesIO(moving)).load()
    assert np.array_equal(read_pixels(read_header(moving)), read_pixels(read_header(still)))


def test_texts_are_not_unpacked() -> None:
    """A text that would unpack to more than Pillow allows does not matter."""
    still = png("colour 8", 5, 6)
    start = still.index(b"IDAT") - 4
    check(still[:start] + chunk(b"zTXt", b"a\0\0" + b"not packed") + still[start:])


def test_large_images_make_no_warning() -> None:
    """The header of an image of any size is read in silence; its size is ours to judge."""
    data = png("grey 1", 1, 1)
    large = data[:8] + chunk(b"IHDR", struct.pack(">IIBBBBB", 2**30, 2**30, 1, 0, 0, 0, 0))
    assert read_header(large + data[33:]).nbytes == 2**60


@pytest.mark.parametrize(
    "filling",
    [
        b"\xff",
        b"\xff\xff\xff",
        b"junk",
        b"\xff\0",
        b"\xff\xd0",
        b"\xff\x01",
        pytest.param(b"\xff" * 2**20, id="a MiB"),
    ],
)
def test_between_the_segments_of_a_jpeg(filling: bytes) -> None:
    """What libjpeg passes over between segments is passed over here too."""
    data = jpeg("RGB", 5, 6)
    check(data[:20] + filling + data[20:], difference=JPEG_DIFFERENCE)


def test_scans_are_counted() -> None:
    """A JPEG of more scans than anybody needs, each a pass over all pixels, is refused."""
    data = jpeg("RGB", 16, 16, progressive=True)
    assert 2 < data.count(b"\xff\xda") < 20
    with pytest.raises(ValueError, match="it has more than 100 scans"):
        read_header(data[:-2] + b"\xff\xda" * 100 + data[-2:])


@pytest.mark.parametrize("kind", ["GIF", "BMP", "TIFF", "WEBP", "PPM"])
def test_other_formats(kind: str) -> None:
    """Only PNG and JPEG are read, whatever else Pillow knows."""
    file = io.BytesIO()
    Image.new("RGB", (3, 4)).save(file, kind)
    with pytest.raises(ValueError, match="it is neither PNG nor JPEG"):
        read_header(file.getvalue())


def failed(data: bytes) -> bool:
    try:
        read_pixels(read_header(data))
    except Exception:  # what it raises is Pillow's; that nothing else happens is the test
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
    whole = read_pixels(read_header(data))
    cuts = [cut for cut in range(len(data)) if not failed(data[:cut])]
    assert all(cut > len(data) - 22 for cut in cuts)  # checksums and an end without pixels
    for cut in cuts:
        assert np.array_equal(read_pixels(read_header(data[:cut])), whole)


@pytest.mark.parametrize(
    ("width", "height"), [(0, 1), (1, 0), (0, 0), (2**31, 1), (2**32 - 1, 2**32 - 1)]
)
def test_impossible_sizes(width: int, height: int) -> None:
    """A size that no image can have is refused."""
    data = png("colour 8", 1, 1)
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    assert failed(data[:8] + header + data[33:])


FILES = [png(kind, 6, 7) for kind in KINDS] + [jpeg(mode, 9, 9) for mode in ("L", "RGB", "CMYK")]


@settings(derandomize=True, deadline=None, max_examples=400)
@given(st.sampled_from(FILES), st.data())
def test_any_bytes(data: bytes, draw: st.DataObject) -> None:
    """Whatever the bytes, the answer is pixels of the header's size, or an error; no warning."""
    broken = bytearray(data)
    for _ in range(draw.draw(st.integers(1, 4))):
        at = draw.draw(st.integers(0, len(broken) - 1))
        broken[at : at + draw.draw(st.integers(0, 4))] = draw.draw(st.binary(max_size=4))
    try:
        file = read_header(bytes(broken))
        if file.nbytes > 2**20:
            return
        pixels = read_pixels(file)
    except (ValueError, OSError, SyntaxError, struct.error, UnidentifiedImageError):
        return
    assert pixels.shape == file.size
    assert pixels.nbytes == file.nbytes
