"""Unpacking model.tar.gz: nothing is written outside its folder, nor more than it may hold."""

from __future__ import annotations

import errno
import gzip
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from workbench.annexes.sagemaker.errors import DiskFull
from workbench.errors import InvalidRequest, ServerNotRunning, line_of
from workbench.nbytes import show_nbytes

_MOST_MEMBERS = 100_000
_MOST_FOLDERS = 100  # around a file; what walks through folders calls itself for each
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
    name = archive.name
    try:
        folder.mkdir(parents=True)
        return _unpacked(archive, folder, stops)
    except ServerNotRunning:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _FULL:
            raise DiskFull(
                f"there is no room on the disk to unpack {name}: "
                "free some, or let TMPDIR be a folder of a larger disk"
            ) from error
        # tarfile, gzip and zlib raise many; RecursionError for a member with too many headers
        why = getattr(error, "strerror", None) or line_of(error) or type(error).__name__
        raise InvalidRequest(f"{name} is not unpacked: {why}") from error


def _unpacked(archive: Path, folder: Path, stops: Callable[[], bool]) -> int:
    limit, nbytes = max(_LEAST_LIMIT_NBYTES, _MOST_TIMES * archive.stat().st_size), 0
    too_large = InvalidRequest(
        f"it holds more than {show_nbytes(limit)} or {_MOST_MEMBERS} members, "
        "which is too much for a model of its size"
    )
    with gzip.open(archive) as packed:
        stream = _Limited(packed, limit, too_large, stops)
        with tarfile.open(fileobj=stream, mode="r|") as tar:  # type: ignore[call-overload]
            for number, member in enumerate(tar):
                if member.size < 0:  # it would make room for others below the limit
                    raise InvalidRequest(f"its member {member.name[:200]!r} has a size below 0")
                nbytes += member.size
                if number >= _MOST_MEMBERS or nbytes > limit:  # sparse files are in few bytes
                    raise too_large
                _write(tar, member, folder)
        while stream.read(2**20):  # up to the checksum
            pass
    return nbytes


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    path, told = PurePosixPath(member.name), f"its member {member.name[:200]!r}"
    if path.is_absolute() or ".." in path.parts or "\\" in member.name:
        raise InvalidRequest(f"{told} would be outside the model's folder")
    if len(path.parts) > _MOST_FOLDERS:
        raise InvalidRequest(f"{told} is in more than {_MOST_FOLDERS} folders")
    if member.isdir():
        (folder / path).mkdir(parents=True, exist_ok=True)
        return
    source = tar.extractfile(member) if member.isreg() else None
    if source is None:
        kind = "a link" if member.issym() or member.islnk() else "neither a file nor a folder"
        raise InvalidRequest(f"{told} is {kind}")
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    with (folder / path).open("wb") as target:
        shutil.copyfileobj(source, target, 2**20)


class _Limited:
    """A *stream* from which at most *limit* bytes are read, and none once it *stops*."""

    def __init__(
        self, stream: gzip.GzipFile, limit: int, error: Exception, stops: Callable[[], bool]
    ) -> None:
        self._stream = stream
        self._left = limit
        self._error = error
        self._stops = stops

    def read(self, nbytes: int) -> bytes:
        if self._stops():
            raise ServerNotRunning("the server is stopping")
        data = self._stream.read(min(nbytes, self._left + 1))
        self._left -= len(data)
        if self._left < 0:
            raise self._error
        return data
