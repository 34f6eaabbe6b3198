"""Numpy's own files: npy and npz. A pickle in one is refused, and never opened."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
from numpy.lib import format as npy

from workbench.codecs import v2_json
from workbench.errors import InvalidRequest, RequestTooLarge, WorkbenchError, line_of
from workbench.nbytes import show_nbytes
from workbench.tensor import Array, Tensor

_MOST_HEADER = 10_000  # characters, as numpy has it
_BOUNDED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # of others zipfile unpacks all at once


@contextmanager
def _reading(kind: str) -> Iterator[None]:
    """Whatever goes wrong meanwhile is the body's fault: numpy and zipfile raise anything."""
    try:
        yield
    except WorkbenchError:
        raise
    except Exception as error:
        told = line_of(error) or type(error).__name__
        raise InvalidRequest(f"the body is not an {kind} file: {told}") from None


def read_npy(body: bytes) -> Array:
    """The array in *body*: a view of it. Raises ``InvalidRequest``."""
    with _reading("npy"):
        file = io.BytesIO(body[: _MOST_HEADER + 16])
        version = npy.read_magic(file)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, is_fortran, dtype = read(file, max_header_size=_MOST_HEADER)
        if dtype.hasobject:
            raise InvalidRequest("the npy file holds Python objects, which are pickles: not opened")
        data = memoryview(body)[file.tell() :]
        array = np.frombuffer(data, dtype) if data else np.empty(0, dtype)
        return array.reshape(shape, order="F" if is_fortran else "C")


def read_npz(body: bytes, limit_nbytes: int) -> dict[str, Array]:
    """The arrays in *body* by name.

    Raises ``InvalidRequest``, and ``RequestTooLarge`` for more than *limit_nbytes* of arrays.
    """
    with _reading("npz"), zipfile.ZipFile(io.BytesIO(body)) as archive:
        members = archive.infolist()
        if any(member.compress_type not in _BOUNDED for member in members):
            raise InvalidRequest("the npz file has a compression that is not numpy's")
        nbytes = sum(member.file_size for member in members)
        if nbytes > limit_nbytes:
            raise RequestTooLarge(
                f"the body holds arrays of {show_nbytes(nbytes)}, over "
                f"{show_nbytes(limit_nbytes)}, the setting max_request"
            )
        arrays = {m.filename.removesuffix(".npy"): read_npy(_content(archive, m)) for m in members}
    if not arrays:
        raise InvalidRequest("the npz file holds no array")
    if {"indptr", "indices", "format"} <= arrays.keys():
        raise InvalidRequest("a sparse matrix is not read: send matrix.toarray()")
    return arrays


def _content(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """No more than *member* says that it has: without a size zipfile unpacks all there is."""
    with archive.open(member) as file:
        return file.read(member.file_size)


def write_npy(name: str, tensor: Tensor) -> bytes:
    """An npy file; BYTES are text. Raises ``InvalidRequest`` for BYTES that are not UTF-8."""
    array = tensor.array
    if tensor.datatype == "BYTES":
        array = np.array(v2_json.encode(name, tensor), np.str_).reshape(tensor.shape)
    elif tensor.datatype == "BF16":
        array = np.asarray(v2_json.encode(name, tensor)).reshape(tensor.shape)
    file = io.BytesIO()
    npy.write_array(file, array, allow_pickle=False)
    return file.getvalue()


def write_npz(outputs: Mapping[str, Tensor]) -> bytes:
    """An npz file of all *outputs* by name. Raises as ``write_npy``."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, tensor in outputs.items():
            archive.writestr(f"{name}.npy", write_npy(name, tensor))
    return file.getvalue()
