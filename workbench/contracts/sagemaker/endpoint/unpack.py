"""Unpacking model.tar.gz: nothing is written outside its folder, nor more than it may hold."""

from __future__ import annotations

import errno
import gzip
import shutil
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from workbench.contracts.sagemaker.errors import DiskFull
from workbench.errors import InvalidRequest, ServerNotRunning, line_of
from workbench.nbytes import show_nbytes

_MOST_MEMBERS = 100_000
_MOST_FOLDERS = 100  # around a file; what walks through folders calls itself for each
_MOST_HEADER_NBYTES = 2**20  # of a member, which tarfile holds in memory
_LEAST_LIMIT_NBYTES = 2**26  # whatever the size of the archive
_MOST_TIMES = 100  # how much larger it may become; weights compress much less
_FULL = (errno.ENOSPC, errno.EDQUOT)

PACKING = "write it with workbench pack, or tar -C FOLDER -czf model.tar.gz ."
"""The cure for an archive that is not unpacked."""


def unpack(archive: Path, folder: Path, stops: Callable[[], bool] = lambda: False) -> int:
    """Write the members of *archive*, a gzipped tar file, into the new *folder*; their bytes.

    If that fails, what was written until then stays. Raises ``InvalidRequest`` for an archive that
    is broken, that is much larger than its file, or that has members outside it, links or devices;
    ``DiskFull``; ``ServerNotRunning`` once *stops* says that the server is to stop.
    """
    try:
        folder.mkdir(parents=True)
        return _unpacked(archive, folder, stops)
    except Exception as error:
        raise _explained(error, archive) from error


def _unpacked(archive: Path, folder: Path, stops: Callable[[], bool]) -> int:
    limit = max(_LEAST_LIMIT_NBYTES, _MOST_TIMES * archive.stat().st_size)
    nbytes = 0
    with gzip.open(archive) as packed:
        stream = _Limited(packed, limit, stops)
        with tarfile.open(fileobj=stream, mode="r|") as tar:  # type: ignore[call-overload]
            for number, member in enumerate(tar):
                if member.size < 0:  # it would make room for others below the limit
                    raise InvalidRequest(f"its member {member.name[:200]!r} has a size below 0")
                nbytes += member.size
                if number >= _MOST_MEMBERS or nbytes > limit:  # sparse files are in few bytes
                    raise stream.too_large()
                stream.header_left = limit  # what is read now is the member's content
                _write(tar, member, folder)
                stream.header_left = _MOST_HEADER_NBYTES
        stream.header_left = limit
        while stream.read(2**20):  # up to the checksum
            pass
    return nbytes


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or "\\" in member.name:
        raise InvalidRequest(
            f"its member {member.name[:200]!r} would be outside the model's folder"
        )
    if len(path.parts) > _MOST_FOLDERS:
        raise InvalidRequest(
            f"its member {member.name[:200]!r} is in more than {_MOST_FOLDERS} folders"
        )
    if member.isdir():
        (folder / path).mkdir(parents=True, exist_ok=True)
        return
    source = tar.extractfile(member) if member.isreg() else None
    if source is None:
        kind = "a link" if member.issym() or member.islnk() else "neither a file nor a folder"
        raise InvalidRequest(f"its member {member.name[:200]!r} is {kind}")
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    with (folder / path).open("wb") as target:
        shutil.copyfileobj(source, target, 2**20)


class _Limited:
    """A *stream* from which at most *limit* bytes can be read, and *header_left* of a header.

    Nothing more is read once it *stops*.
    """

    def __init__(self, stream: gzip.GzipFile, limit: int, stops: Callable[[], bool]) -> None:
        self._stream = stream
        self._stops = stops
        self._limit = limit
        self._left = limit
        self.header_left = _MOST_HEADER_NBYTES

    def read(self, nbytes: int) -> bytes:
        if self._stops():
            raise ServerNotRunning("the server is stopping")
        data = self._stream.read(min(nbytes, self._left + 1))
        self._left -= len(data)
        if self._left < 0:
            raise self.too_large()
        self.header_left -= len(data)
        if self.header_left < 0:
            raise InvalidRequest(
                f"a member has headers of more than {show_nbytes(_MOST_HEADER_NBYTES)}"
            )
        return data

    def too_large(self) -> InvalidRequest:
        return InvalidRequest(
            f"it holds more than {show_nbytes(self._limit)} or {_MOST_MEMBERS} members, "
            "which is too much for a model of its size"
        )


def _explained(error: Exception, archive: Path) -> Exception:
    name = archive.name
    if isinstance(error, OSError) and error.errno in _FULL:
        return DiskFull(
            f"there is no room on the disk to unpack {name}: "
            "free some, or let TMPDIR be a folder of a larger disk"
        )
    if isinstance(error, tarfile.TarError | EOFError | zlib.error | gzip.BadGzipFile):
        why = line_of(error) or type(error).__name__
        return InvalidRequest(f"{name} is not a tar.gz file, or it is truncated: {why}")
    if isinstance(error, RecursionError):  # of tarfile, which calls itself for each of them
        return InvalidRequest(f"{name} is not unpacked: a member has too many headers")
    if isinstance(error, InvalidRequest | OSError | ValueError):
        # also names that are too long, and files where folders are
        why = getattr(error, "strerror", None) or str(error)
        return InvalidRequest(f"{name} is not unpacked: {why}")
    return error
