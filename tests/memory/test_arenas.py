"""Whose memory it is that a process takes more, or less, from one look to the next."""

from workbench.memory.arenas import Arenas
from workbench.model import ModelId

A, B = (ModelId(name, 1) for name in "ab")


def looked_at(nbytes: int = 100) -> Arenas:
    """Those of a process that took *nbytes* when models came last."""
    arenas = Arenas()
    arenas.rebase(nbytes)
    return arenas


def run(arenas: Arenas, *models: ModelId) -> None:
    for model in models:
        arenas.begin(model)
        arenas.end(model)


def test_what_came_while_one_model_ran_is_its() -> None:
    """Memory that came between two looks is the model's that ran, and only once."""
    arenas = looked_at()
    run(arenas, A, A)
    assert arenas.look(130) == {A: 30}
    assert arenas.look(130) == {}
    arenas.begin(B)
    assert arenas.look(150) == {B: 20}
    arenas.end(B)
    assert arenas.look(155) == {B: 5}
    assert arenas.look(160) == {}
    assert arenas.unsure == set()


def test_what_came_while_none_ran_is_nobodys() -> None:
    """What a cell takes while no model runs is booked on none, nor what it gives back."""
    arenas = looked_at()
    assert arenas.look(150) == {}
    run(arenas, A)
    assert arenas.look(150) == {}
    assert arenas.look(100) == {}


def test_of_several_nobody_can_tell() -> None:
    """What came while several models ran is booked on none, and none of them is sure."""
    arenas = looked_at()
    run(arenas, A, B)
    assert arenas.look(150) == {}
    assert arenas.unsure == {A, B}


def test_what_is_back_is_given_back() -> None:
    """What came last is taken to go first; no more is given back than was booked."""
    arenas = looked_at()
    run(arenas, A)
    assert arenas.look(130) == {A: 30}
    assert arenas.look(170) == {}  # 40 that are nobody's
    run(arenas, B)
    assert arenas.look(190) == {B: 20}
    assert arenas.look(175) == {B: -15}
    assert arenas.look(120) == {B: -5, A: -10}
    assert arenas.look(0) == {A: -20}
    assert arenas.look(200) == {}


def test_models_that_come_and_go_are_told_apart() -> None:
    """What changed by loads and closes is no run's; what ran meanwhile nobody knows."""
    arenas = looked_at()
    run(arenas, A)
    arenas.rebase(500)
    assert arenas.look(500) == {}
    assert arenas.unsure == {A}
    arenas.booked(50)
    assert arenas.look(550) == {}


def test_a_model_that_is_closed_gives_nothing_back() -> None:
    """What a closed model kept went with it."""
    arenas = looked_at()
    run(arenas, A)
    assert arenas.look(130) == {A: 30}
    arenas.forget(A)
    arenas.rebase(60)
    assert arenas.look(30) == {}


def test_a_model_that_is_closed_is_sure_again() -> None:
    """What it kept that is not booked went with it."""
    arenas = looked_at()
    run(arenas, A, B)
    assert arenas.look(150) == {}
    arenas.forget(A)
    assert arenas.unsure == {B}


def test_without_a_first_look() -> None:
    """Where nobody knows what was taken before, what runs kept is not known."""
    arenas = Arenas()
    assert not arenas.sees
    run(arenas, A)
    assert arenas.look(130) == {}
    assert arenas.sees
    assert arenas.unsure == {A}


def test_what_nobody_owns_is_one_entry() -> None:
    """A process that takes more and more is not written down step by step."""
    arenas = looked_at(0)
    for nbytes in range(1, 1000):
        arenas.look(nbytes)
    assert len(arenas._taken) == 1
