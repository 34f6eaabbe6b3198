"""Traces: when some requests came, began to run and ended, in files of Triton's format.

A file is a JSON array. Each trace has an entry that says its model, and one for each timestamp,
in nanoseconds of the system's monotonic clock.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from workbench.errors import InvalidRequest
from workbench.model import ModelId

_log = logging.getLogger("workbench")

_KEPT = 1000  # traces, until they are written even if nothing else asks for it


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """Which requests are traced, and how often traces are written.

    If *timestamps* is set, one of *rate* requests is traced, until *most* were (-1: no limit). Each
    *log_frequency* traces get a file of their own (0: all go to one).
    """

    timestamps: bool = False
    rate: int = 1000
    most: int = -1
    log_frequency: int = 0


class WireTimes:
    """When a wire received a request, and when it sent the answer, for the request's trace.

    The wire sets it as the request's ``trace``. *received_s* are times of ``time.perf_counter``, by
    name.
    """

    def __init__(self, received_s: Mapping[str, float]) -> None:
        self.received_s = received_s
        self.trace: Trace | None = None  # that ended, if the request was traced and answered

    def sent(self, sent_s: Mapping[str, float]) -> None:
        """The answer is sent: add the times *sent_s* to the trace, and write it."""
        trace, self.trace = self.trace, None
        if trace is not None and trace.sampler is not None:
            trace.stamp(sent_s)
            trace.sampler.write(trace.entries)


class Trace:
    """A request that is traced, with the number *id*; *parent* is that of the ensemble around it.

    The traces of an ensemble and its steps, its *entries*, are written together, and not before
    the *wire* has sent the answer.
    """

    def __init__(
        self,
        number: int,
        sampler: _Sampler | None,
        parent: Trace | None = None,
        wire: WireTimes | None = None,
    ) -> None:
        self.id = number
        self.sampler = sampler
        self.parent = parent
        self.wire = wire
        self.entries: list[str] = parent.entries if parent else []

    def stamp(self, stamps_s: Mapping[str, float]) -> None:
        for name, at_s in stamps_s.items():
            stamp = {"name": name, "ns": int(at_s * 1e9)}
            self.entries.append(json.dumps({"id": self.id, "timestamps": [stamp]}))


_NONE = Trace(0, None)  # of a request that is not traced, nor are the steps in it


class Tracing:
    """Traces requests, as options of all models and of some say, to *path* and files beside it.

    *switch* is told whether there is anything to trace: itself, or ``None``. Safe from any thread.
    """

    def __init__(self, path: Path | None, switch: Callable[[Tracing | None], object]) -> None:
        self.path = path
        self.is_on = False  # whether some requests are traced; wires make ``WireTimes`` for all
        self._switch = switch
        self._lock = threading.Lock()
        self._numbers = count(1)
        self._given: dict[str, Mapping[str, object]] = {}  # by model; "" is all
        self._samplers: dict[str, _Sampler] = {}
        self._file = None if path is None else _TraceFile(path)

    def options(self, model: str = "") -> TraceOptions:
        """Those of *model*, or of all; *most* is how many are left."""
        with self._lock:
            sampler = self._samplers.get(model) or self._samplers.get("")
            return replace(sampler.options, most=sampler.left) if sampler else TraceOptions()

    def change(self, changes: Mapping[str, object], model: str = "") -> None:
        """Set options of *model*, or of all models that have none; ``None`` takes one back.

        Counting begins anew. Raises ``InvalidRequest`` if there is no file for the traces.
        """
        with self._lock:
            given = {**self._given.get(model, {}), **changes}
            given = {key: value for key, value in given.items() if value is not None}
            all_given = {**self._given, model: given}
            options = {name: _merged(all_given, name) for name in all_given if name == "" or given}
            for each in options.values():
                self._check(each)
            self._given = {name: value for name, value in all_given.items() if value}
            concerned = [model] if model else [*{"", *options}]
            left = [self._samplers.pop(name) for name in concerned if name in self._samplers]
            chosen = {n: _Sampler(options[n], self._file) for n in concerned if n in options}
            self._samplers.update(chosen)
            self._turn(any(each.options.timestamps for each in self._samplers.values()))
        for sampler in left:
            sampler.end()

    def follow(self, switch: Callable[[Tracing | None], object]) -> None:
        """Tell *switch* from now on, and at once."""
        with self._lock:
            self._switch = switch
            self._turn(self.is_on)

    def _turn(self, is_on: bool) -> None:
        """Trace from now on, or do not; under the lock."""
        self.is_on = is_on
        self._switch(self if is_on else None)

    def _check(self, options: TraceOptions) -> None:
        reason = ""
        if options.timestamps and not options.rate:
            reason = "sample rate must be non-zero"
        elif options.timestamps and self.path is None:
            reason = "trace file name is not given. Start the server with the setting trace_file"
        if reason:
            raise InvalidRequest(f"Attempting to set invalid trace setting :{reason}")

    def close(self) -> None:
        """Write what is left, and trace nothing more."""
        with self._lock:
            left, self._samplers, self._given = list(self._samplers.values()), {}, {}
            self._turn(False)
        for sampler in left:
            sampler.end()
        if self._file is not None:
            self._file.close()
            self._file = _TraceFile(self._file.path)  # if the server starts again

    # ── requests ──

    def begin(self, model: ModelId, parent: Trace | WireTimes | None) -> Trace:
        """The trace of a request for *model*: of a step of an ensemble, or one that a wire sent."""
        if isinstance(parent, Trace):
            return parent if parent is _NONE else Trace(next(self._numbers), None, parent)
        with self._lock:
            sampler = self._samplers.get(model.name) or self._samplers.get("")
            if sampler is None or not sampler.takes():
                return _NONE
            return Trace(next(self._numbers), sampler, wire=parent)

    def drop(self, trace: Trace) -> None:
        """The request of *trace* failed: another one is traced in its place."""
        with self._lock:
            if trace.sampler is not None:
                trace.sampler.give_back()

    def end(
        self,
        trace: Trace | WireTimes,
        model: ModelId,
        request_id: str,
        stamps_s: Mapping[str, float],
    ) -> None:
        """The request of *trace* was answered; *stamps_s* are of ``time.perf_counter``."""
        if trace is _NONE or isinstance(trace, WireTimes):  # it was not begun
            return
        named: dict[str, object] = {
            "id": trace.id, "model_name": model.name, "model_version": model.version
        }  # fmt: skip
        if request_id:
            named["request_id"] = request_id
        if trace.parent is not None:
            named["parent_id"] = trace.parent.id
        trace.entries.append(json.dumps(named))
        trace.stamp({**trace.wire.received_s, **stamps_s} if trace.wire else stamps_s)
        if trace.wire is not None:
            trace.wire.trace = trace
        elif trace.sampler is not None:
            trace.sampler.write(trace.entries)


def _merged(given: Mapping[str, Mapping[str, object]], model: str) -> TraceOptions:
    """The options of *model*: its own, else those of all, else the usual ones."""
    values = {**given.get("", {}), **given.get(model, {})}
    return TraceOptions(**values)  # type: ignore[arg-type]  # as the callers checked them


class _Sampler:
    """Chooses requests by *options*, and gathers their traces for *file*."""

    def __init__(self, options: TraceOptions, file: _TraceFile | None) -> None:
        self.options = options
        self.left = options.most
        self._file = file
        self._lock = threading.Lock()
        self._asked = self._begun = self._ended = self._waiting = 0
        self._is_over = False
        self._entries: list[str] = []

    def takes(self) -> bool:
        """Whether this request is traced. Called by one thread at a time."""
        if not self.options.timestamps or not self.left:
            return False
        self._asked += 1
        if self._asked % self.options.rate:
            return False
        self.left -= self.left > 0
        self._begun += 1
        return True

    def give_back(self) -> None:
        """A request that is traced failed. Called by one thread at a time, as ``takes``."""
        self.left += self.options.most >= 0
        self._begun -= 1

    def write(self, entries: list[str]) -> None:
        """Add the *entries* of a trace that ended, and write all if it is time for that."""
        every = self.options.log_frequency
        with self._lock:
            self._entries += entries
            self._ended += 1
            self._waiting += 1
            are_all = not self.left and self._ended == self._begun
            is_due = are_all or (every and self._waiting >= every) or self._waiting >= _KEPT
            is_due = is_due or self._is_over
        if is_due:
            self._flush(apart=are_all or bool(every))

    def end(self) -> None:
        """Take no more, and write what has gathered; a trace that ends later is written at once."""
        with self._lock:
            self._is_over = True
        self._flush(apart=self.options.log_frequency > 0)

    def _flush(self, *, apart: bool) -> None:
        """Write what has gathered; *apart*, in a file of its own."""
        with self._lock:
            entries, self._entries, self._waiting = self._entries, [], 0
        if entries and self._file is not None:
            self._file.write(entries, apart=apart)


class _TraceFile:
    """*path*, which is whole once it is closed, and files beside it: path.0, path.1 and so on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._is_closed = False
        self._lock = threading.Lock()
        self._apart = 0
        self._is_begun = False

    def write(self, entries: list[str], *, apart: bool) -> None:
        """Append *entries*, or write them *apart*. A file that cannot be written is logged."""
        text = ",\n".join(entries)
        with self._lock:
            if self._is_closed:  # an answer went out while the server stopped
                return
            if apart:
                path = self.path.with_name(f"{self.path.name}.{self._apart}")
                self._apart += 1
                _put(path, f"[{text}]\n", "w")
            else:
                mode, lead = ("a", ",\n") if self._is_begun else ("w", "[")
                _put(self.path, lead + text, mode)
                self._is_begun = True

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            if self._is_begun:
                _put(self.path, "]\n", "a")


def _put(path: Path, text: str, mode: str) -> None:
    try:
        with path.open(mode, encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        _log.error("traces cannot be written to %s: %s", path, error.strerror)
