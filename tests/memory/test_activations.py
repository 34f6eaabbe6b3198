"""What runs take, by the size of their inputs, as it is learned."""

from __future__ import annotations

import pytest

from workbench.memory.activations import Activations


def test_nothing_is_known_at_first() -> None:
    """Before the first measurement nothing is expected."""
    learned = Activations()
    assert learned.expected_nbytes(100) is None
    assert learned.most_nbytes == 0


@pytest.mark.parametrize(("asked", "expected"), [(1000, 5000), (600, 3000), (2000, 10_000), (0, 0)])
def test_grows_with_the_inputs(asked: int, expected: int) -> None:
    """Smaller and larger inputs are expected to take as much a byte as what was measured."""
    learned = Activations()
    learned.observe(1000, 5000)
    assert learned.expected_nbytes(asked) == expected


def test_the_nearest_size_counts() -> None:
    """Of several sizes the next larger one tells, or the largest: a fixed part fades with size."""
    learned = Activations()
    learned.observe(10, 1000)
    learned.observe(1000, 4000)
    assert learned.expected_nbytes(10) == 1000
    assert learned.expected_nbytes(500) == 2000
    assert learned.expected_nbytes(4000) == 16_000


def test_the_least_of_a_size_counts() -> None:
    """What happened beside a run only adds, so of each size the least is believed."""
    learned = Activations()
    for peak in (9000, 5000, 7000):
        assert learned.wants(1000)
        learned.observe(1000, peak)
    assert not learned.wants(1000)
    assert not learned.wants(1023)
    assert learned.wants(1024)
    assert learned.expected_nbytes(1000) == learned.most_nbytes == 5000


def test_the_most_of_any_size_is_told() -> None:
    """The most that a run took is of the size that takes most."""
    learned = Activations()
    learned.observe(1000, 5000)
    learned.observe(10, 200)
    assert learned.most_nbytes == 5000


def test_what_is_far_is_unknown() -> None:
    """From a small run nobody can tell what one on more than 64 times as much will take."""
    learned = Activations()
    learned.observe(100, 5000)
    assert learned.expected_nbytes(6400) == 320_000
    assert learned.expected_nbytes(6401) is None


def test_inputs_of_no_size() -> None:
    """Empty inputs can be measured too, and less than nothing is nothing."""
    learned = Activations()
    learned.observe(0, -5)
    assert learned.expected_nbytes(0) == 0
    assert learned.expected_nbytes(1) is None
