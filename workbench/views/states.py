"""The state of a model in a person's words, with Triton's word for it in the title."""

from __future__ import annotations

from typing import NamedTuple

from workbench.core.status.snapshot import ModelStatus
from workbench.model import ModelState
from workbench.residency import AbsenceKind
from workbench.views.colours import BLUE, GREEN, GREY, ORANGE, RED
from workbench.views.times import clock_time


class StateWords(NamedTuple):
    """A *word*, the *shade* behind it, *why*, and the *title* that a pointer shows."""

    word: str
    shade: str
    why: str
    title: str


def state_words(model: ModelStatus) -> StateWords:
    """The words for the state of *model*; for an evicted one, *why* says when, too."""
    word, shade = _word(model)
    why = model.reason
    if word == "evicted" and model.absence is not None:
        why = f"at {clock_time(model.absence.at_s)}: {why}"
    return StateWords(word, shade, why, f"Triton's state: {model.state.value}")


def place(model: ModelStatus) -> int:
    """The group of *model* in live views: 0 in trouble, 1 in memory, 2 a function, 3 not in memory.

    A function takes no memory; 2 is one that is ready.
    """
    if _word(model) in _TROUBLE:
        return 0
    if model.state is ModelState.READY:
        return 1 if model.nbytes else 2
    return 1 if model.nbytes or model.state in _IN_MEMORY else 3


_IN_MEMORY = {
    ModelState.READY: ("ready", GREEN),
    ModelState.LOADING: ("loading", BLUE),
    ModelState.UNLOADING: ("unloading", ORANGE),
}
_WAITING, _BROKEN = ("waiting", ORANGE), ("broken", RED)
_TROUBLE = (_WAITING, _BROKEN)
_ABSENT = {AbsenceKind.EVICTED: ("evicted", GREY), AbsenceKind.FAILED: _BROKEN}


def _word(model: ModelStatus) -> tuple[str, str]:
    if model.state in _IN_MEMORY:
        return _IN_MEMORY[model.state]
    if model.pending:
        return _WAITING
    not_loaded = ("not loaded", GREY)
    return _ABSENT.get(model.absence.kind, not_loaded) if model.absence else not_loaded
