"""The folder of prepared models, which servers share.

    entries/CONTENT/    a prepared model, found by the digest of what it was made from
    known/FILE          the CONTENT of a file that was seen, by its path, size and times
    parts/              what is being written

An entry appears whole, by renaming, so one process may write while others read,
and one that dies leaves nothing half-written behind.
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

from workbench.backends.onnx.header import OnnxFile
from workbench.errors import LoadFailed
from workbench.nbytes import show_nbytes
from workbench.stamps import stamp

MODEL, WEIGHTS = "model.onnx", "weights.bin"

_MANIFEST = "entry.json"
_FORMAT = 4
_DISK_FACTOR = 2.1  # weights as they are, and packed
_SPARE_NBYTES = 1 << 30  # of the disk, for others
_STALE_S = 86400.0


class PreparedFolder:
    """The folder *path*, whose entries may take *limit_nbytes* together.

    Many may write into it, also from machines and containers that cannot see each other's
    processes. So what is not complete yet bears the name of its *writer*, from ``new_writer``.

    A *version* is one of ONNX Runtime, which may pack weights otherwise than the next.
    """

    def __init__(self, path: Path, limit_nbytes: int, writer: str = "") -> None:
        self._path = path
        self._writer = writer or new_writer()
        self._limit_nbytes = limit_nbytes

    def create(self) -> None:
        """Make the folder, which is this user's alone, if it is not there. Raises ``OSError``."""
        self._path.mkdir(parents=True, exist_ok=True, mode=0o700)

    def find(self, file: OnnxFile, version: str) -> Path | None:
        """The ONNX file that was prepared of *file*, as that is now, if there is one.

        Raises ``LoadFailed`` if it was touched since: the next to prepare it replaces it.
        """
        try:
            content = self._known(file_key(file, version)).read_text("ascii")
        except (OSError, UnicodeDecodeError):  # there is none, or none that can be read
            return None
        entry = self._entry(content)
        if not self.has(content):
            if content.isalnum() and entry.is_dir():
                raise LoadFailed("its files are not as they were written")
            return None
        with suppress(OSError):  # a folder that is only read keeps no order of use
            os.utime(entry / _MANIFEST)
        return entry / MODEL

    def has(self, content: str) -> bool:
        """Whether there is an entry of *content* that nobody touched since it was written."""
        if not (content.isalnum() and content.isascii()):
            return False
        entry = self._entry(content)
        try:
            wanted = json.loads((entry / _MANIFEST).read_text("utf-8"))
            return bool(wanted) and wanted == stamps_of(entry)
        except (OSError, ValueError, RecursionError):
            return False

    def drop(self, found: Path) -> None:
        """Remove the entry that *found* is of."""
        _remove(found.parent)

    def make_room(self, file: OnnxFile, now_s: float) -> str | None:
        """Remove the entries used longest ago until *file* fits; why it cannot, if so."""
        for part in self._all("parts"):
            if now_s - _changed_s(part) > _STALE_S:  # whoever wrote it is gone
                _remove(part)
        need_nbytes = int(file.weights_nbytes * _DISK_FACTOR)
        refusal = self._fit(need_nbytes)
        if refusal:
            return refusal
        free_nbytes = shutil.disk_usage(self._path).free
        if free_nbytes < 2 * need_nbytes + _SPARE_NBYTES:  # weights are moved once
            need, free = show_nbytes(need_nbytes), show_nbytes(free_nbytes)
            return f"it would take {need} of disk, {free} are free in {str(self._path)!r}"
        return None

    def clean(self, writer: str) -> None:
        """Remove what *writer*, which ended, had begun to write."""
        for part in self._all("parts"):
            if part.name.startswith(f"{writer}-"):
                _remove(part)

    def _fit(self, need_nbytes: int) -> str | None:
        """Remove the entries used longest ago until *need_nbytes* more fit; why they cannot."""
        if need_nbytes > self._limit_nbytes:
            need, limit = show_nbytes(need_nbytes), show_nbytes(self._limit_nbytes)
            return f"it would take {need} of disk, the setting cache allows {limit}"
        entries = sorted(self._all("entries"), key=lambda entry: _changed_s(entry / _MANIFEST))
        taken = sum(map(nbytes_of, entries))
        while entries and taken + need_nbytes > self._limit_nbytes:
            oldest = entries.pop(0)
            taken -= nbytes_of(oldest)
            _remove(oldest)
        for note in self._all("known"):
            with suppress(FileNotFoundError):  # another server removes it just now
                if not self.has(note.read_text("ascii", "replace")):
                    note.unlink()
        return None

    def write(self, content: str, fill: Callable[[Path], None]) -> int:
        """Have *fill* write into a folder, which becomes the entry of *content*; its bytes.

        Raises ``OSError``, ``LoadFailed``, and what *fill* raises: then there is no entry.
        """
        part = self._new_part()
        part.mkdir(parents=True, mode=0o700)
        try:
            fill(part)
            for path in part.iterdir():
                with path.open("rb") as file:  # else a crash leaves files that are long, and empty
                    os.fsync(file.fileno())
                path.chmod(0o400)  # to cut off what is mapped would end those who map it
            refusal = self._fit(nbytes_of(part))  # some weights take many times what was presumed
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
                    if not self.has(content):  # else another server was first
                        raise
        finally:
            _remove(part)
        return nbytes_of(entry)

    def note(self, key: str, content: str) -> None:
        """Note that the model file of that *key* holds that *content*."""
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
    """A name for one that writes, which nobody else has, on any machine."""
    return secrets.token_hex(8)


def file_key(file: OnnxFile, version: str) -> str:
    """A name for *file* as it is now, by its path, size and times, on this processor."""
    paths = (file.path, *file.external_files)
    return _digest(version, [(str(path.resolve()), *stamp(path)) for path in paths])


def content_key(file: OnnxFile, version: str) -> str:
    """A name for what is in *file*, wherever it lies; reads all of it."""
    digests = []
    for path in (file.path, *file.external_files):
        with path.open("rb") as opened:
            digests.append(hashlib.file_digest(opened, "sha256").hexdigest())
    return _digest(version, digests)


def processor_of(cpuinfo: str) -> str:
    """What Linux's *cpuinfo* says of the first processor's abilities, which packing goes by."""
    first = cpuinfo.split("\n\n", 1)[0].splitlines()
    told = ("flags", "Features", "CPU implementer", "CPU architecture", "CPU variant", "CPU part")
    return "\n".join(line for line in first if line.startswith(told))


@cache
def _processor() -> str:
    try:
        return processor_of(Path("/proc/cpuinfo").read_text("utf-8"))
    except OSError:
        return platform.processor()


def stamps_of(entry: Path) -> dict[str, list[int]]:
    """What changes when a file of *entry* does."""
    paths = sorted(path for path in entry.iterdir() if path.name != _MANIFEST)
    return {path.name: list(stamp(path)) for path in paths}


def _digest(version: str, of: object) -> str:
    parts = [_FORMAT, version, platform.machine(), _processor(), of]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def nbytes_of(entry: Path) -> int:
    """What the files of *entry* take of the disk."""
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
