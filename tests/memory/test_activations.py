"""What runs take, by the size of their inputs, as it is learned."""

import pytest

from workbench.memory.activations import Activations

MIB = 2**20


# "saw 1000 5000": a run on inputs of 1000 bytes took 5000; "expects 600 3000": one on 600 is to
# take 3000, "?" if nobody can tell; "measured" is what was measured of that size, and "most" the
# most of any.
LEARNED = {
    "before the first measurement nothing is measured, nor expected":
        "measured 100 ?; expects 100 ?; most 0",
    "other inputs are expected to take as much a byte as what was measured":
        "saw 1000 5000; expects 1000 5000; expects 600 3000; expects 2000 10000; expects 0 0",
    "of several sizes the next larger one tells, or the largest: a fixed part fades with size":
        "saw 10 1000; saw 1000 4000; expects 10 1000; expects 500 2000; expects 4000 16000",
    "what happened beside a run only adds, so of each size the least of three is believed":
        "wants 1000; saw 1000 9000; wants 1000; saw 1000 5000; wants 1000; saw 1000 7000;"
        " enough 1000; enough 1023; wants 1024; expects 1000 5000; most 5000",
    "the most that a run took is of the size that takes most":
        "saw 1000 5000; saw 10 200; most 5000",
    "a run on more than any that was measured is expected to take something, and no more":
        "saw 1000 5000; measured 500 2500; measured 1023 5115; measured 1024 ?; expects 1024 5120",
    "from a small run nobody can tell what one on more than 64 times as much will take":
        "saw 100 5000; expects 6400 320000; expects 6401 ?",
    "a measurement that smaller runs belie is doubted, until there are three":
        "saw 1000 5000; saw 2000 90000; expects 2000 90000; doubted 2000 10000; saw 2000 90000;"
        " saw 2000 90000; doubted 2000 90000",
    "one that is no more than twice what they tell is believed, and one that nothing belies":
        "saw 2000 20000; doubted 2000 20000; saw 1000 10000; doubted 2000 20000;"
        " saw 4000 70000; doubted 4000 70000",
    "empty inputs can be measured too, and less than nothing is nothing":
        "saw 0 -5; expects 0 0; expects 65 ?; most 0",
}  # fmt: skip


@pytest.mark.parametrize("script", LEARNED.values(), ids=LEARNED)
def test_what_is_learned(script: str) -> None:
    """Each rule, by what runs took and what is told then."""
    learned = Activations()
    for step in script.split("; "):
        verb, *words = step.split()
        size, *told = (None if word == "?" else int(word) for word in words)
        match verb:
            case "saw":
                learned.observe(size, told[0])
            case "most":
                assert learned.most_nbytes == size
            case "wants" | "enough":
                assert learned.wants(size) == (verb == "wants"), step
            case _:
                names = {"expects": "expected", "measured": "measured", "doubted": "doubted"}
                assert getattr(learned, f"{names[verb]}_nbytes")(size) == told[0], step


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
