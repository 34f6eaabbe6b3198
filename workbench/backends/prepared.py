"""Models made ready to be loaded again: optimised and packed for this processor, on disk.

What is here was made from a model by ``prepare``, in a process of its own. ONNX
Runtime maps such weights instead of reading, copying and packing them, so that
they take page cache instead of memory, and loads in a fraction of the time.

    entries/CONTENT/    a prepared model, found by the digest of what it was made from
    known/FILE          the CONTENT of a file that was seen: by path, size and times
    parts/              what is being written

An entry appears whole, by renaming, so servers may share the folder, and one that
dies leaves nothing half-written behind.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import secrets
import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache, partial
from pathlib import Path

import psutil

from workbench.backends.onnx_file import OnnxFile, stamp
from workbench.events import EventLog, ModelNotPrepared, ModelPrepared
from workbench.model import ModelId
from workbench.nbytes import show_nbytes
from workbench.threads import ThreadPool

MODEL, WEIGHTS, MANIFEST = "model.onnx", "weights.bin", "entry.json"

_FORMAT = 1
_WORTHWHILE_NBYTES = 32 << 20  # a smaller model loads in some 50 ms anyway
_RETURNS = 2  # loads after which a model is taken for one that returns
_DISK_FACTOR = 2.1  # weights as they are, and packed
_MEMORY_FACTOR = 4  # of what the model holds: to load it, and to write it out
_SPARE_NBYTES = 1 << 30  # of the disk, for others
_STALE_S = 86400.0


class PreparedModels:
    """The prepared models in *folder*, which take up to *limit_nbytes* of disk.

    A *runtime* is a version of ONNX Runtime: the next may pack otherwise.
    """

    def __init__(self, folder: Path, limit_nbytes: int, log: EventLog) -> None:
        self._folder = folder
        self._limit_nbytes = limit_nbytes
        self._log = log
        self._loads: Counter[str] = Counter()
        self._asked: set[str] = set()
        self._lock = threading.Lock()
        self._threads = ThreadPool(1, "workbench-prepare")
        self._process: subprocess.Popen[str] | None = None
        self._closed = False

    def find(self, file: OnnxFile, runtime: str) -> Path | None:
        """The ONNX file that was prepared of *file*, as that is now, if there is one."""
        try:
            content = known(self._folder, file_key(file, runtime)).read_text("ascii")
            entry = self._folder / "entries" / content
            if not is_whole(entry):
                return None
            os.utime(entry / MANIFEST)
        except (OSError, UnicodeDecodeError):  # there is none, or none that can be read
            return None
        return entry / MODEL

    def drop(self, model: ModelId, found: Path, reason: str) -> None:
        """What was *found* for *model* does not load: it goes."""
        shutil.rmtree(found.parent, ignore_errors=True)
        self._log.append(ModelNotPrepared(model, f"what was prepared is dropped: {reason}"))

    def loaded(self, model: ModelId, file: OnnxFile, runtime: str, *, wanted: bool) -> None:
        """*file* was loaded the slow way: prepare it if it is *wanted*, or large and returns."""
        try:
            key = file_key(file, runtime)
        except OSError:  # it is gone already
            return
        with self._lock:
            self._loads[key] += 1
            returns = self._loads[key] >= _RETURNS and file.weights_nbytes >= _WORTHWHILE_NBYTES
            if self._closed or key in self._asked or not (wanted or returns):
                return
            self._asked.add(key)
            self._threads.submit(partial(self._prepare, model, file, runtime))

    def close(self) -> None:
        """Prepare nothing more; what is under way is given up."""
        with self._lock:
            self._closed = True
            if self._process is not None:
                self._process.kill()
        self._threads.close(cancel=True)

    def _prepare(self, model: ModelId, file: OnnxFile, runtime: str) -> None:
        try:
            told = self._run(file, runtime)
        except _NotNow as reason:
            if not self._closed:
                self._log.append(ModelNotPrepared(model, str(reason)))
        else:
            self._log.append(ModelPrepared(model, int(told["nbytes"]), told["seconds"]))

    def _run(self, file: OnnxFile, runtime: str) -> dict[str, float]:
        """Prepare *file* in another process; what that said. Raises ``_NotNow``."""
        need_nbytes = _MEMORY_FACTOR * file.resident_nbytes
        if psutil.virtual_memory().available < need_nbytes:
            raise _NotNow(f"that would take {show_nbytes(need_nbytes)} of memory for a moment")
        package = Path(__file__).parent.parent.parent
        paths = [str(package), *filter(None, [os.environ.get("PYTHONPATH")])]
        command = [sys.executable, "-m", "workbench.backends.prepare"]
        command += [str(file.path), str(self._folder), str(self._limit_nbytes), runtime]
        with self._lock:
            if self._closed:
                raise _NotNow("the server is stopping")
            self._process = subprocess.Popen(  # noqa: S603  # our own module
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
            )
        said, complained = self._process.communicate()
        if self._process.returncode:
            silent = f"the process ended with {self._process.returncode}"
            lines = complained.strip().splitlines() or [silent]
            raise _NotNow(lines[-1])
        told: dict[str, float] = json.loads(said)
        return told


class _NotNow(Exception):
    """Why a model is not prepared."""


# ── what both processes know ──


def known(folder: Path, key: str) -> Path:
    """The file that tells the content of the model file of that *key*."""
    return folder / "known" / key


def file_key(file: OnnxFile, runtime: str) -> str:
    """A name for *file* as it is now, by its path, size and times, on this processor."""
    paths = (file.path, *file.external_files)
    stamps = [(str(path.resolve()), *stamp(path)) for path in paths]
    return _digest(json.dumps([_FORMAT, runtime, processor(), stamps]).encode())


def content_key(file: OnnxFile, runtime: str) -> str:
    """A name for what is in *file*, wherever it lies; reads all of it."""
    digests = []
    for path in (file.path, *file.external_files):
        with path.open("rb") as opened:
            digests.append(hashlib.file_digest(opened, "sha256").hexdigest())
    return _digest(json.dumps([_FORMAT, runtime, processor(), digests]).encode())


@cache
def processor() -> str:
    """What is packed for one processor is not for another."""
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    lines = [line for line in text.split("\n\n", 1)[0].splitlines() if line.startswith("flags")]
    return f"{platform.machine()} {_digest(''.join(lines).encode())}"


def is_whole(entry: Path) -> bool:
    """Whether nobody touched the files of *entry* since they were written."""
    try:
        wanted = json.loads((entry / MANIFEST).read_text("utf-8"))
        return bool(wanted) and wanted == _stamps(entry)
    except (OSError, ValueError):
        return False


def write_entry(folder: Path, content: str, write: Callable[[Path], None]) -> int:
    """Have *write* fill a folder, which becomes the entry of *content*; its bytes."""
    part = folder / "parts" / f"{os.getpid()}-{secrets.token_hex(4)}"
    part.mkdir(parents=True, mode=0o700)
    try:
        write(part)
        for path in part.iterdir():
            with path.open("rb") as file:  # else a crash leaves files of the right size, but empty
                os.fsync(file.fileno())
        (part / MANIFEST).write_text(json.dumps(_stamps(part)), "utf-8")
        entry = folder / "entries" / content
        entry.parent.mkdir(exist_ok=True)
        if not is_whole(entry):
            shutil.rmtree(entry, ignore_errors=True)
            part.rename(entry)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return _nbytes(entry)


def write_known(folder: Path, key: str, content: str) -> None:
    """Note that the model file of that *key* holds that *content*."""
    path = known(folder, key)
    path.parent.mkdir(exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}.part")
    part.write_text(content, "ascii")
    part.replace(path)


def make_room(folder: Path, need_nbytes: int, limit_nbytes: int, now_s: float) -> str | None:
    """Remove the entries used longest ago until *need_nbytes* fit; why they cannot, if so."""
    for part in (folder / "parts").glob("*"):
        if now_s - part.stat().st_mtime > _STALE_S:
            shutil.rmtree(part, ignore_errors=True)
    if need_nbytes > limit_nbytes:
        need, limit = show_nbytes(need_nbytes), show_nbytes(limit_nbytes)
        return f"it would take {need} of disk, the setting cache allows {limit}"
    entries = sorted((folder / "entries").glob("*"), key=_used_s)
    taken = sum(map(_nbytes, entries))
    while entries and taken + need_nbytes > limit_nbytes:
        oldest = entries.pop(0)
        taken -= _nbytes(oldest)
        shutil.rmtree(oldest, ignore_errors=True)
    free_nbytes = shutil.disk_usage(folder).free
    if free_nbytes < need_nbytes + _SPARE_NBYTES:
        need, free = show_nbytes(need_nbytes), show_nbytes(free_nbytes)
        return f"it would take {need} of disk, {free} are free in {str(folder)!r}"
    return None


def disk_nbytes(file: OnnxFile) -> int:
    """What *file* takes of the disk once it is prepared, about."""
    return int(file.weights_nbytes * _DISK_FACTOR)


def _stamps(entry: Path) -> dict[str, list[int]]:
    paths: Iterable[Path] = sorted(path for path in entry.iterdir() if path.name != MANIFEST)
    return {path.name: [path.stat().st_size, path.stat().st_mtime_ns] for path in paths}


def _nbytes(entry: Path) -> int:
    return sum(path.stat().st_size for path in entry.glob("*"))


def _used_s(entry: Path) -> float:
    try:
        return (entry / MANIFEST).stat().st_mtime
    except OSError:
        return 0.0


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]
