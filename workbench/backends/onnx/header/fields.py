"""A bounded reader of protobuf messages: every length is checked, every field counted.

Tensor data is never read, so the time depends on the number of fields, not on the size.
A *key* is ``field number << 3 | wire type``.
"""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Iterator
from pathlib import Path, PureWindowsPath

_FIELDS_MAX = 3_000_000  # a few seconds of reading, at worst
_INT64_MAX = 2**63 - 1

# Repeated numbers that are not packed have a key each, and a tree ensemble has millions of
# them. A regular expression skips such a run at C speed.
_VARINTS = rb"(?:%b[\x80-\xff]{0,9}+[\x00-\x7f])*+"
_RUNS = {key: re.compile(_VARINTS % re.escape(bytes([key]))) for key in (0x28, 0x38, 0x40, 0x58)}
_RUNS |= {
    key: re.compile(rb"(?:%b.{4})*+" % re.escape(bytes([key])), re.DOTALL) for key in (0x25, 0x3D)
}
_RUNS |= {0x51: re.compile(rb"(?:Q.{8})*+", re.DOTALL)}


class Fault(Exception):
    """A fault of the file; `read_onnx_file` adds its name."""


class ExternalFiles:
    """The files with external data; each must be in the model's folder, and is checked once."""

    def __init__(self, model: Path) -> None:
        self._folder = model.parent
        # As onnxruntime does: a model that is itself a link may have its data next
        # to its target (the layout of a Hugging Face cache).
        self._roots = (_real(model.parent), _real(model).parent)
        self.sizes: dict[Path, int] = {}

    def claim(self, tensor: str, entries: dict[str, str], need_nbytes: int) -> None:
        """Check that the file holds *need_nbytes* where *entries* say."""
        location = entries.get("location", "")
        path = self._inside(tensor, location)
        if path not in self.sizes:
            if not path.is_file():
                raise Fault(f"tensor {tensor!r} is in {location!r}, which is missing")
            self.sizes[path] = path.stat().st_size
        offset = _number(tensor, entries.get("offset", "0"))
        length = _number(tensor, entries.get("length", "") or str(need_nbytes))
        if length < need_nbytes or offset + length > self.sizes[path]:
            raise Fault(f"tensor {tensor!r} needs {need_nbytes} bytes, {location!r} has fewer")

    def _inside(self, tensor: str, location: str) -> Path:
        windows = PureWindowsPath(location)  # knows both kinds of slashes, and drives
        named = location and "\0" not in location
        path = self._folder / location
        inside = named and not windows.anchor and ".." not in windows.parts
        if not inside or not any(map(_real(path).is_relative_to, self._roots)):
            raise Fault(f"tensor {tensor!r} is outside of the model's folder: {location!r}")
        return path


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))  # Path.resolve raises for a loop of links


def _number(tensor: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise Fault(f"tensor {tensor!r} has a bad offset or length: {text[:30]!r}")
    return int(text)


class Reader:
    """A bounded walk over protobuf messages: every length is checked, every field counted."""

    def __init__(self, data: mmap.mmap | bytes, files: ExternalFiles) -> None:
        self.data = data
        self.files = files
        self._left = _FIELDS_MAX
        self.data_nbytes = 0  # of the file, what is numbers of constants

    def varint(self, at: int, end: int) -> tuple[int, int]:
        """The number at *at*, and the offset behind it."""
        value = shift = 0
        for i in range(at, min(end, at + 10)):
            byte = self.data[i]
            value |= (byte & 127) << shift
            if byte < 128:
                return value & (2**64 - 1), i + 1
            shift += 7
        raise Fault("a number is cut off or too long")

    def fields(self, at: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yield (key, start, stop) of each field of the message in [at, end).

        For a single number, *start* is the number itself; for a run of numbers that
        are not packed the span holds their keys too.
        """
        data = self.data
        while at < end:
            self._left -= 1
            if self._left < 0:
                raise Fault(f"it has more than {_FIELDS_MAX:,} fields")
            key, start = data[at], at
            at += 1
            if key > 127:
                key, at = self.varint(start, end)
            wire = key & 7
            if wire == 2:
                size = data[at] if at < end else 128
                at += 1
                if size > 127:
                    size, at = self.varint(at - 1, end)
                start, at = at, at + size
                if at > end:
                    raise Fault("a length points past the end (is it truncated?)")
                yield key, start, at
            elif key in _RUNS and (run := _RUNS[key].match(data, start, end)):
                at = max(run.end(), start + 1)
                if at == start + 1:
                    raise Fault("a number is cut off or too long")
                yield key, start, at
            else:
                start, at = self._number_field(key, at, end)
                yield key, start, at

    def _number_field(self, key: int, at: int, end: int) -> tuple[int, int]:
        wire = key & 7
        if key < 8 or wire not in (0, 1, 5):
            raise Fault("its bytes are not a protobuf message")
        if wire == 0:
            return self.varint(at, end)
        stop = at + (8 if wire == 1 else 4)
        if stop > end:
            raise Fault("a number is cut off or too long")
        return at, stop

    def text(self, start: int, stop: int) -> str:
        return self.data[start:stop].decode("utf-8", "replace")

    def numbers(self, key: int, start: int, stop: int) -> tuple[int, ...]:
        """The signed numbers of a repeated field: packed, a run of single ones, or one."""
        if key & 7 == 0 and key not in _RUNS:
            return (signed(start),)
        if stop - start > 10_000:
            raise Fault("a list of dimensions is too long")
        found = []
        while start < stop:
            value, start = self.varint(start + (key & 7 == 0), stop)
            found.append(signed(value))
        return tuple(found)


def signed(value: int) -> int:
    """The int64 that a varint means."""
    return value - 2**64 if value > _INT64_MAX else value
