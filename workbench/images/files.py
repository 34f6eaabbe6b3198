"""Decodes one PNG or JPEG file to the pixels that OpenCV's ``IMREAD_UNCHANGED`` gives.

Grey stays one channel, a palette becomes colours, transparency becomes a fourth channel except in a
grey image, 16 bits stay 16, and the image is not turned as its EXIF says.
Only the order differs: here it is RGB.

Pillow decodes. It gets only the parts of the file that hold pixels: otherwise it would print
warnings about broken EXIF or animations into the user's notebook, and unpack texts and profiles
that nobody reads.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np

from workbench.tensor import Array

_PNG, _JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"
_PNG_CHUNKS = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND")
# Comments and APPn segments, except the one in which Adobe describes the colours.
_JPEG_METADATA = {0xFE, *range(0xE1, 0xF0)} - {0xEE}
_JPEG_START_OF_SCAN = 0xDA
# Markers that have no length and fill bytes; skipped together, since there may be millions
_JPEG_SEGMENT = re.compile(rb"\xff[^\x00\x01\xd0-\xd9\xff]")
# Decoding each scan takes time for the whole image, even if it has only a few bytes.
_MOST_SCANS = 100


@dataclass(frozen=True, slots=True)
class ImageFile:
    """A file whose header was read. *depth_nbytes*: bytes of one channel of a pixel, 1 or 2."""

    height: int
    width: int
    channels: int
    depth_nbytes: int
    data: bytes

    @property
    def nbytes(self) -> int:
        """The size of its pixels."""
        return self.height * self.width * self.channels * self.depth_nbytes


def read_header(data: bytes) -> ImageFile:
    """The header of the file in *data*; the pixels are not decoded.

    Raises ``ValueError``, ``OSError``, ``SyntaxError`` and whatever else Pillow
    raises for what is broken.
    """
    if data.startswith(_PNG):
        plain = _plain_png(data)
    elif data.startswith(_JPEG):
        plain = _plain_jpeg(data)
    else:
        raise ValueError("it is neither PNG nor JPEG; send the file's bytes as binary data")
    image = _open(plain)
    channels = 4 if "transparency" in image.info else 3
    channels = {"1": 1, "L": 1, "I;16": 1, "RGBA": 4, "LA": 4}.get(image.mode, channels)
    wide = _raw_mode(image).endswith("16B")
    return ImageFile(image.height, image.width, channels, 1 + wide, plain)


def read_pixels(file: ImageFile) -> Array:
    """The pixels, ``uint8`` or ``uint16`` of [height, width, channels], as RGB or RGBA.

    Raises as ``read_header`` does.
    """
    image = _open(file.data)
    if file.depth_nbytes == 2 and image.mode != "I;16":
        pixels = _sixteen_bits(file)
    elif image.mode == "CMYK":
        pixels = _from_cmyk(np.asarray(image))
    elif image.mode in ("1", "LA", "P"):
        pixels = np.asarray(image.convert({1: "L", 3: "RGB", 4: "RGBA"}[file.channels]))
    else:
        pixels = np.asarray(image)
    pixels = pixels.reshape(file.height, file.width, -1)
    if pixels.shape[2] < file.channels:
        pixels = _with_alpha(pixels, image.info["transparency"])
    return pixels


def _plain_png(data: bytes) -> bytes:
    kept, at = [_PNG], len(_PNG)
    while at + 8 <= len(data):
        (length, name) = struct.unpack_from(">I4s", data, at)
        end = at + length + 12  # the length, the name and a checksum
        if name in _PNG_CHUNKS:
            kept.append(data[at:end])
        at = end
    if not any(chunk[4:8] == b"IDAT" for chunk in kept[1:]):
        raise ValueError("it ends before its pixels")
    return b"".join(kept)


def _plain_jpeg(data: bytes) -> bytes:
    kept, at = [data[:2]], 2
    while True:
        found = _JPEG_SEGMENT.search(data, at)
        if found is None or found.start() > len(data) - 4:
            raise ValueError("it ends before its pixels")
        at = found.start()
        (marker, length) = struct.unpack_from(">BH", data, at + 1)
        if marker == _JPEG_START_OF_SCAN:
            break
        if marker not in _JPEG_METADATA:
            kept.append(data[at : at + 2 + length])
        at += 2 + length
    kept.append(data[at:])
    plain = b"".join(kept)
    if plain.count(bytes([0xFF, _JPEG_START_OF_SCAN])) > _MOST_SCANS:
        raise ValueError(f"it has more than {_MOST_SCANS} scans")
    return plain


def _open(plain: bytes) -> Any:
    # Not Image.open, which warns about large images; our caller limits their size
    from PIL.JpegImagePlugin import JpegImageFile
    from PIL.PngImagePlugin import PngImageFile

    return (PngImageFile if plain.startswith(_PNG) else JpegImageFile)(BytesIO(plain))


def _raw_mode(image: Any) -> str:
    """The mode in which Pillow reads the bytes; ``"RGB;16B"`` drops the lower 8 of 16 bits."""
    mode: str | tuple[str, ...] = image.tile[0].args
    return mode if isinstance(mode, str) else mode[0]


def _sixteen_bits(file: ImageFile) -> Array:
    """Colours of 16 bits. No mode of Pillow has them, so each half is read by itself."""

    def read(raw_mode: str) -> Array:
        image = _open(file.data)
        image.tile = [image.tile[0]._replace(args=raw_mode)]
        return np.asarray(image).astype(np.uint16)

    raw_mode = _raw_mode(_open(file.data))
    if raw_mode == "LA;16B":  # two channels of 16 bits, read as four of 8 bits
        high_low = read("RGBA")
        grey_alpha = high_low[..., 0::2] << 8 | high_low[..., 1::2]
        return grey_alpha[..., [0, 0, 0, 1]]
    return read(raw_mode) << 8 | read(raw_mode.replace("16B", "16L"))


def _from_cmyk(inverted: Array) -> Array:
    """RGB by OpenCV's formula. Pillow inverts the values, which Adobe stores inverted."""
    inks = 255 - inverted.astype(np.int32)
    black = inks[..., 3:]
    return (black - ((255 - inks[..., :3]) * black >> 8)).astype(np.uint8)


def _with_alpha(pixels: Array, key: tuple[int, int, int]) -> Array:
    """Add an alpha channel: 0 where the pixel has the colour that is declared transparent."""
    most = np.iinfo(pixels.dtype).max
    see_through = (pixels == np.array(key, np.uint16) & most).all(axis=2, keepdims=True)
    return np.concatenate([pixels, np.where(see_through, 0, most).astype(pixels.dtype)], axis=2)
