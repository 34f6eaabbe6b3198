"""When loads and evictions are thrashing."""

import pytest

from workbench.events import Thrashing
from workbench.model import ModelId
from workbench.residency.telemetry import ThrashWatch

MODELS = [ModelId(name, 1) for name in "abc"]


def rounds(watch: ThrashWatch, count: int, begin_s: float = 0.0, apart_s: float = 1.0) -> list[int]:
    """Let three models push each other out, *count* loads; the numbers of those that told."""
    told = []
    for number in range(count):
        model, now_s = MODELS[number % 3], begin_s + number * apart_s
        if watch.loaded(model, 40, 20, now_s):
            told.append(number)
        watch.evicted(model, 40, now_s + apart_s / 2)
    return told


def test_told_once() -> None:
    """It is told when nine of the last loads brought back what had left, and only once."""
    assert rounds(ThrashWatch(), 100) == [11]


def test_who_is_told_of() -> None:
    """The model that is out just now is told of too, and others leave less room for all these."""
    watch, told = ThrashWatch(), None
    models = [ModelId(str(number), 1) for number in range(14)]
    for number in range(23):  # there is room for 13 of them
        out = models[(number + 1) % 14]
        if number >= 13:
            watch.evicted(out, 10, number)
        told = watch.loaded(models[number % 14], 10, 0, number)
    assert told is not None
    assert set(models).difference(told.models) == {models[10]}
    assert (told.nbytes, told.room_nbytes) == (130, 120)


def test_told_again() -> None:
    """After a calm it is told again."""
    watch = ThrashWatch()
    assert rounds(watch, 30) == [11]
    for number in range(12):
        assert watch.loaded(ModelId(f"new{number}", 1), 1, 100, 50.0) is None
    assert rounds(watch, 30, 100.0) == [11]


@pytest.mark.parametrize(("apart_s", "told"), [(23.0, [11]), (24.0, [])])
def test_what_left_long_ago_does_not_count(apart_s: float, told: list[int]) -> None:
    """A model that comes back after a minute was not pushed out too early."""
    assert rounds(ThrashWatch(), 60, apart_s=apart_s) == told


def test_when_it_is_over() -> None:
    """When only six of the last loads brought back what had left; then nine are told again."""
    watch = ThrashWatch()
    assert rounds(watch, 12) == [11]
    for number in range(6):
        assert watch.loaded(ModelId(f"new{number}", 1), 1, 100, 12.0) is None
    assert rounds(watch, 12, 12.0) == [8]


def test_what_left_long_ago_is_not_told() -> None:
    """Who is told of are the models that take turns now."""
    watch = ThrashWatch()
    watch.evicted(ModelId("old", 1), 40, -100.0)
    for number in range(12):
        told = watch.loaded(MODELS[number % 3], 40, 20, number)
        watch.evicted(MODELS[number % 3], 40, number)
    assert told is not None
    assert set(told.models) == set(MODELS)


def test_what_is_not_served_any_more_is_forgotten() -> None:
    """A model of the same name that comes later is another."""
    watch = ThrashWatch()
    for number in range(50):
        assert watch.loaded(MODELS[0], 40, 20, number) is None
        watch.evicted(MODELS[0], 40, number)
        watch.drop("a")


def test_first_loads_are_no_thrashing() -> None:
    """Models that come for the first time say nothing, however many leave for them."""
    watch = ThrashWatch()
    for number in range(50):
        assert watch.loaded(ModelId(str(number), 1), 1, 10, number) is None
        watch.evicted(ModelId(str(number), 1), 1, number)


def test_what_is_told() -> None:
    """How many loads, which models, what they take together, and the budget."""
    models = tuple(ModelId(name, 1) for name in "abcde")
    assert str(Thrashing(9, 12, models, 5 * 2**20, 2**20)) == (
        "9 of the last 12 loads brought back what had just been evicted: "
        "a:1, b:1, c:1, d:1, ... take 5.0 MiB together, there is room for 1.0 MiB: "
        "with more they would stay"
    )
