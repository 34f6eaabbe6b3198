"""Decodes PNG or JPEG files in a BYTES tensor to the tensor that a model takes.

The rules are OpenVINO Model Server's: the pixels are OpenCV's, so their order is BGR and their
range is the file's. They are first converted to the datatype, saturating, and then resized with
``INTER_LINEAR``. In addition there are NCHW, RGB, a scale, every datatype at any size, a size that
is known though the batch is not, and ``InvalidRequest`` for a broken file. The rule for ranges of
sizes is left out, since ONNX models declare none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from workbench.errors import InvalidRequest, RequestTooLarge, line_of
from workbench.images.files import ImageFile, read_header, read_pixels
from workbench.images.resize import resized, working_dtype
from workbench.inference import check_texts
from workbench.model import ImageForm, TensorSpec
from workbench.nbytes import show_nbytes
from workbench.tensor import DATATYPES, Array, Tensor, element_count

# The positions of N, H, W and C in each layout.
_AXES = {"NHWC": (0, 1, 2, 3), "NCHW": (0, 2, 3, 1)}
_BGR = (2, 1, 0, 3)

Taken = TypeVar("Taken")
Given = TypeVar("Given")


def decode_images(
    name: str, tensor: Tensor, spec: TensorSpec, form: ImageForm, limit_nbytes: int
) -> Tensor:
    """The files in *tensor*, BYTES of shape [N], as a batch of *spec*'s datatype.

    Its shape is [N, H, W, C] or [N, C, H, W]. They are resized if *spec* has a height and a width;
    otherwise all must be as large as the first. All headers are
    read before any pixel. Raises ``InvalidRequest`` for what does not fit or is
    broken, ``RequestTooLarge`` if the pixels of all files, or the batch, take
    more than *limit_nbytes*.
    """
    count, *size = (spec.shape[axis] for axis in _AXES[form.layout])
    _check_count(name, tensor, count)
    check_texts(name, tensor)
    files = [_read(name, index, read_header, data) for index, data in enumerate(tensor.array)]
    shape = (len(files), *_common_size(name, files, *size))
    dtype = DATATYPES[spec.datatype].dtype
    needs = (sum(file.nbytes for file in files), element_count(shape) * dtype.itemsize)
    if max(needs) > limit_nbytes:
        raise RequestTooLarge(
            f"the images of input {name!r} take {show_nbytes(max(needs))} when decoded, more than "
            f"{show_nbytes(limit_nbytes)}, the setting max_image: send fewer, or smaller ones"
        )
    batch = np.empty([shape["NHWC".index(axis)] for axis in form.layout], dtype)
    for index, place in enumerate(batch.transpose(_AXES[form.layout])):
        _fill(place, _read(name, index, read_pixels, files[index]), form)
    return Tensor(spec.datatype, batch)


def _check_count(name: str, tensor: Tensor, count: int) -> None:
    if len(tensor.shape) != 1:
        raise InvalidRequest(
            f"input {name!r} takes images as BYTES of shape [N], got shape {list(tensor.shape)}"
        )
    if tensor.shape[0] == 0 or count not in (-1, tensor.shape[0]):
        wanted = "at least 1" if count == -1 else count
        raise InvalidRequest(f"input {name!r} takes {wanted} images, got {tensor.shape[0]}")


def _read(name: str, index: int, read: Callable[[Given], Taken], given: Given) -> Taken:
    try:
        return read(given)
    except MemoryError:
        raise
    except Exception as error:  # Pillow raises many kinds of errors; the client gets the message
        reason = line_of(error) or type(error).__name__
        raise InvalidRequest(
            f"input {name!r}: image {index} cannot be decoded: {reason}"
        ) from error


def _common_size(
    name: str, files: Sequence[ImageFile], height: int, width: int, channels: int
) -> tuple[int, int, int]:
    """Height, width and channels of the batch; -1 for each that the model leaves open."""
    first = files[0]
    is_resized = -1 not in (height, width)
    height = first.height if height == -1 else height
    width = first.width if width == -1 else width
    channels = first.channels if channels == -1 else channels
    for index, file in enumerate(files):
        if file.channels != channels:
            raise InvalidRequest(
                f"input {name!r} takes images of {channels} channels, "
                f"image {index} has {file.channels}"
            )
        if not is_resized and (file.height, file.width) != (height, width):
            raise InvalidRequest(
                f"input {name!r} takes images of {height} x {width} pixels here, "
                f"image {index} is {file.height} x {file.width}: the model knows no size "
                f"to bring them to, so all must be as large as the first"
            )
    return height, width, channels


def _fill(place: Array, pixels: Array, form: ImageForm) -> None:
    """Write *pixels*, in RGB, into *place*, one image of the batch as [H, W, C]."""
    height, width, channels = place.shape
    order = range(channels) if form.rgb or channels == 1 else _BGR[:channels]
    with np.errstate(over="ignore", invalid="ignore"):  # converting 65535 to FP16 gives infinity
        scale = working_dtype(place.dtype).type(form.scale)
        for rows, values in resized(pixels, height, width, place.dtype):
            scaled = values if form.scale == 1 else values * scale
            for channel, source in enumerate(order):
                place[rows, :, channel] = scaled[..., source]
