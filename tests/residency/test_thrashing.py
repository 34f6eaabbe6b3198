"""When loads and evictions are thrashing."""

import re

import pytest

from workbench.events import Thrashing
from workbench.model import ModelId
from workbench.residency.telemetry import ThrashWatch

MODELS = [ModelId(name, 1) for name in "abc"]


# What is loaded, a second apart if no other time is said, each pushed out by the next one:
# "abc 12" are twelve loads of three models in turn, "new 12" of models that were never there,
# and "drop a 12" of one that is not served any more each time. Behind "=" are the loads at
# which it is told.
LOADS = {
    "when nine of the last loads brought back what had left, it is told, and only once":
        "abc 100 = 11",
    "after a calm it is told again": "abc 30 = 11; new 12 every 9 =; abc 30 = 11",
    "when only six did it is over, and then nine are told again":
        "abc 12 = 11; new 6 =; abc 12 = 8",
    "with seven it is not": "abc 12 = 11; new 5 =; abc 12 =",
    "a model that comes back after a minute was not pushed out too early": "abc 60 every 24 =",
    "one that comes back before was": "abc 60 every 23 = 11",
    "a model of the same name as one that is not served any more is another": "drop a 50 =",
    "models that come for the first time say nothing, however many leave for them": "new 50 =",
}  # fmt: skip


@pytest.mark.parametrize("script", LOADS.values(), ids=LOADS)
def test_when_it_is_told(script: str) -> None:
    """Each rule, by what is loaded and leaves."""
    watch, now_s = ThrashWatch(), 0.0
    for step in script.split("; "):
        found = re.fullmatch(r"(drop )?(\w+) (\d+)(?: every (\d+))? =(.*)", step)
        assert found is not None
        apart_s, told = float(found[4] or 1), []
        for number in range(int(found[3])):
            name = f"new{now_s}" if found[2] == "new" else found[2][number % len(found[2])]
            model = ModelId(name, 1)
            if watch.loaded(model, 40, 20, now_s):
                told.append(number)
            watch.evicted(model, 40, now_s + apart_s / 2)
            if found[1]:
                watch.drop(name)
            now_s += apart_s
        assert told == [int(each) for each in found[5].split()], step


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


def test_what_left_long_ago_is_not_told() -> None:
    """Who is told of are the models that take turns now."""
    watch = ThrashWatch()
    watch.evicted(ModelId("old", 1), 40, -100.0)
    for number in range(12):
        told = watch.loaded(MODELS[number % 3], 40, 20, number)
        watch.evicted(MODELS[number % 3], 40, number)
    assert told is not None
    assert set(told.models) == set(MODELS)


def test_what_is_told() -> None:
    """How many loads, which models, what they take together, and the budget."""
    models = tuple(ModelId(name, 1) for name in "abcde")
    assert str(Thrashing(9, 12, models, 5 * 2**20, 2**20)) == (
        "9 of the last 12 loads brought back what had just been evicted: "
        "a:1, b:1, c:1, d:1, ... take 5.0 MiB together, there is room for 1.0 MiB: "
        "with more they would stay"
    )
