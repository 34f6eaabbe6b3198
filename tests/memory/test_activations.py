"""What runs take, by the size of their inputs, as it is learned."""

import pytest

from workbench.memory.activations import Activations

MIB = 2**20


def test_nothing_is_known_at_first() -> None:
    """Before the first measurement nothing is measured, nor expected."""
    learned = Activations()
    assert learned.measured_nbytes(100) is None
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


def test_what_is_larger_was_not_measured() -> None:
    """A run on more than any that was measured is expected to take something, and no more."""
    learned = Activations()
    learned.observe(1000, 5000)
    assert learned.measured_nbytes(500) == 2500
    assert learned.measured_nbytes(1023) == 5115
    assert learned.measured_nbytes(1024) is None
    assert learned.expected_nbytes(1024) == 5120


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (10 * MIB, 40 * MIB, 160 * MIB),  # in proportion
        (10 * MIB, 160 * MIB, 2560 * MIB),  # as the square
        (10 * MIB, 300 * MIB, 4800 * MIB),  # steeper than any square: something else was there
        (10 * MIB, 12 * MIB, 48 * MIB),  # most of it is fixed
        (1 * MIB, 16 * MIB, 256 * MIB),  # as the square, though the smaller is hardly seen
        (10 * MIB, 100 * MIB, 1360 * MIB),  # four fifths as the square, the rest in proportion
        (0, 3 * MIB, 12 * MIB),  # too little to tell
    ],
)
def test_steepness(first: int, second: int, expected: int) -> None:
    """Beyond what was measured it grows as it did, but at least in proportion."""
    learned = Activations()
    learned.observe(1000, first)
    learned.observe(4000, second)
    told = learned.expected_nbytes(16_000)
    assert told is not None
    assert abs(told / expected - 1) < 0.001


def test_the_worst() -> None:
    """At worst it grows with the square of the inputs, from 4 MiB at least; or is that square."""
    learned = Activations()
    assert learned.most_possible_nbytes(1000) == 4 * MIB
    assert learned.most_possible_nbytes(10_000) == 10**8
    learned.observe(1000, MIB)
    assert learned.most_possible_nbytes(500) == 4 * MIB
    assert learned.most_possible_nbytes(10_000) == 400 * MIB


def test_what_was_something_elses() -> None:
    """What is forgotten of a size is forgotten of larger ones, and smaller ones stay."""
    learned = Activations()
    for size in (100, 1000, 10_000):
        learned.observe(size, 10 * size)
    learned.forget(1000)
    assert learned.most_nbytes == 1000
    assert learned.measured_nbytes(100) == 1000
    assert learned.measured_nbytes(1000) is None
    learned.forget(1)
    assert learned.most_nbytes == 0


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
    assert learned.expected_nbytes(65) is None
