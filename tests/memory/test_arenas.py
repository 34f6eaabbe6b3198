"""Whose memory it is that a process takes more, or less, from one look to the next."""

import pytest

from workbench.memory.arenas import Arenas
from workbench.model import ModelId

# What happens between looks: "run a b", and "begin a" and "end a" of one that lasts; "look 130" is
# what the process takes then, "= a+30" whose the change is. Models that come or go are "rebase".
LOOKS = {
    "memory that came between two looks is the model's that ran, and only once":
        "rebase 100; run a a; look 130 = a+30; look 130 =; begin b; look 150 = b+20; end b;"
        " look 155 = b+5; look 160 =; unsure",
    "what a cell takes while no model runs is booked on none, nor what it gives back":
        "rebase 100; look 150 =; run a; look 150 =; look 100 =",
    "what came while several models ran is booked on none, and none of them is sure":
        "rebase 100; run a b; look 150 =; unsure a b",
    "what came last is taken to go first; no more is given back than was booked":
        "rebase 100; run a; look 130 = a+30; look 170 =; run b; look 190 = b+20; look 175 = b-15;"
        " look 120 = b-5 a-10; look 0 = a-20; look 200 =",
    "what changed by loads and closes is no run's; what ran meanwhile nobody knows":
        "rebase 100; run a; rebase 500; look 500 =; unsure a; booked 50; look 550 =",
    "what a closed model kept went with it":
        "rebase 100; run a; look 130 = a+30; forget a; rebase 60; look 30 =",
    "a closed model is sure again": "rebase 100; run a b; look 150 =; forget a; unsure b",
    "where nobody knows what was taken before, what runs kept is not known":
        "blind; run a; look 130 =; unsure a",
    "a process that takes more and more is not written down step by step":
        "rebase 0; " + "; ".join(f"look {nbytes} =" for nbytes in range(1, 1000)) + "; entries 1",
}  # fmt: skip


@pytest.mark.parametrize("script", LOOKS.values(), ids=LOOKS)
def test_whose_it_is(script: str) -> None:
    """Each rule, by what happens between looks."""
    arenas = Arenas()
    for step in script.split("; "):
        verb, *words = step.split()
        models = [ModelId(name, 1) for name in words]
        match verb:
            case "run":
                for model in models:
                    arenas.begin(model)
                    arenas.end(model)
            case "begin" | "end" | "forget":
                getattr(arenas, verb)(models[0])
            case "rebase" | "booked":
                getattr(arenas, verb)(int(words[0]))
            case "look":
                changes = arenas.look(int(words[0])).items()
                assert [f"{model.name}{nbytes:+}" for model, nbytes in changes] == words[2:], step
            case "unsure":
                assert arenas.unsure == set(models)
            case "entries":
                assert len(arenas._taken) == int(words[0])
            case "blind":
                assert not arenas.sees
    assert arenas.sees
