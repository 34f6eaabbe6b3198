"""Counters, quantiles and the pace of runs."""

import math
import threading
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench import statistics as module
from workbench.statistics import (
    BUCKETS_S,
    BatchCounts,
    FailureReason,
    RequestCounts,
    RequestStatistics,
    RunPace,
)

deterministic = settings(derandomize=True, deadline=None, max_examples=100)
STEP = 2**0.25
SECONDS = st.floats(BUCKETS_S[1], BUCKETS_S[-1], allow_nan=False)


def read_of(durations_s: list[float]) -> RequestCounts:
    """The counts after requests that took these, all of it in the model."""
    statistics = RequestStatistics()
    for duration_s in durations_s:
        statistics.succeeded(0.0, 0.0, duration_s, 0.0)
    return statistics.read()


def true_quantile(durations_s: list[float], percent: int) -> float:
    """The smallest value that at least *percent* of them do not exceed."""
    rank = -(-percent * len(durations_s) // 100)
    return sorted(durations_s)[rank - 1]


def test_nothing_yet() -> None:
    """Before the first request everything is zero."""
    counts = RequestStatistics().read()
    assert counts == RequestCounts()
    assert (counts.succeeded, counts.failed, counts.p50_s, counts.p99_s) == (0, 0, 0.0, 0.0)
    assert (counts.failures, counts.batches, sum(counts.buckets)) == ({}, (), 0)


def test_the_buckets() -> None:
    """The buckets' bounds grow by the same factor from a microsecond to over a minute."""
    assert BUCKETS_S[0] == pytest.approx(1e-6)
    assert BUCKETS_S[-1] > 60
    for low, high in pairwise(BUCKETS_S):
        assert high / low == pytest.approx(STEP)


def test_counts() -> None:
    """A success is counted with the sum of its parts, and with what of it was waiting."""
    statistics = RequestStatistics()
    statistics.succeeded(0.25, 0.125, 0.5, 0.125)
    statistics.succeeded(0.75, 0.0, 0.25, 0.0)
    counts = statistics.read()
    assert (counts.succeeded, counts.failed) == (2, 0)
    assert (counts.total_s, counts.queue_s, counts.failed_runs_s) == (2.0, 1.0, 0.0)


@pytest.mark.parametrize(
    ("requests", "batches", "executed"),
    [
        ((), (), (0, 0)),
        (
            ((9.0, 0.25, 1.0, 0.5, 4), (9.0, 0.5, 2.0, 0.5, 1), (9.0, 0.25, 3.0, 0.0, 4)),
            (BatchCounts(1, 1, 0.5, 2.0, 0.5), BatchCounts(4, 2, 0.5, 4.0, 0.5)),
            (9, 3),
        ),
        (
            ((1.0, 0.25, 2.0, 0.5, 3), (2.0, 0.25, 2.0, 0.5, -1)),
            (BatchCounts(3, 1, 0.25, 2.0, 0.5),),
            (3, 1),
        ),
    ],
)
def test_batches(requests: Any, batches: Any, executed: tuple[int, int]) -> None:
    """Each batch size has its own executions and seconds, and the sizes are in order.

    Requests that ran together are one execution, and each has the seconds it saw.
    """
    statistics = RequestStatistics()
    for request in requests:
        statistics.succeeded(*request)
    counts = statistics.read()
    assert (counts.succeeded, counts.batches) == (len(requests), batches)
    assert (counts.inferences, counts.executions) == executed
    sums = counts.queue_s, counts.input_s, counts.infer_s, counts.output_s
    assert sums == tuple(sum(request[part] for request in requests) for part in range(4))


def test_failures() -> None:
    """Failures are counted by their reason; those of runs, which last, apart from refusals.

    What was read does not change with the requests that come after.
    """
    statistics = RequestStatistics()
    statistics.succeeded(0.0, 0.0, 1.0, 0.0)
    statistics.failed(FailureReason.BACKEND, 0.25)
    statistics.failed(FailureReason.OTHER, 0.5)
    statistics.failed(FailureReason.BACKEND, 0.25)
    counts = statistics.read()
    statistics.failed(FailureReason.OTHER, 1.0)
    statistics.succeeded(0.0, 0.0, 1.0, 0.0)
    assert counts.failures == {FailureReason.BACKEND: 2, FailureReason.OTHER: 1}
    assert (counts.failed, counts.failed_runs, counts.refused) == (3, 2, 1)
    assert counts.failed_runs_s == 0.5
    assert (counts.succeeded, counts.total_s, sum(counts.buckets)) == (1, 1.0, 1)
    assert counts.batches == (BatchCounts(1, 1, 0.0, 1.0, 0.0),)


def test_it_does_not_matter_when_they_are_read() -> None:
    """Read after each request or once after many, the counts and the histogram are the same."""
    often, once = RequestStatistics(), RequestStatistics()
    for number in range(50):
        row = (2.0**-number, 2.0**-20, 2.0 ** -(number % 7), 2.0**-10, (-1, 1, 4)[number % 3])
        for statistics in (often, once):
            statistics.succeeded(*row)
        often.read()
    one, other = often.read(), once.read()
    assert (one.succeeded, one.buckets) == (other.succeeded, other.buckets)
    assert one.total_s == pytest.approx(other.total_s)
    assert one.infer_s == pytest.approx(other.infer_s)
    for mine, theirs in zip(one.batches, other.batches, strict=True):
        assert mine == pytest.approx(theirs)


def test_the_last_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last request is the last one to end, well or not, also if the clock was later before."""
    now = iter([100.0, 200.0, 50.0])
    monkeypatch.setattr(module.time, "time", lambda: next(now))
    statistics = RequestStatistics()

    def last() -> set[float]:
        return {statistics.last_at_s, statistics.read().last_at_s, statistics.last_at_s}

    assert last() == {0.0}
    statistics.succeeded(0.0, 0.0, 1.0, 0.0)
    assert last() == {100.0}
    statistics.failed(FailureReason.CANCELED, 1.0)
    assert last() == {200.0}
    for at_s in (9000.0, 100.0):
        statistics.succeeded(0.0, 0.0, 0.0, 0.0, at_s=at_s)
    assert last() == {100.0}
    statistics.succeeded(0.0, 0.0, 0.0, 0.0, at_s=110.0)
    statistics.failed(FailureReason.OTHER, 0.0)
    assert last() == {50.0}


def test_the_histogram() -> None:
    """Each success is in one bucket; those over the last bound are in one more."""
    counts = read_of([BUCKETS_S[7], BUCKETS_S[7] * 1.01, BUCKETS_S[-1] * 2])
    assert len(counts.buckets) == len(BUCKETS_S) + 1
    assert {index: n for index, n in enumerate(counts.buckets) if n} == {
        7: 1, 8: 1, len(BUCKETS_S): 1,
    }  # fmt: skip


@deterministic
@given(st.lists(SECONDS, min_size=1, max_size=150))
def test_quantiles(durations_s: list[float]) -> None:
    """A quantile is in the bucket that holds the true one: it is off by at most 19 %."""
    counts = read_of(durations_s)
    for shown, percent in ((counts.p50_s, 50), (counts.p99_s, 99)):
        true = true_quantile(durations_s, percent)
        assert true / STEP * (1 - 1e-9) <= shown <= true * STEP * (1 + 1e-9)


@deterministic
@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=20))
def test_any_duration_is_counted(durations_s: list[float]) -> None:
    """What is under the first bound or over the last is counted at that bound."""
    counts = read_of(durations_s)
    assert counts.succeeded == len(durations_s)
    assert counts.total_s == pytest.approx(sum(durations_s))
    assert 0 < counts.p50_s <= counts.p99_s <= BUCKETS_S[-1]


def test_the_slow_hundredth() -> None:
    """One slow request in a hundred is not yet the 99th percentile, two are."""
    fast, slow = BUCKETS_S[10], BUCKETS_S[60]
    assert read_of([fast] * 99 + [slow]).p99_s == fast
    assert BUCKETS_S[59] < read_of([fast] * 98 + [slow] * 2).p99_s < slow
    assert BUCKETS_S[9] < read_of([fast] * 98 + [slow] * 2).p50_s < fast


def test_equal_durations_are_spread_over_their_bucket() -> None:
    """Their median is the middle of it, and no quantile is beyond its bound."""
    middle_s = (BUCKETS_S[40] + BUCKETS_S[41]) / 2
    counts = read_of([BUCKETS_S[41]] * 100)
    assert counts.p50_s == pytest.approx(middle_s)
    assert middle_s < counts.p99_s < BUCKETS_S[41]


def test_threads_lose_no_count() -> None:
    """Requests counted from several threads are all there."""
    statistics = RequestStatistics()
    barrier = threading.Barrier(4)

    def work() -> None:
        barrier.wait(30)
        for _ in range(200):
            statistics.succeeded(0.0, 0.0, 1.0, 0.0)
            statistics.failed(FailureReason.OTHER, 1.0)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    counts = statistics.read()
    assert (counts.succeeded, counts.failed, counts.total_s) == (800, 800, 800.0)
    assert counts.batches == (BatchCounts(1, 800, 0.0, 800.0, 0.0),)


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ((), {0: math.inf, 1: math.inf, 2**40: math.inf}),
        ((1000, 0.5), {0: 0.5, 500: 0.5, 1000: 0.5, 2000: 1.0}),
        ((0, 0.5), {0: 0.5, 4: 2.0}),
    ],
)
def test_a_pace(seen: tuple[int, float] | tuple[()], expected: dict[int, float]) -> None:
    """A run twice as large as one that was seen takes twice as long, a smaller one no less.

    Before the first run every size takes for ever; runs without any input bytes have a pace too.
    """
    pace = RunPace()
    if seen:
        pace.observe(*seen)
    assert {nbytes: pace.expected_s(nbytes) for nbytes in expected} == expected


@deterministic
@given(st.lists(st.floats(1e-6, 10), min_size=1, max_size=50))
def test_the_pace_stays_between_what_was_seen(seconds: list[float]) -> None:
    """The expectation for the size that was always run lies between the fastest and the slowest."""
    pace = RunPace()
    for duration_s in seconds:
        pace.observe(100, duration_s)
    assert min(seconds) * 0.999 <= pace.expected_s(100) <= max(seconds) * 1.001


def test_the_pace_follows() -> None:
    """A model that became slower is expected to be slow after some runs, not after one."""
    pace = RunPace()
    pace.observe(100, 0.001)
    pace.observe(100, 1.0)
    assert pace.expected_s(100) < 0.2
    for _ in range(50):
        pace.observe(100, 1.0)
    assert pace.expected_s(100) == pytest.approx(1.0, rel=0.01)
