"""Counters and latencies of one model, cheap enough for the hot path.

The counters are those of Triton's statistics extension, for its clients and dashboards: requests
by outcome, and for each batch size the executions and the seconds for inputs, run and outputs.
"""

from __future__ import annotations

import math
import threading
import time
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from operator import add

# Upper bounds of the histogram's buckets, in seconds: four to each doubling from
# 1 microsecond, so that a quantile read from it is off by at most 19 %, and mostly by less than 9.
BUCKETS_S: tuple[float, ...] = tuple(1e-6 * 2 ** (step / 4) for step in range(4 * 27))

_RECENT_REQUESTS = 16

# how many, and the summed seconds of their three parts
_NO_RUNS = (0, 0.0, 0.0, 0.0)


class FailureReason(Enum):
    """Why a request failed, in Triton's words."""

    REJECTED = "REJECTED"  # no memory, or no place in the queue
    CANCELED = "CANCELED"  # the client left, or cancelled it
    BACKEND = "BACKEND"  # the model failed
    OTHER = "OTHER"  # the request did not fit the model, or anything else


@dataclass(frozen=True, slots=True)
class BatchCounts:
    """The executions on one batch size, and the seconds of their three parts."""

    size: int
    executions: int = 0
    input_s: float = 0.0
    infer_s: float = 0.0
    output_s: float = 0.0


@dataclass(frozen=True, slots=True)
class RequestCounts:
    """The counters of one model at one moment.

    *total_s* and *failed_runs_s*: summed seconds of successful requests, and of those that failed
    in a run. Of the successful ones, *queue_s*: waits for a load, a thread or a batch; *input_s*,
    *infer_s*, *output_s*: preparing inputs, running, preparing outputs. *last_at_s*: when the last
    request ended (Unix seconds), 0.0 if none did. *buckets*: the histogram of the successful ones
    by ``BUCKETS_S``, and of longer ones; the quantiles are read from it, 0.0 while it is empty.
    """

    succeeded: int = 0
    failures: Mapping[FailureReason, int] = field(default_factory=dict)
    total_s: float = 0.0
    failed_runs_s: float = 0.0
    queue_s: float = 0.0
    input_s: float = 0.0
    infer_s: float = 0.0
    output_s: float = 0.0
    last_at_s: float = 0.0
    batches: tuple[BatchCounts, ...] = ()
    buckets: tuple[int, ...] = (0,) * (len(BUCKETS_S) + 1)

    def __add__(self, other: RequestCounts) -> RequestCounts:
        """How many requests of both succeeded or failed, and how long they took; no more."""
        return RequestCounts(
            self.succeeded + other.succeeded,
            Counter(self.failures) + Counter(other.failures),
            self.total_s + other.total_s,
            self.failed_runs_s + other.failed_runs_s,
            buckets=tuple(map(add, self.buckets, other.buckets)),
        )

    @property
    def failed(self) -> int:
        """How many requests ended in an error."""
        return sum(self.failures.values())

    @property
    def failed_runs(self) -> int:
        """How many of them failed in a run of the model."""
        return self.failures.get(FailureReason.BACKEND, 0)

    @property
    def refused(self) -> int:
        """How many of them never ran, or were abandoned by their client."""
        return self.failed - self.failed_runs

    @property
    def inferences(self) -> int:
        """How many elements the batches of the successful ones had together."""
        return sum(batch.size * batch.executions for batch in self.batches)

    @property
    def executions(self) -> int:
        """How many runs of the model the successful ones took."""
        return sum(batch.executions for batch in self.batches)

    @property
    def run_s(self) -> float | None:
        """The mean seconds of a run; ``None`` if there was none."""
        return self.infer_s / self.executions if self.executions else None

    @property
    def p50_s(self) -> float:
        """The median of the successful requests' seconds."""
        return quantile_s(self.buckets, 0.50)

    @property
    def p99_s(self) -> float:
        """The 99th percentile of the successful requests' seconds."""
        return quantile_s(self.buckets, 0.99)


class RequestStatistics:
    """Counts the requests of one model and how long each took; safe from any thread.

    A request only appends its figures. Each 16th one adds them to the sums: few at a time, since
    the request that adds them takes longer.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # not yet added
        self._recent: deque[tuple[float, float, float, float, int, float]] = deque()
        self._buckets = [0] * (len(BUCKETS_S) + 1)
        # of each batch size: executions, and the seconds of three parts; of -1, of the rest
        self._batches: dict[int, tuple[int, float, float, float]] = {}
        self._queue_s = 0.0
        self._failures: dict[FailureReason, int] = {}
        self._failed_runs_s = 0.0
        self._last_at_s = 0.0
        self._known: RequestCounts | None = None  # the last result of ``read``, until it changes

    def succeeded(  # noqa: PLR0917  # passing them by name takes longer
        self,
        queue_s: float,
        input_s: float,
        infer_s: float,
        output_s: float,
        batch_size: int = 1,
        at_s: float | None = None,
    ) -> None:
        """Count a successful request that took the sum of these seconds, in a batch of that size.

        The batch size is -1 for all requests of a batch except one. It ended now, or *at_s*.
        """
        recent = self._recent
        at_s = time.time() if at_s is None else at_s
        recent.append((queue_s, input_s, infer_s, output_s, batch_size, at_s))
        if len(recent) >= _RECENT_REQUESTS:
            with self._lock:
                self._add_up()

    def _add_up(self) -> None:
        """Add the recent requests to the sums. Called with the lock; requests append without it."""
        next_one, buckets, batches = self._recent.popleft, self._buckets, self._batches
        count, all_queue_s, at_s = len(self._recent), 0.0, 0.0
        for _ in range(count):
            queue_s, input_s, infer_s, output_s, batch_size, at_s = next_one()
            buckets[bisect_left(BUCKETS_S, queue_s + input_s + infer_s + output_s)] += 1
            all_queue_s += queue_s
            if batch_size in batches:
                executions, input_sum_s, infer_sum_s, output_sum_s = batches[batch_size]
            else:
                executions, input_sum_s, infer_sum_s, output_sum_s = _NO_RUNS
            batches[batch_size] = (
                executions + 1,
                input_sum_s + input_s,
                infer_sum_s + infer_s,
                output_sum_s + output_s,
            )
        if count:
            self._queue_s += all_queue_s
            self._last_at_s = at_s
            self._known = None

    def failed(self, reason: FailureReason, duration_s: float) -> None:
        """Count a request that ended in an error after *duration_s*."""
        with self._lock:
            self._add_up()
            self._known = None
            self._failures[reason] = self._failures.get(reason, 0) + 1
            if reason is FailureReason.BACKEND:
                self._failed_runs_s += duration_s
            self._last_at_s = time.time()

    @property
    def last_at_s(self) -> float:
        """The end of the last request (Unix seconds), 0.0 if none ended; cheaper than ``read``."""
        try:
            return self._recent[-1][-1]
        except IndexError:
            return self._last_at_s

    def read(self) -> RequestCounts:
        with self._lock:
            self._add_up()
            if self._known is None:
                self._known = self._sums()
            return self._known

    def _sums(self) -> RequestCounts:
        all_s = [sum(sums[part] for sums in self._batches.values()) for part in (1, 2, 3)]
        input_s, infer_s, output_s = all_s
        return RequestCounts(
            sum(self._buckets),
            dict(self._failures),
            self._queue_s + sum(all_s),
            self._failed_runs_s,
            self._queue_s,
            input_s,
            infer_s,
            output_s,
            self._last_at_s,
            tuple(
                BatchCounts(size, *sums)
                for size, sums in sorted(self._batches.items())
                if size >= 0
            ),
            tuple(self._buckets),
        )


def quantile_s(counts: Sequence[int], quantile: float) -> float:
    """The *quantile* (0 to 1) of a histogram by ``BUCKETS_S``, in seconds; of none, 0.0.

    Within its bucket, durations are taken to be spread evenly. Beyond the last bound it is that.
    """
    rank, below = quantile * sum(counts), 0
    for bucket, count in enumerate(counts):
        if count and below + count >= rank:
            if bucket == len(BUCKETS_S):
                return BUCKETS_S[-1]
            begin_s = BUCKETS_S[bucket - 1] if bucket else 0.0
            return begin_s + (BUCKETS_S[bucket] - begin_s) * (rank - below) / count
        below += count
    return 0.0


class RunPace:
    """Predicts how long a model's runs take, from earlier runs; concurrent updates may be lost.

    Seconds are CPU time of the thread: under load, waiting would make a fast model look slow.
    """

    def __init__(self) -> None:
        self._nbytes = 0.0
        self.least_s = math.inf  # the expected seconds of a run on few bytes

    @property
    def is_unknown(self) -> bool:
        return self.least_s == math.inf

    def observe(self, nbytes: int, seconds: float) -> None:
        if self.least_s == math.inf:  # the first run also warms up: it counts only roughly
            self._nbytes, self.least_s = float(nbytes), seconds
        else:
            self._nbytes += (nbytes - self._nbytes) / 8
            # a single run may have been delayed by the system or by other threads
            most_s = 4 * self.least_s
            self.least_s += ((seconds if seconds < most_s else most_s) - self.least_s) / 8  # noqa: FURB136

    def expected_s(self, nbytes: int) -> float:
        """The expected seconds of a run on *nbytes* of inputs; infinite before the first."""
        if nbytes <= self._nbytes:
            return self.least_s
        return self.least_s * (nbytes / max(1.0, self._nbytes))


class BatchPace:
    """Predicts how long a model's batches take, from earlier ones of about the same size.

    Most models of Python take as long for ten rows as for one, and some grow in steps.
    """

    def __init__(self) -> None:
        self._by_size: dict[int, RunPace] = {}  # by the binary digits of their bytes

    def observe(self, nbytes: int, seconds: float) -> None:
        """A batch with inputs of *nbytes* took *seconds*."""
        self._by_size.setdefault(nbytes.bit_length(), RunPace()).observe(nbytes, seconds)

    def expected_s(self, nbytes: int) -> float:
        """The expected seconds of a batch with *nbytes* of inputs; infinite if it is the largest.

        The second one of that size is predicted.
        """
        known, size = self._by_size, nbytes.bit_length()
        fits = [pace.least_s for each, pace in list(known.items()) if each >= size]
        return min(fits, default=math.inf)
