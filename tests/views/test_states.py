"""The state of a model in a person's words."""

from dataclasses import replace

import pytest

from workbench.core.status.snapshot import ModelStatus
from workbench.model import ModelId, ModelState
from workbench.residency import Absence, AbsenceKind
from workbench.views.colours import GREY, RED
from workbench.views.states import state_words
from workbench.views.times import clock_time

ABSENT = ModelStatus(ModelId("a", 1), ModelState.UNAVAILABLE, reason="a reason")


@pytest.mark.parametrize(
    ("kind", "word", "shade", "why"),
    [
        (AbsenceKind.EVICTED, "evicted", GREY, f"at {clock_time(5.0)}: a reason"),
        (AbsenceKind.FAILED, "broken", RED, "a reason"),
        (AbsenceKind.UNLOADED, "not loaded", GREY, "a reason"),
        (AbsenceKind.REFUSED, "not loaded", GREY, "a reason"),
        (AbsenceKind.CANCELLED, "not loaded", GREY, "a reason"),
    ],
)
def test_why_a_model_is_not_loaded(kind: AbsenceKind, word: str, shade: str, why: str) -> None:
    """How it left memory says why, and of an eviction when; Triton's word is the title."""
    model = replace(ABSENT, absence=Absence(kind, "a reason", 5.0))
    assert state_words(model) == (word, shade, why, "Triton's state: UNAVAILABLE")


def test_other_states() -> None:
    """A model in memory says its own state, whatever happened before; one may be waited for."""
    failed = replace(ABSENT, absence=Absence(AbsenceKind.FAILED, "before"))
    for state in (ModelState.READY, ModelState.LOADING, ModelState.UNLOADING):
        assert state_words(replace(failed, state=state)).word == state.value.lower()
    assert state_words(ABSENT).word == "not loaded"
    assert state_words(replace(failed, pending=1)).word == "waiting"
