"""PNG and JPEG files in a BYTES tensor, as the tensor that a model takes.

The rules are OpenVINO Model Server's: pixels as OpenCV's ``IMREAD_UNCHANGED`` reads them, blue
first, converted to the datatype, saturating, and then resized with ``INTER_LINEAR``. Beyond them
there are NCHW, RGB, a scale, and every datatype at any size; ranges of sizes are left out, since
ONNX models declare none. Pillow decodes, but for CMYK and colours of 16 bits. OpenCV, which the
extra ``images`` brings, decodes those and resizes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np

from workbench.errors import InvalidRequest, NotSupported, RequestTooLarge, line_of
from workbench.inference import check_texts
from workbench.model import ImageForm, TensorSpec
from workbench.nbytes import show_nbytes
from workbench.tensor import DATATYPES, Array, Tensor, element_count

MAX_NBYTES = 256 * 2**20
"""The memory that the images of one input may take."""

_AXES = {"NHWC": (0, 1, 2, 3), "NCHW": (0, 2, 3, 1)}  # the positions of N, H, W and C
_SWAPPED = {1: [0], 3: [2, 1, 0], 4: [2, 1, 0, 3]}  # RGB to BGR and back, by channels
_PNG, _JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"
_PNG_CHUNKS = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND")
# Comments and APPn segments, except the one in which Adobe describes the colours.
_JPEG_METADATA = {0xFE, *range(0xE1, 0xF0)} - {0xEE}
# Markers that have no length and fill bytes are skipped together, since there may be millions
_JPEG_SEGMENT = re.compile(rb"\xff[^\x00\x01\xd0-\xd9\xff]")
_START_OF_SCAN = 0xDA
_MOST_SCANS = 100  # of a JPEG; each takes time for the whole image, however few its bytes
_RESIZED = ("UINT8", "UINT16", "INT16", "FP32", "FP64")  # of the others OpenCV is given FP32
_OPENCV_HAS_NO_MEMORY = -4  # its error's code


class ImageFile(NamedTuple):
    """A file whose header was read. *size*: height, width and channels; *nbytes*: of the pixels."""

    image: Any
    data: bytes
    size: tuple[int, ...]
    nbytes: int
    by_opencv: bool


def decode_images(
    name: str, tensor: Tensor, spec: TensorSpec, form: ImageForm, limit_nbytes: int = MAX_NBYTES
) -> Tensor:
    """The files in *tensor*, BYTES of shape [N], as a batch of *spec*'s datatype and *form*.

    All headers are read before any pixel. Raises ``InvalidRequest`` for a broken or unfit file,
    ``RequestTooLarge`` if the pixels of all files, or the batch, take more than *limit_nbytes*, and
    ``NotSupported`` if OpenCV is needed and not installed.
    """
    count, *declared = (spec.shape[axis] for axis in _AXES[form.layout])
    if len(tensor.shape) != 1:
        raise InvalidRequest(
            f"input {name!r} takes images as BYTES of shape [N], got shape {list(tensor.shape)}"
        )
    if tensor.shape[0] == 0 or count not in (-1, tensor.shape[0]):
        wanted = "at least 1" if count == -1 else count
        raise InvalidRequest(f"input {name!r} takes {wanted} images, got {tensor.shape[0]}")
    check_texts(name, tensor)
    files = []
    for index, data in enumerate(tensor.array):
        with _decoding(name, index):
            files.append(read_header(data))
    sizes = zip(declared, files[0].size, strict=True)
    size = tuple(firsts if size == -1 else size for size, firsts in sizes)
    _check_size(name, files, size, is_resized=-1 not in declared[:2])
    shape = (len(files), *size)
    dtype = DATATYPES[spec.datatype].dtype
    needs = (sum(file.nbytes for file in files), element_count(shape) * dtype.itemsize)
    if max(needs) > limit_nbytes:
        raise RequestTooLarge(
            f"the images of input {name!r} take {show_nbytes(max(needs))} when decoded, more than "
            f"{show_nbytes(limit_nbytes)}: send fewer, or smaller ones"
        )
    if any(file.by_opencv or file.size != size for file in files):
        _import_opencv(name)
    batch = np.empty([shape["NHWC".index(axis)] for axis in form.layout], dtype)
    for index, place in enumerate(batch.transpose(_AXES[form.layout])):
        with _decoding(name, index):
            _fill(place, read_pixels(files[index]), spec.datatype, form)
    return Tensor(spec.datatype, batch)


@contextmanager
def _decoding(name: str, index: int) -> Iterator[None]:
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:  # Pillow raises many kinds of errors; the client gets the message
        if getattr(error, "code", 0) == _OPENCV_HAS_NO_MEMORY:
            raise MemoryError from error
        reason = line_of(error) or type(error).__name__
        raise InvalidRequest(
            f"input {name!r}: image {index} cannot be decoded: {reason}"
        ) from error


def _import_opencv(name: str) -> None:
    try:
        import cv2  # noqa: F401  # takes its time
    except ImportError as error:
        raise NotSupported(
            f"input {name!r}: an image of another size than the model's, of CMYK or of 16-bit "
            f"colours needs OpenCV: pip install 'serving-workbench[images]'"
        ) from error


def _check_size(
    name: str, files: Sequence[ImageFile], size: Sequence[int], *, is_resized: bool
) -> None:
    height, width, channels = size
    for index, file in enumerate(files):
        if file.size[2] != channels:
            raise InvalidRequest(
                f"input {name!r} takes images of {channels} channels, "
                f"image {index} has {file.size[2]}"
            )
        if not is_resized and file.size != size:
            raise InvalidRequest(
                f"input {name!r} takes images of {height} x {width} pixels here, image {index} is "
                f"{file.size[0]} x {file.size[1]}: the model knows no size "
                f"to bring them to, so all must be as large as the first"
            )


def read_header(data: bytes) -> ImageFile:
    """The header of the file in *data*; raises ``ValueError`` and whatever Pillow raises."""
    from PIL.JpegImagePlugin import JpegImageFile  # not Image.open, which warns of large images
    from PIL.PngImagePlugin import PngImageFile

    # Pillow gets no metadata: it would warn of broken ones in the user's notebook, and unpack texts
    if data.startswith(_PNG):
        data = _plain_png(data)
    elif data.startswith(_JPEG):
        data = _plain_jpeg(data)
    else:
        raise ValueError("it is neither PNG nor JPEG; send the file's bytes as binary data")
    image = (PngImageFile if data.startswith(_PNG) else JpegImageFile)(BytesIO(data))
    channels = 4 if "transparency" in image.info else 3
    channels = {"1": 1, "L": 1, "I;16": 1, "RGBA": 4, "LA": 4}.get(image.mode, channels)
    raw_mode = str(image.tile[0].args)  # "RGB;16B" drops the lower 8 of 16 bits
    size = (image.height, image.width, channels)
    nbytes = math.prod(size) * (1 + ("16B" in raw_mode))
    by_opencv = image.mode == "CMYK" or ("16B" in raw_mode and image.mode != "I;16")
    return ImageFile(image, data, size, nbytes, by_opencv)


def _plain_png(data: bytes) -> bytes:
    kept, at = [_PNG], len(_PNG)
    while at < len(data):
        end = at + int.from_bytes(data[at : at + 4]) + 12  # the length, the name and a checksum
        if data[at + 4 : at + 8] in _PNG_CHUNKS:
            kept.append(data[at:end])
        at = end
    if not any(chunk[4:8] == b"IDAT" for chunk in kept[1:]):
        raise ValueError("it ends before its pixels")
    return b"".join(kept)


def _plain_jpeg(data: bytes) -> bytes:
    kept, at = [data[:2]], 2
    while found := _JPEG_SEGMENT.search(data, at):
        at, marker = found.start(), data[found.end() - 1]
        if marker == _START_OF_SCAN:
            plain = b"".join([*kept, data[at:]])
            if plain.count(bytes([0xFF, _START_OF_SCAN])) > _MOST_SCANS:
                raise ValueError(f"it has more than {_MOST_SCANS} scans")
            return plain
        end = found.end() + int.from_bytes(data[found.end() : found.end() + 2])
        if marker not in _JPEG_METADATA:
            kept.append(data[at:end])
        at = end
    raise ValueError("it ends before its pixels")


def read_pixels(file: ImageFile) -> Array:
    """The pixels as BGR, ``uint8`` or ``uint16`` of [height, width, channels]; raises as Pillow."""
    if file.by_opencv:
        import cv2

        read = cv2.imdecode(np.frombuffer(file.data, np.uint8), cv2.IMREAD_UNCHANGED)
        if read is None or read.shape != file.size:
            raise ValueError("OpenCV cannot read it")
        return np.asarray(read)
    channels = file.size[2]
    mode = {1: "L", 3: "RGB", 4: "RGBA"}[channels]
    image = file.image if file.image.mode == "I;16" else file.image.convert(mode)
    return np.asarray(image).reshape(file.size)[..., _SWAPPED[channels]]


def _fill(place: Array, pixels: Array, datatype: str, form: ImageForm) -> None:
    """Write *pixels* into *place*, one image of the batch as [H, W, C]."""
    if place.dtype.kind != "f":
        pixels = np.minimum(pixels, min(np.iinfo(place.dtype).max, np.iinfo(pixels.dtype).max))
    values = pixels.astype(DATATYPES[datatype if datatype in _RESIZED else "FP32"].dtype)
    if pixels.shape != place.shape:
        import cv2

        values = cv2.resize(values, place.shape[1::-1]).reshape(place.shape)
    if place.dtype.kind != values.dtype.kind:
        values = np.rint(values)
    if form.rgb:
        values = values[..., _SWAPPED[place.shape[2]]]
    with np.errstate(over="ignore"):  # 65535 as FP16 is infinite
        place[...] = values if form.scale == 1 else values * values.dtype.type(form.scale)
