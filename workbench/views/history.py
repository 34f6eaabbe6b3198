"""The last minutes of a server, kept from snapshot to snapshot: memory, rates, latencies."""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import add, attrgetter, sub
from typing import NamedTuple

from workbench.core.status.snapshot import DeviceStatus, ModelStatus, Snapshot
from workbench.events import Entry, ModelLoaded, ModelUnloaded
from workbench.model import ModelId
from workbench.statistics import BUCKETS_S, RequestCounts, quantile_s
from workbench.views.colours import number_colour

WINDOW_S = 300.0
"""How much of the past is kept, in seconds."""

_STEP_S = 1.0  # between two kept samples, unless the memory of the models changes
_STILL_S = 3.0  # between two kept samples while memory stays: three pixels of five minutes
_FINE = 100  # a part of the budget that is hardly seen
_GAP_S = 30.0  # between two samples, after which the events must say what was in between
_RATE_S = 5.0  # a rate is that of the last seconds
MINUTE_S = 60.0  # a p99 and failures are those of the last minute
_NAMED = 10  # models of a device that have an area of their own
_BARS = 30  # of a sparkline
_NONE = (0,) * (len(BUCKETS_S) + 1)


@dataclass(frozen=True, slots=True)
class DeviceSample:
    """The memory of one device at *at_s* (Unix seconds), in bytes.

    *held* is that of the largest models, *models_nbytes* that of all, *other_nbytes* what belongs
    to no model; 0 if that is unknown.
    """

    at_s: float
    held: Mapping[str, int]
    models_nbytes: int
    other_nbytes: int


@dataclass(frozen=True, slots=True)
class Traffic:
    """The requests of one model, or of all: per second of the last seconds, and their p99.

    *p99_s* is of those of the last minute that succeeded, 0.0 if none did; *failed*: how many of
    that minute failed. *recent* is the number of requests in
    each of the last steps of ten seconds, oldest first.
    """

    rate: float = 0.0
    p99_s: float = 0.0
    recent: tuple[int, ...] = ()
    failed: int = 0


NO_TRAFFIC = Traffic()


class _Count(NamedTuple):
    """How many requests ended until *at_s*, how many well, and the histogram of those."""

    at_s: float
    ended: int
    succeeded: int
    buckets: tuple[int, ...]


_when = attrgetter("at_s")


class _Counters:
    """The counters of one model, or of all, as they were read over the last minute."""

    __slots__ = ("_bars", "_reads", "_step")

    def __init__(self, first: _Count) -> None:
        self._reads = deque([first])
        self._step = _bar(first.at_s)
        self._bars = [0] * _BARS

    def add(self, now: _Count, before_s: float) -> None:
        """Counters that changed since *before_s*."""
        last = self._reads[-1]
        self._advance(now.at_s)
        self._bars[-1] += now.ended - last.ended
        if last.at_s < before_s:  # they did not change until then
            self._reads.append(last._replace(at_s=before_s))
        self._reads.append(now)

    def traffic(self, at_s: float) -> Traffic:
        """The traffic at *at_s*, from the counters so far."""
        self._advance(at_s)
        if not any(self._bars):
            return NO_TRAFFIC
        latest = self._reads[-1]
        after = bisect_right(self._reads, at_s - _RATE_S, key=_when)
        then = self._reads[max(0, after - 1)]
        span_s = min(_RATE_S, max(1.0, at_s - then.at_s))
        rate = (latest.ended - then.ended) / span_s
        return Traffic(rate, self._p99_s(latest), tuple(self._bars), self._failed(latest))

    def _advance(self, at_s: float) -> None:
        """Move to *at_s*: the first read is the last one before the last minute."""
        if steps := min(_BARS, _bar(at_s) - self._step):
            self._step = _bar(at_s)
            self._bars = self._bars[steps:] + [0] * steps
        while len(self._reads) > 1 and self._reads[1].at_s <= at_s - MINUTE_S:
            self._reads.popleft()

    def _failed(self, latest: _Count) -> int:
        then = self._reads[0]
        return latest.ended - latest.succeeded - (then.ended - then.succeeded)

    def _p99_s(self, latest: _Count) -> float:
        then = self._reads[0]
        if latest.succeeded == then.succeeded:
            return 0.0
        return quantile_s(tuple(map(sub, latest.buckets, then.buckets)), 0.99)


def _bar(at_s: float) -> int:
    return int(at_s // (WINDOW_S / _BARS))


class History:
    """Remembers what charts and rates need of the snapshots that it was given; for one thread."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._begin()

    def _begin(self) -> None:
        self._devices: dict[str, deque[DeviceSample]] = {}
        self._seen: dict[ModelId, _Count] = {}
        self._meters: dict[ModelId, _Counters] = {}
        self._sum = _Count(0.0, 0, 0, _NONE)
        self._all: _Counters | None = None
        self._last_s = 0.0
        self._ends_s: dict[ModelId, float] = {}

    def add(self, snapshot: Snapshot, entries: Sequence[Entry] = ()) -> bool:
        """Take *snapshot* into account; one from before the last begins the history again.

        Where there is no sample of the minutes before it, *entries* say what models held: the last
        events. Whether the charts changed: they have a sample each second, and whenever the models
        hold more or less.
        """
        is_new = False
        if snapshot.at_s < self._last_s:  # the system's clock was set back
            self._begin()
        at_s, before_s = snapshot.at_s, self._last_s
        ends_s = self._ends_s
        changed = [m for m in snapshot.models if ends_s.get(m.id) != m.requests.last_at_s]
        for model in changed:
            self._count(model.id, model.requests, at_s, before_s)
        self._sum = self._sum._replace(at_s=at_s)
        if self._all is None:
            self._all = _Counters(self._sum)
        elif changed:
            self._all.add(self._sum, before_s)
        for device in snapshot.devices:
            kept = self._devices.setdefault(str(device.device), deque())
            if not kept or at_s - kept[-1].at_s > _GAP_S:
                kept.clear()
                if len(snapshot.devices) == 1:  # events do not say where a model was loaded
                    self._name(snapshot.models)
                    kept.extend(_past(snapshot, device, entries))
            is_due = not kept or at_s - kept[-1].at_s >= _STEP_S
            if is_due or device.held_nbytes != kept[-1].models_nbytes:
                sample = self._sample(at_s, device, snapshot.models)
                is_new = _keep(sample, kept, device.budget_nbytes) or is_new
            while kept[0].at_s < at_s - WINDOW_S:
                kept.popleft()
        self._last_s = at_s
        return is_new

    def _count(self, model: ModelId, requests: RequestCounts, at_s: float, before_s: float) -> None:
        """Add the requests of *model* since the last snapshot; those before the first are old."""
        self._ends_s[model] = requests.last_at_s
        ended = requests.succeeded + requests.failed
        now = _Count(at_s, ended, requests.succeeded, requests.buckets)
        seen = self._seen.get(model, _Count(before_s, 0, 0, _NONE))
        self._seen[model] = now
        self._sum = _Count(
            at_s,
            self._sum.ended + now.ended - seen.ended,
            self._sum.succeeded + now.succeeded - seen.succeeded,
            tuple(map(add, self._sum.buckets, map(sub, now.buckets, seen.buckets))),
        )
        if self._all is None:
            return
        if model not in self._meters:
            self._meters[model] = _Counters(seen)
        self._meters[model].add(now, before_s)

    def _sample(
        self, at_s: float, device: DeviceStatus, models: Sequence[ModelStatus]
    ) -> DeviceSample:
        here = [m for m in models if m.nbytes and m.device == device.device]
        largest = heapq.nlargest(_NAMED, here, key=lambda model: model.nbytes)
        held = {str(model.id): model.nbytes for model in largest}
        self._name(largest)
        models_nbytes = max(sum(held.values()), device.held_nbytes)
        return DeviceSample(at_s, held, models_nbytes, other_nbytes(device))

    def _name(self, models: Iterable[ModelStatus]) -> None:
        self._numbers.update((str(m.id), m.load_statistics.number) for m in models)

    def samples(self, device: str) -> tuple[DeviceSample, ...]:
        """The samples of *device*, oldest first, about a second apart."""
        return tuple(self._devices.get(device, ()))

    def traffic(self, model: ModelId) -> Traffic:
        meter = self._meters.get(model)
        return meter.traffic(self._last_s) if meter else NO_TRAFFIC

    @property
    def all_traffic(self) -> Traffic:
        return self._all.traffic(self._last_s) if self._all else NO_TRAFFIC

    def colour(self, model: str) -> str:
        """The colour of a model that is, or was, among the largest of a device."""
        return number_colour(self._numbers.get(model, 0))


def _keep(sample: DeviceSample, kept: deque[DeviceSample], budget_nbytes: int) -> bool:
    """Add *sample* to those *kept*, if a chart with it looks other than one of them."""
    if kept:
        last = kept[-1]
        if last.held == sample.held:  # most are like the one before
            sample = replace(sample, held=last.held)
        is_same = sample.held is last.held and sample.models_nbytes == last.models_nbytes
        grown_nbytes = abs(sample.other_nbytes - last.other_nbytes)
        is_same = is_same and grown_nbytes <= budget_nbytes / _FINE
        if is_same and sample.at_s - last.at_s < _STILL_S:
            return False
    kept.append(sample)
    return True


def _past(
    snapshot: Snapshot, device: DeviceStatus, entries: Sequence[Entry]
) -> Iterator[DeviceSample]:
    """Samples of the models of *device* before *snapshot*, as far back as *entries* reach.

    The events are undone, the last one first.
    """
    editions = {e.event.model.plain: e.event.model for e in entries if type(e.event) is ModelLoaded}
    held = {editions.get(m.id, m.id): m.nbytes for m in snapshot.models if m.nbytes}
    models_nbytes, left = device.held_nbytes, [e for e in entries if e.at_s <= snapshot.at_s]
    shown: dict[str, int] | None = None
    samples = []
    for step in range(1, int(WINDOW_S / _STEP_S)):
        then_s = snapshot.at_s - step * _STEP_S
        while left and left[-1].at_s > then_s:
            event, shown = left.pop().event, None
            if isinstance(event, ModelLoaded):
                models_nbytes -= held.pop(event.model, event.nbytes)
            elif isinstance(event, ModelUnloaded):
                held[event.model] = event.nbytes
                models_nbytes += event.nbytes
        if not left:  # the server began later
            break
        if shown is None:
            largest = heapq.nlargest(_NAMED, held.items(), key=lambda pair: pair[1])
            shown = {str(model): nbytes for model, nbytes in largest}
        samples.append(DeviceSample(then_s, shown, max(sum(shown.values()), models_nbytes), 0))
    return reversed(samples)


def other_nbytes(device: DeviceStatus) -> int:
    """The memory in use that no model holds: other programs on a GPU, this process on a CPU."""
    if device.device.kind == "cpu":
        return device.base_nbytes or 0
    used_nbytes = device.system.used_nbytes if device.system else 0
    return max(0, used_nbytes - device.by_system_nbytes)
