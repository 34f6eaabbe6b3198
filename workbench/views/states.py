"""The state of a model in a person's words, with Triton's word for it in the title."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from workbench.core.status.snapshot import ModelStatus
from workbench.events import Entry, ModelEvicted, ModelLoadFailed
from workbench.model import ModelId, ModelState
from workbench.views.text import clock_time

GREEN, BLUE, ORANGE, RED, GREY = "#2e7d32", "#1565c0", "#a84300", "#c62828", "#616161"
"""Backgrounds of white words: the contrast of each is 4.5 or more."""

_STATES = {
    ModelState.READY: ("ready", GREEN),
    ModelState.LOADING: ("loading", BLUE),
    ModelState.UNLOADING: ("unloading", ORANGE),
}


class StateWords(NamedTuple):
    """A *word*, the *shade* behind it, *why*, and the *title* that a pointer shows."""

    word: str
    shade: str
    why: str
    title: str


def last_events(entries: Iterable[Entry]) -> Mapping[ModelId, Entry]:
    """The latest of *entries* about each model."""
    last: dict[ModelId, Entry] = {}
    for entry in entries:
        model = getattr(entry.event, "model", None)
        if model is not None:
            last[model.plain] = entry
    return last


def state_words(model: ModelStatus, last: Entry | None = None) -> StateWords:
    """Those of *model*; *last* is the latest event about it, which says why it is not loaded."""
    word, shade, why = _words(model, last)
    return StateWords(word, shade, why, f"Triton's state: {model.state.value}")


def _words(model: ModelStatus, last: Entry | None) -> tuple[str, str, str]:
    if model.state in _STATES:
        return *_STATES[model.state], model.reason
    if model.pending:
        return "waiting", ORANGE, model.reason
    if last is not None and isinstance(last.event, ModelEvicted):
        return "evicted", GREY, f"at {clock_time(last.at_s)}: {last.event.reason}"
    unreadable = not model.id.version and model.reason  # no version of its folder can be served
    if unreadable or (last is not None and isinstance(last.event, ModelLoadFailed)):
        return "broken", RED, model.reason
    return "not loaded", GREY, model.reason
