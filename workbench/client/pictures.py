"""Images that Python gives, as the contents of files."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from workbench.errors import line_of
from workbench.image_forms import channels_first
from workbench.tensor import Array

_PLAIN = {"P": "RGB", "1": "L"}  # Pillow's modes whose numbers are not those of pixels
_SHOWN_CHARS = 80  # characters of what may be no path at all


def image_files(value: object) -> Array | Sequence[bytes] | None:
    """The files that *value* is, one or several; ``None`` if it is other things, such as numbers.

    A file is its content, its path, or an image of Pillow. Raises ``ValueError`` where it cannot be
    read or written.
    """
    if isinstance(value, np.ndarray):
        return value if value.dtype == object else None
    files = [_file(each) for each in _several(value)]
    return None if None in files or not files else files  # type: ignore[return-value]


def are_images(value: object) -> bool:
    """True if *value* is an image of Pillow, or several."""
    if isinstance(value, np.ndarray):  # as of most requests
        return False
    return bool(values := _several(value)) and all(map(_is_image, values))


def image_arrays(value: Any, shape: Sequence[int]) -> Array:
    """The pixels of an image of Pillow, or of several of one size: red, green, blue, unscaled.

    For an input of *shape*: the channels stand where it has them. Raises ``ValueError``.
    """
    if isinstance(value, list | tuple):
        return np.stack([image_arrays(each, shape) for each in value])
    array: Array = np.asarray(value.convert(_PLAIN.get(value.mode, value.mode)))
    if len(shape) < 3:
        return array
    if channels_first(shape):
        return array[None] if array.ndim == 2 else array.transpose(2, 0, 1)
    return array[..., None] if array.ndim == 2 and shape[-1] == 1 else array


def _several(value: object) -> Sequence[object]:
    return value if isinstance(value, list | tuple) else [value]


def _is_image(value: object) -> bool:
    return type(value).__module__.partition(".")[0] == "PIL" and hasattr(value, "save")


def _file(value: Any) -> bytes | None:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, str | PathLike):
        try:
            return Path(value).read_bytes()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or line_of(error)
            raise ValueError(f"the file {str(value)[:_SHOWN_CHARS]!r}: {reason}") from None
    if not _is_image(value):
        return None
    file = BytesIO()  # of a PNG, which loses nothing
    try:
        value.save(file, "PNG", compress_level=1)
    except OSError as error:  # of modes that PNG has not, such as CMYK
        raise ValueError(f"{line_of(error)}: pass image.convert('RGB')") from None
    return file.getvalue()
