"""Watching a repository: new and changed models are loaded, removed ones are unloaded."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from workbench.core.lifecycle.loads import Loads
from workbench.errors import RepositoryError, ServerNotRunning, ThreadsExhausted, WorkbenchError
from workbench.repository import ModelRepository
from workbench.repository.folder import Fingerprint
from workbench.threads import Ticker

_log = logging.getLogger("workbench")

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0
_LEISURE = 10  # the pause after a look is at least so many times as long as the look


@dataclass(slots=True)
class _Watched:
    """One model: its files as last *seen*, and as last loaded (*done*)."""

    seen: Fingerprint | None = None
    done: Fingerprint | None = None
    busy: bool = False
    again_s: float = float("inf")  # when to try again after a failed load
    pause_s: float = _FIRST_PAUSE_S


@dataclass(slots=True)
class Watcher:
    """Looks at *repository*; *loads* load and unload models, in threads that *submit* finds.

    Files that are still being written differ from one look to the next, so a change is acted upon
    only if two looks see the same. A model that fails to load delays no others. It is tried again
    when it changes, or after a pause that doubles up to a minute.
    """

    repository: ModelRepository
    loads: Loads
    submit: Callable[[Callable[[], object]], object]
    clock: Callable[[], float] = time.monotonic
    _models: dict[str, _Watched] = field(default_factory=dict, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _ticker: Ticker | None = field(default=None, init=False)
    _closed: bool = field(default=False, init=False)

    def begin(self) -> None:
        """Take all models that are there now as loaded."""
        for name, files in self.repository.fingerprints().items():
            self._models[name] = _Watched(files, files)

    def start(self, every_s: float, broken: Collection[str] = ()) -> None:
        """Look every *every_s* in a daemon thread; *broken* models are tried again.

        Does nothing once closed.
        """
        for name in broken:
            if name in self._models:
                self._models[name].again_s = self.clock() + _FIRST_PAUSE_S
        with self._lock:
            if not self._closed:
                self._ticker = Ticker("workbench-watch", partial(self._tick, every_s), every_s)
                self._ticker.wake()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._ticker is not None:
                self._ticker.end()

    def look(self) -> None:
        """Look once, and begin the loads and unloads that follow from it."""
        loaded = self.loads.of_files()  # first: the look will see the files of all of these
        try:
            there = self.repository.fingerprints()
        except RepositoryError as error:  # it may be readable again later
            _log.warning("the repository cannot be watched: %s", error)
            return
        now_s = self.clock()
        with self._lock:
            for name in loaded.difference(self._models):  # a request loaded it between two looks
                self._models[name] = _Watched(done=())
            for name in {*there, *self._models}:
                known = self._models.setdefault(name, _Watched())
                files = there.get(name)
                settled, known.seen = files == known.seen, files
                changed = files != known.done or known.again_s <= now_s
                if files is None and known.done is None and not known.busy:
                    del self._models[name]  # it was removed before it was loaded
                elif settled and changed and not known.busy:
                    with suppress(ThreadsExhausted, ServerNotRunning):  # the next look tries again
                        self.submit(partial(self._act, name, files))
                        known.busy = True

    def _act(self, name: str, files: Fingerprint | None) -> None:
        error: Exception | None = None
        try:
            if files is None:
                self.loads.unload(name, None)
            else:
                self.loads.load_all(name)
        except Exception as failure:
            if not isinstance(failure, WorkbenchError):
                _log.exception("watching %s failed; this is a bug in the workbench", name)
            error = failure
        with self._lock:
            known = self._models[name]
            known.busy, known.done, known.again_s = False, files, float("inf")
            if files is None:
                del self._models[name]
            elif error is None:
                known.pause_s = _FIRST_PAUSE_S
            else:
                known.again_s = self.clock() + known.pause_s
                known.pause_s = min(2 * known.pause_s, _LONGEST_PAUSE_S)
        if error is not None and files is not None:
            _log.warning("model %s, whose files changed, is not loaded: %s", name, error)

    def _tick(self, every_s: float) -> float:
        begun_s = time.monotonic()
        try:
            self.look()
        except Exception:
            _log.exception("a look at the repository failed; this is a bug in the workbench")
        return max(every_s, _LEISURE * (time.monotonic() - begun_s))
