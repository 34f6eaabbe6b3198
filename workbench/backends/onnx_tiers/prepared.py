"""Models that are kept on disk, optimized and packed for this processor, to load faster.

ONNX Runtime maps their weights instead of reading and copying them, so that they take page
cache instead of memory, and load 4 to 23 times faster (``benchmarks/life.py``). A model is
prepared in another process (``prepare``): it takes four times the model's memory and seconds of a
processor, and ONNX Runtime has crashed while doing it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from functools import partial
from pathlib import Path

from workbench.backends.onnx.header.file import OnnxFile
from workbench.backends.onnx_tiers.folder import PreparedFolder, file_key, nbytes_of, new_writer
from workbench.errors import LoadFailed, ThreadsExhausted
from workbench.events import EventLog, ModelNotPrepared, ModelPrepared
from workbench.host_memory import available_nbytes
from workbench.model import ModelId
from workbench.nbytes import show_nbytes
from workbench.threads import ThreadPool

_WORTHWHILE_NBYTES = 32 << 20  # a smaller model loads in about 50 ms
_RETURNS = 2  # loads after which a model is expected to be loaded again
_MEMORY_FACTOR = 4  # times the model's memory: to load it, write it, and compare answers
_TRIES = 3  # attempts to prepare a model, in the life of a server
_LONGEST_S = 60.0  # for the process that prepares a model, and more by its weights:
_NBYTES_A_SECOND = 10e6


class PreparedModels:
    """Finds prepared models in *folder*, and prepares models there, up to *limit_nbytes*."""

    def __init__(self, folder: Path, limit_nbytes: int, log: EventLog) -> None:
        self._path = folder
        self._limit_nbytes = limit_nbytes
        self._folder = PreparedFolder(folder, limit_nbytes)
        self._log = log
        self._loads: Counter[str] = Counter()
        self._tries: Counter[str] = Counter()
        self._asked: set[str] = set()  # keys of models that are to be prepared
        self._lock = threading.Lock()
        self._threads = ThreadPool(1, "workbench-prepare")
        self._process: subprocess.Popen[str] | None = None
        self._closed = False

    def find(self, model: ModelId, file: OnnxFile, version: str) -> tuple[Path, int] | None:
        """The prepared model of *file* in its present state, and its size; ``None`` without one."""
        try:
            found = self._folder.find(file, version)
        except LoadFailed as error:
            self._log.append(ModelNotPrepared(model, f"what was prepared is not used: {error}"))
            return None
        return None if found is None else (found, nbytes_of(found.parent))

    def drop(self, model: ModelId, found: Path, reason: str) -> None:
        """Remove the prepared model *found*, which does not load because of *reason*."""
        self._folder.drop(found)
        self._log.append(ModelNotPrepared(model, f"what was prepared is dropped: {reason}"))

    def loaded(self, model: ModelId, file: OnnxFile, version: str, *, wanted: bool) -> None:
        """Note a load of *file* itself; prepare it if *wanted*, or if it is large and loaded again.

        A model is tried three times at most: memory or disk may suffice the next time.
        """
        try:
            key = file_key(file, version)
        except OSError:  # the file is gone
            return
        with self._lock:
            self._loads[key] += 1
            returns = self._loads[key] >= _RETURNS and file.weights_nbytes >= _WORTHWHILE_NBYTES
            done = key in self._asked or self._tries[key] >= _TRIES
            if self._closed or done or not (wanted or returns):
                return
            self._asked.add(key)
            self._tries[key] += 1
            try:
                self._threads.submit(partial(self._prepare, model, file, version, key))
            except ThreadsExhausted:  # the next load tries again
                self._asked.discard(key)
                self._tries[key] -= 1

    def close(self) -> None:
        """Prepare no more models, and end the process that prepares one."""
        with self._lock:
            self._closed = True
            if self._process is not None:
                self._process.kill()
        self._threads.close(finish=False)

    def _prepare(self, model: ModelId, file: OnnxFile, version: str, key: str) -> None:
        try:
            figures = self._make(file, version)
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            if not self._closed:
                self._log.append(ModelNotPrepared(model, str(error)))
        else:
            with self._lock:
                self._tries[key] = 0
            self._log.append(ModelPrepared(model, int(figures["nbytes"]), figures["seconds"]))
        finally:
            with self._lock:
                self._asked.discard(key)

    def _make(self, file: OnnxFile, version: str) -> dict[str, float]:
        """Prepare *file* in another process; returns what it reports, "nbytes" and "seconds".

        Raises ``OSError``, ``ValueError``, ``TimeoutExpired``.
        """
        need_nbytes = _MEMORY_FACTOR * file.resident_nbytes
        if available_nbytes() < need_nbytes:
            raise ValueError(
                f"preparing it takes {show_nbytes(need_nbytes)} of memory, more than is free"
            )
        package = Path(__file__).parents[3]
        paths = [str(package), *filter(None, [os.environ.get("PYTHONPATH")])]
        # -P: otherwise Python would look for modules beside the notebook first
        command = [sys.executable, "-P", "-m", "workbench.backends.onnx_tiers.prepare"]
        command += [str(file.path), str(self._path), str(self._limit_nbytes)]
        command += [writer := new_writer(), version]
        with self._lock:
            if self._closed:
                raise ValueError("the server is stopping")
            process = subprocess.Popen(  # noqa: S603  # our own module
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
                # So that an interrupt of the notebook's kernel does not reach it.
                start_new_session=True,
            )
            self._process = process
        timeout_s = _LONGEST_S + file.weights_nbytes / _NBYTES_A_SECOND
        try:
            with process:
                try:
                    printed, errors = process.communicate(timeout=timeout_s)
                finally:
                    process.kill()
        finally:
            with self._lock:
                self._process = None
            self._folder.clean(writer)
        if process.returncode:
            silent = f"the process that prepares it ended with {process.returncode}"
            lines = errors.strip().splitlines() or [silent]
            raise ValueError(lines[-1])
        figures: dict[str, float] = json.loads((printed.splitlines() or [""])[-1])
        return figures
