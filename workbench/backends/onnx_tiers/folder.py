"""The folder of prepared models, which servers share.

    entries/CONTENT/    a prepared model, named by the digest of the original's content
    known/FILE          the CONTENT of a model file; FILE is made of its path, size and times
    parts/              entries that are being written

An entry appears whole, by renaming, so one process may write while others read,
and a process that ends while it writes leaves no incomplete entry.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import secrets
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

from workbench.backends.onnx.header.file import OnnxFile
from workbench.errors import LoadFailed
from workbench.nbytes import show_nbytes
from workbench.stamps import stamp

MODEL, WEIGHTS = "model.onnx", "weights.bin"

_MANIFEST = "entry.json"
_FORMAT = 5
_DISK_FACTOR = 2.1  # an entry has the weights twice: as they are, and packed
_DISK_SHARE = 10  # entries take at most this part of the disk space that would be free without them
_STALE_S = 86400.0


class PreparedFolder:
    """The folder *path*, whose entries take at most *limit_nbytes*, and a tenth of the free disk.

    Several servers may write to it at once, also from machines and containers that cannot see
    each other's processes. So an incomplete entry has the name of its *writer* (``new_writer``).

    A *version* is that of ONNX Runtime: another version may pack weights in another way.
    """

    def __init__(self, path: Path, limit_nbytes: int, writer: str = "") -> None:
        self._path = path
        self._writer = writer or new_writer()
        self._limit_nbytes = limit_nbytes

    def create(self) -> None:
        """Make the folder, readable by this user only, unless it exists. Raises ``OSError``."""
        self._path.mkdir(parents=True, exist_ok=True, mode=0o700)

    def find(self, file: OnnxFile, version: str) -> Path | None:
        """The prepared model of *file* in its present state; ``None`` if there is none.

        Raises ``LoadFailed`` if the entry was changed since it was written.
        """
        try:
            content = self._known(file_key(file, version)).read_text("ascii")
        except (OSError, UnicodeDecodeError):  # there is no entry, or it cannot be read
            return None
        entry = self._entry(content)
        if not self.has(content):
            if content.isalnum() and entry.is_dir():
                raise LoadFailed("its files are not as they were written")
            return None
        with suppress(OSError):  # in a read-only folder the order of use is not kept
            os.utime(entry / _MANIFEST)
        return entry / MODEL

    def has(self, content: str) -> bool:
        """True if there is an entry of *content*, unchanged since it was written."""
        if not (content.isalnum() and content.isascii()):
            return False
        entry = self._entry(content)
        try:
            wanted = json.loads((entry / _MANIFEST).read_text("utf-8"))
            return bool(wanted) and wanted == stamps_of(entry)
        except (OSError, ValueError, RecursionError):
            return False

    def drop(self, found: Path) -> None:
        """Remove the entry of the prepared model *found*."""
        _remove(found.parent)

    def make_room(self, file: OnnxFile, now_s: float) -> str | None:
        """Remove the least recently used entries until *file* fits; the reason if it cannot.

        Incomplete entries that were begun a day ago are removed first: their writers have ended.
        """
        for part in self._all("parts"):
            if now_s - _changed_s(part) > _STALE_S:
                _remove(part)
        return self._fit(int(file.weights_nbytes * _DISK_FACTOR))

    def clean(self, writer: str) -> None:
        """Remove the incomplete entries of *writer*, which has ended."""
        for part in self._all("parts"):
            if part.name.startswith(f"{writer}-"):
                _remove(part)

    def _fit(self, need_nbytes: int, written_nbytes: int = 0) -> str | None:
        """Remove the least recently used entries until *need_nbytes* fit.

        *written_nbytes* of them are on the disk already. Returns the reason if they cannot fit.
        """
        entries = sorted(self._all("entries"), key=lambda entry: _changed_s(entry / _MANIFEST))
        taken_nbytes = sum(map(nbytes_of, entries))
        free_nbytes = shutil.disk_usage(self._path).free + taken_nbytes + written_nbytes
        limit_nbytes = min(self._limit_nbytes, free_nbytes // _DISK_SHARE)
        if need_nbytes > limit_nbytes:
            limited = limit_nbytes < self._limit_nbytes
            limit = "a tenth of the free disk is" if limited else "the setting cache allows"
            need = show_nbytes(need_nbytes)
            return f"it would take {need} of disk, {limit} {show_nbytes(limit_nbytes)}"
        while entries and taken_nbytes + need_nbytes > limit_nbytes:
            oldest = entries.pop(0)
            taken_nbytes -= nbytes_of(oldest)
            _remove(oldest)
        for note in self._all("known"):
            with suppress(FileNotFoundError):  # another server is removing it
                if not self.has(note.read_text("ascii", "replace")):
                    note.unlink()
        return None

    def write(self, content: str, fill: Callable[[Path], None]) -> int:
        """Make the entry of *content*: *fill* is called with an empty folder. Returns its size.

        Raises ``OSError``, ``LoadFailed``, and any error of *fill*; no entry is made then.
        """
        part = self._new_part()
        part.mkdir(parents=True, mode=0o700)
        try:
            fill(part)
            for path in part.iterdir():
                # Otherwise the file may contain zeros after a crash of the machine.
                with path.open("rb") as file:
                    os.fsync(file.fileno())
                path.chmod(0o400)  # truncating a mapped file would end the processes that map it
            part_nbytes = nbytes_of(part)  # packed weights may take more than was estimated
            refusal = self._fit(part_nbytes, written_nbytes=part_nbytes)
            if refusal:
                raise LoadFailed(refusal)
            (part / _MANIFEST).write_text(json.dumps(stamps_of(part)), "utf-8")
            entry = self._entry(content)
            entry.parent.mkdir(exist_ok=True)
            if not self.has(content):
                _remove(entry)
                try:
                    part.rename(entry)
                except OSError:
                    # Otherwise another server has written the same entry meanwhile.
                    if not self.has(content):
                        raise
        finally:
            _remove(part)
        return nbytes_of(entry)

    def note(self, key: str, content: str) -> None:
        """Record that the model file of *key* has this *content*."""
        part = self._new_part()
        for folder in (part.parent, self._known(key).parent):
            folder.mkdir(parents=True, exist_ok=True)
        part.write_text(content, "ascii")
        part.replace(self._known(key))

    def _entry(self, content: str) -> Path:
        return self._path / "entries" / content

    def _known(self, key: str) -> Path:
        return self._path / "known" / key

    def _new_part(self) -> Path:
        return self._path / "parts" / f"{self._writer}-{secrets.token_hex(4)}"

    def _all(self, kind: str) -> list[Path]:
        return list((self._path / kind).glob("*"))


def new_writer() -> str:
    """A name for a writer that no other writer has, on any machine."""
    return secrets.token_hex(8)


def file_key(file: OnnxFile, version: str) -> str:
    """A name for *file* as it is now, by its path, size and times, on this processor."""
    paths = (file.path, *file.external_files)
    return _digest(version, [(str(path.resolve()), *stamp(path)) for path in paths])


def content_key(file: OnnxFile, version: str) -> str:
    """A name for the content of *file*, the same for copies of it; reads all of it."""
    digests = []
    for path in (file.path, *file.external_files):
        with path.open("rb") as opened:
            digests.append(hashlib.file_digest(opened, "sha256").hexdigest())
    return _digest(version, digests)


def processor_of(cpuinfo: str) -> str:
    """The lines of Linux's *cpuinfo* that decide how the first processor packs weights."""
    first = cpuinfo.split("\n\n", 1)[0].splitlines()
    named = ("flags", "Features", "CPU implementer", "CPU architecture", "CPU variant", "CPU part")
    return "\n".join(line for line in first if line.startswith(named))


@cache
def _processor() -> str:
    try:
        return processor_of(Path("/proc/cpuinfo").read_text("utf-8"))
    except OSError:
        return platform.processor()


def stamps_of(entry: Path) -> dict[str, list[int]]:
    """Size, times and inode number of each file in *entry*; they change if a file does."""
    paths = sorted(path for path in entry.iterdir() if path.name != _MANIFEST)
    return {path.name: list(stamp(path)) for path in paths}


def _digest(version: str, of: object) -> str:
    parts = [_FORMAT, version, platform.machine(), _processor(), of]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def nbytes_of(entry: Path) -> int:
    """The size on disk of the files in *entry*."""
    total = 0
    for path in entry.glob("*"):
        with suppress(FileNotFoundError):  # another server removes it just now
            total += path.stat().st_size
    return total


def _changed_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
