"""The figures that the process of a benchmark works out."""

from typing import Any

import pytest

from workbench.annexes.bench.client import Answers, Point, quantile


def test_quantile() -> None:
    """A quantile is a value that was measured, and 0.0 of nothing."""
    assert quantile([1.0, 2.0, 3.0, 4.0], 0.5) == 3.0
    assert quantile([1.0, 2.0], 0.99) == 2.0
    assert quantile([1.0, 2.0], 1.0) == 2.0
    assert quantile([], 0.5) == 0.0


@pytest.mark.parametrize(
    ("thirds", "steady"),
    [((100, 100, 100), True), ((110, 100, 90), True), ((130, 100, 70), False), ((1, 2, 1), True)],
)
def test_a_rate_that_changes_is_told(thirds: tuple[int, int, int], steady: bool) -> None:
    """The rate of each third of the time is about the same, by a tenth or by one answer."""
    answers = Answers()
    for third, count in enumerate(thirds):
        for number in range(count):
            answers.record(10.0 + third + (number + 0.5) / count, 0.01)
    point = Point(1, 1, **answers.figures(10.0, 13.0))
    assert (point.answers, point.rate, point.steady) == (sum(thirds), sum(thirds) / 3.0, steady)


def test_failures_have_no_latency() -> None:
    """They are counted apart, and the first one is told."""
    answers = Answers()
    for why in ("first", "second"):
        answers.fail(why)
    answers.record(0.5, 0.2)
    point = Point(1, 1, **answers.figures(0.0, 1.0))
    assert point == Point(1, 1, 1, 2, 1.0, 0.2, 0.2, 0.2, steady=True, failure="first")


def test_how_long_a_load_lasts() -> None:
    """As long as was asked for; up to eight times as long for few answers, and until one comes."""
    answers = Answers()
    assert not answers.enough(29.0, 1.0)
    assert answers.enough(30.0, 1.0)
    answers.record(0.5, 0.5)
    assert not answers.enough(7.9, 1.0)
    assert answers.enough(8.0, 1.0)
    for _ in range(19):
        answers.fail("no")
    assert answers.enough(1.0, 1.0)


@pytest.mark.parametrize(
    ("load", "notes"),
    [
        ({}, []),
        ({"failed": 3}, ["25% failed"]),
        ({"steady": False}, ["not steady: measure longer"]),
        ({"busy": 0.9}, []),
        ({"busy": 0.91}, ["the client was busy all the time: the server may do more"]),
    ],
)
def test_what_to_know_of_a_point(load: dict[str, Any], notes: list[str]) -> None:
    """What failed, what was not steady, and who was too slow."""
    assert Point(1, 1, **{"answers": 9, "rate": 9.0, **load}).notes == notes
