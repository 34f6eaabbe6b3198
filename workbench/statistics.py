"""Counters and latencies of one model, cheap enough for the hot path."""

from __future__ import annotations

import threading
from bisect import bisect_left
from dataclasses import dataclass

# Upper bounds of the histogram's buckets, in seconds: four to the octave from
# 1 microsecond, so that a quantile read from it is off by at most 19 %.
BUCKETS_S: tuple[float, ...] = tuple(1e-6 * 2 ** (step / 4) for step in range(4 * 27))


@dataclass(frozen=True, slots=True)
class RequestCounts:
    """A moment's numbers: requests by outcome and latency quantiles in seconds.

    The quantiles are of the successful requests since the server started, 0.0
    while there are none.
    """

    succeeded: int = 0
    failed: int = 0
    total_s: float = 0.0
    p50_s: float = 0.0
    p99_s: float = 0.0


class RequestStatistics:
    """Counts the requests of one model and how long each took; safe from any thread."""

    __slots__ = ("_counts", "_failed", "_lock", "_succeeded", "_total_s")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = [0] * (len(BUCKETS_S) + 1)
        self._succeeded = 0
        self._failed = 0
        self._total_s = 0.0

    def succeeded(self, duration_s: float) -> None:
        """One more request, answered after *duration_s*."""
        bucket = bisect_left(BUCKETS_S, duration_s)
        with self._lock:
            self._counts[bucket] += 1
            self._succeeded += 1
            self._total_s += duration_s

    def failed(self) -> None:
        """One more request that ended in an error."""
        with self._lock:
            self._failed += 1

    def read(self) -> RequestCounts:
        """The numbers so far."""
        with self._lock:
            counts = list(self._counts)
            return RequestCounts(
                self._succeeded,
                self._failed,
                self._total_s,
                _quantile_s(counts, self._succeeded, 0.50),
                _quantile_s(counts, self._succeeded, 0.99),
            )


def _quantile_s(counts: list[int], total: int, quantile: float) -> float:
    rank = quantile * total
    seen = 0
    for bucket, count in enumerate(counts):
        seen += count
        if count and seen >= rank:
            return BUCKETS_S[min(bucket, len(BUCKETS_S) - 1)]
    return 0.0


class RunPace:
    """How long a model's runs take, from those it made; racing updates only lose one."""

    __slots__ = ("_nbytes", "_seconds")

    def __init__(self) -> None:
        self._nbytes = 0.0
        self._seconds = float("inf")

    def observe(self, nbytes: int, seconds: float) -> None:
        """One run on *nbytes* of inputs took *seconds*."""
        if self._seconds == float("inf"):  # the first run also warms up: it counts only roughly
            self._nbytes, self._seconds = float(nbytes), seconds
        else:
            self._nbytes += (nbytes - self._nbytes) / 8
            self._seconds += (seconds - self._seconds) / 8

    def expected_s(self, nbytes: int) -> float:
        """What a run on *nbytes* of inputs will take; infinite before the first."""
        return self._seconds * max(1.0, nbytes / max(1.0, self._nbytes))
