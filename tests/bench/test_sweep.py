"""Points of a sweep: which is the best, and what to know of each."""

from typing import Any

import pytest

from workbench.bench.client import Load
from workbench.bench.sweep import Point, Sweep, best
from workbench.bench.variant import Variant
from workbench.errors import UsageError


def point(*, rate: float | None = None, batch: int = 1, **load: Any) -> Point:
    return Point(Variant(), batch, 1, rate, Load(**{"answers": 9, "rate": 9.0, **load}))


def test_the_best_point() -> None:
    """It serves most elements within the p99, with answers, and without a failure."""
    good = point(batch=2, p99_s=0.1)
    others = [
        point(rate=100.0, p99_s=0.1),
        point(batch=9, p99_s=0.11),
        point(batch=9, failed=1),
        point(batch=9, answers=0),
    ]
    assert best([*others, good, *others], 0.1) is good
    assert best(others[1:], 0.1) is None


@pytest.mark.parametrize(
    ("given", "notes"),
    [
        (point(), []),
        (point(failed=3), ["25% failed"]),
        (point(unstable="p99"), ["not stable: p99"]),
        (point(rate=1000.0, behind=100), []),
        (point(rate=1000.0, behind=101), ["falls behind: 101 requests wait"]),
        (point(rate=1.0, behind=10), []),
        (point(behind=500), []),
        (point(busy=0.9), []),
        (point(busy=0.91), ["the client was busy all the time: the server may do more"]),
    ],
)
def test_what_to_know_of_a_point(given: Point, notes: list[str]) -> None:
    """What failed, what was not stable, and who was too slow."""
    assert given.notes == notes


@pytest.mark.parametrize(
    "wrong",
    [
        {"clients": ()}, {"clients": (0,)}, {"clients": (1025,)}, {"batches": (0,)},
        {"rates": (0.0,)}, {"rates": (2e6,)}, {"clients": (1,) * 2001},
    ],
)  # fmt: skip
def test_what_is_no_sweep(wrong: dict[str, Any]) -> None:
    """It is refused before anything is measured."""
    with pytest.raises(UsageError):
        Sweep(**wrong)
