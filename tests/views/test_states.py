"""The state of a model in a person's words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from workbench.core.status.snapshot import ModelStatus
from workbench.events import Entry, Event, ModelEvicted, ModelLoadFailed, ModelUnloaded
from workbench.model import ModelId, ModelState
from workbench.views.states import GREY, RED, last_events, state_words
from workbench.views.text import clock_time

A = ModelId("a", 1)
ABSENT = ModelStatus(A, ModelState.UNAVAILABLE, reason="a reason")


@pytest.mark.parametrize(
    ("event", "word", "shade", "why"),
    [
        (ModelEvicted(A, 1, "for b"), "evicted", GREY, f"at {clock_time(5.0)}: for b"),
        (ModelLoadFailed(A, "no such operator"), "broken", RED, "a reason"),
        (ModelUnloaded(A, 1, "asked for"), "not loaded", GREY, "a reason"),
    ],
)
def test_why_a_model_is_not_loaded(event: Event, word: str, shade: str, why: str) -> None:
    """The latest event about it says why, and of an eviction when; Triton's word is the title."""
    last = last_events([Entry(1, 4.0, ModelLoadFailed(A, "before")), Entry(2, 5.0, event)])
    expected = (word, shade, why, "Triton's state: UNAVAILABLE")
    assert state_words(ABSENT, last[A]) == expected


def test_other_states() -> None:
    """A model in memory says its own state, whatever happened before; one may be waited for."""
    last = Entry(1, 5.0, ModelLoadFailed(A, "before"))
    for state in (ModelState.READY, ModelState.LOADING, ModelState.UNLOADING):
        assert state_words(replace(ABSENT, state=state), last).word == state.value.lower()
    assert state_words(ABSENT).word == "not loaded"
    assert state_words(replace(ABSENT, pending=1), last).word == "waiting"
