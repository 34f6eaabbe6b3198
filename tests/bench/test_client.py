"""The figures that the process of a benchmark works out."""

import pytest

from workbench.bench.client import Load, Window, Windows, quantile, summary, unstable


def steady(rate: int = 100, lap_s: float = 0.01, failed: int = 0) -> Window:
    return Window(1.0, [lap_s] * rate, failed)


def test_quantile() -> None:
    """A quantile is a value that was measured, and 0.0 of nothing."""
    assert quantile([1.0, 2.0, 3.0, 4.0], 0.5) == 3.0
    assert quantile([1.0, 2.0], 0.99) == 2.0
    assert quantile([1.0, 2.0], 1.0) == 2.0
    assert quantile([], 0.5) == 0.0


@pytest.mark.parametrize(
    ("last", "said"),
    [
        (steady(), ""),
        (steady(rate=140), "rate"),
        (steady(lap_s=0.02), "p50, p99"),
        (Window(1.0, [0.01] * 98 + [0.1] * 2), "p99"),
    ],
)
def test_what_still_changes_is_named(last: Window, said: str) -> None:
    """Three windows agree, or the figures that do not are named."""
    assert unstable([steady(), steady(), last]) == said


def test_how_far_the_slowest_may_differ() -> None:
    """The 99th percentiles by three tenths of their mean: a few requests decide them."""
    for slow, said in ((0.8, ""), (0.6, "p99")):
        windows = [Window(1.0, [0.1] * 99 + [lap_s]) for lap_s in (slow, 1.0, 2.0 - slow)]
        assert unstable(windows) == said


def test_two_windows_are_too_few() -> None:
    """What is stable takes three windows to show."""
    assert unstable([steady(), steady()]) == "too short"


def test_summary_is_of_the_last_windows() -> None:
    """The figures are those of the last three windows together; failures have no latency."""
    windows = [steady(7, 9.0), steady(100, 0.01), steady(100, 0.01, failed=3), steady(100, 0.01)]
    load = summary(windows, failure="500: why")
    assert load == Load(300, 3, 100.0, 0.01, 0.01, 0.01, "", "500: why")


def fill(windows: Windows, count: int, lap_s: float = 0.01) -> None:
    for _ in range(count):
        windows.record(lap_s)


def test_a_run_ends_once_it_is_stable() -> None:
    """What was recorded while it warmed up is dropped; three windows that agree are enough."""
    windows = Windows(1.0, 10)
    fill(windows, 1000, 5.0)
    windows.begin(0.0)
    ends = []
    for second in (1.0, 2.0, 3.0):
        fill(windows, 100)
        assert not windows.ended(second - 0.5)
        ends.append(windows.ended(second))
    assert ends == [False, False, True]
    assert summary(windows.done).p99_s == 0.01


def test_a_run_that_is_never_stable_ends_too() -> None:
    """After the most windows it ends, and says which figure still changes."""
    windows = Windows(1.0, 5)
    windows.begin(0.0)
    for second in range(1, 6):
        fill(windows, 40 * second)
        ended = windows.ended(float(second))
    assert ended
    assert summary(windows.done).unstable == "rate"


def test_a_window_waits_for_slow_answers() -> None:
    """A window with few answers lasts up to eight times as long."""
    windows = Windows(1.0, 10)
    windows.begin(0.0)
    fill(windows, 5)
    assert not windows.ended(7.9)
    assert not windows.ended(8.0)
    assert [window.seconds for window in windows.done] == [8.0]


def test_an_answer_is_waited_for() -> None:
    """Windows without an answer or a failure do not end a run: the model may be slow."""
    windows = Windows(1.0, 5)
    windows.begin(0.0)
    assert [windows.ended(8.0 * number) for number in range(1, 6)] == [False] * 4 + [True]
    slow = Windows(1.0, 5)
    slow.begin(0.0)
    assert [slow.ended(8.0 * number) for number in range(1, 4)] == [False] * 3
    slow.record(30.0)
    assert [slow.ended(8.0 * number) for number in range(4, 6)] == [False, True]
    assert summary(slow.done).p50_s == 30.0


def test_without_any_answer_it_ends_early() -> None:
    """Two windows of failures alone are enough."""
    windows = Windows(1.0, 10)
    windows.begin(0.0)
    for second in (1.0, 2.0):
        for _ in range(30):
            windows.fail("400: bad")
        ended = windows.ended(second)
    assert ended
    assert windows.failure == "400: bad"


def test_the_first_failure_is_told() -> None:
    """A run without an answer ends after two windows, not after one."""
    windows = Windows(1.0, 10)
    windows.begin(0.0)
    windows.fail("first")
    windows.fail("second")
    assert [windows.ended(now_s) for now_s in (1.0, 8.0, 16.0)] == [False, False, True]
    assert windows.failure == "first"
