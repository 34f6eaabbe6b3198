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
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
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
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}  # Pillow's, by channels
# Markers that have no length and fill bytes are skipped together, since there may be millions
_JPEG_SEGMENT = re.compile(rb"\xff[^\x00\x01\xd0-\xd9\xff]")
_START_OF_FRAME = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
_MOST_SCANS = 100  # of a JPEG; each takes time for the whole image, however few its bytes
_RESIZED = ("UINT8", "UINT16", "INT16", "FP32", "FP64")  # of the others OpenCV is given FP32


class _File(NamedTuple):
    """A file whose header was read: height, width and channels, and the bytes of its pixels."""

    size: tuple[int, ...]
    nbytes: int
    read: Callable[[], Any]  # gives the pixels, red first


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
            files.append(_png(data) if data.startswith(b"\x89PNG\r\n\x1a\n") else _jpeg(data))
    sizes = zip(declared, files[0].size, strict=True)
    height, width, channels = size = tuple(own if each == -1 else each for each, own in sizes)
    for index, file in enumerate(files):
        if file.size[2] != channels:
            raise InvalidRequest(
                f"input {name!r} takes images of {channels} channels, "
                f"image {index} has {file.size[2]}"
            )
        if -1 in declared[:2] and file.size != size:
            raise InvalidRequest(
                f"input {name!r} takes images of {height} x {width} pixels here, image {index} is "
                f"{file.size[0]} x {file.size[1]}: the model knows no size "
                f"to bring them to, so all must be as large as the first"
            )
    shape = (len(files), *size)
    dtype = DATATYPES[spec.datatype].dtype
    nbytes = max(sum(file.nbytes for file in files), element_count(shape) * dtype.itemsize)
    if nbytes > limit_nbytes:
        raise RequestTooLarge(
            f"the images of input {name!r} take {show_nbytes(nbytes)} when decoded, more than "
            f"{show_nbytes(limit_nbytes)}: send fewer, or smaller ones"
        )
    batch = np.empty([shape["NHWC".index(axis)] for axis in form.layout], dtype)
    for index, place in enumerate(batch.transpose(_AXES[form.layout])):
        with _decoding(name, index):
            _fill(place, np.asarray(files[index].read()), spec.datatype, form)
    return Tensor(spec.datatype, batch)


@contextmanager
def _decoding(name: str, index: int) -> Iterator[None]:
    try:
        yield
    except MemoryError:
        raise
    except ImportError as error:
        raise NotSupported(
            f"input {name!r}: an image of another size than the model's, of CMYK or of 16-bit "
            f"colours needs OpenCV: pip install 'serving-workbench[images]'"
        ) from error
    except Exception as error:  # Pillow raises many kinds of errors; the client gets the message
        reason = line_of(error) or type(error).__name__
        told = f"input {name!r}: image {index} cannot be decoded: {reason}"
        raise InvalidRequest(told) from error


def _png(data: bytes) -> _File:
    from PIL.PngImagePlugin import PngImageFile  # not Image.open, which warns of large images

    image = PngImageFile(BytesIO(data))
    channels = 4 if "transparency" in image.info else 3
    channels = {"1": 1, "L": 1, "I;16": 1, "RGBA": 4, "LA": 4}.get(image.mode, channels)
    size = (image.height, image.width, channels)
    if "16B" not in str(image.tile[0].args):
        return _File(size, math.prod(size), partial(image.convert, _MODES[channels]))
    by_opencv = partial(_by_opencv, data, size)  # of colours Pillow drops the lower 8 bits
    return _File(size, 2 * math.prod(size), image.copy if image.mode == "I;16" else by_opencv)


def _jpeg(data: bytes) -> _File:
    """The header alone: what else Pillow would read could be made to take any memory."""
    from PIL import Image

    if not data.startswith(b"\xff\xd8\xff"):
        raise ValueError("it is neither PNG nor JPEG; send the file's bytes as binary data")
    if data.count(b"\xff\xda") > _MOST_SCANS:
        raise ValueError(f"it has more than {_MOST_SCANS} scans")
    at = 2
    while found := _JPEG_SEGMENT.search(data, at):
        at = found.end()
        if found[0][1] in _START_OF_FRAME:
            height, width, coded = struct.unpack_from(">HHB", data, at + 3)
            size = (height, width, min(coded, 3))
            mode = _MODES[size[2]]
            by_pillow = partial(Image.frombytes, mode, (width, height), data, "jpeg", mode, "")
            read = by_pillow if coded < 4 else partial(_by_opencv, data, size)
            return _File(size, math.prod(size), read)
        at += int.from_bytes(data[at : at + 2])
    raise ValueError("it ends before its pixels")


def _by_opencv(data: bytes, size: tuple[int, ...]) -> Array:
    import cv2

    read = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    if read is None or read.shape != size:
        raise ValueError("OpenCV cannot read it")
    return np.asarray(read)[..., _SWAPPED[size[2]]]


def _fill(place: Array, pixels: Array, datatype: str, form: ImageForm) -> None:
    """Write *pixels*, red first, into *place*, one image of the batch as [H, W, C]."""
    if place.dtype.kind != "f":
        pixels = np.minimum(pixels, min(np.iinfo(place.dtype).max, np.iinfo(pixels.dtype).max))
    values = pixels.astype(DATATYPES[datatype if datatype in _RESIZED else "FP32"].dtype)
    if pixels.shape[:2] != place.shape[:2]:
        import cv2

        values = cv2.resize(values, place.shape[1::-1])
    values = values.reshape(place.shape)
    if place.dtype.kind != values.dtype.kind:
        values = np.rint(values)
    if not form.rgb:
        values = values[..., _SWAPPED[place.shape[2]]]
    with np.errstate(over="ignore"):  # 65535 as FP16 is infinite
        place[...] = values if form.scale == 1 else values * values.dtype.type(form.scale)
