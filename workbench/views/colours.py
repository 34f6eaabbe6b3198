"""The colours of states and models, the same in every view."""

from __future__ import annotations

from workbench.core.status.snapshot import ModelStatus

GREEN, BLUE, ORANGE, RED, GREY = "#2e7d32", "#1565c0", "#a84300", "#c62828", "#616161"
"""Backgrounds of white words: the contrast of each is 4.5 or more."""
INK = "#010203"
"""The colour of text and axes in a picture; a page shows it in the colour of its own text."""

_MODELS = (
    "#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#76b7b2",
    "#edc948", "#ff9da7", "#9c755f", "#7b6fd0", "#d37295",
    "#8cd17d", "#a0cbe8", "#b6992d", "#d4a6c8", "#499894",
    "#f1ce63", "#e15759", "#d7b5a6", "#5a8f29", "#c7a9f0",
)  # fmt: skip
NO_MODEL = "#b9b09f"
"""The colour of a model that was never loaded, and of all models that have no area of their own."""


def number_colour(number: int) -> str:
    """The colour of the model that was the *number*-th to be loaded, from 1; 0: it never was."""
    return _MODELS[(number - 1) % len(_MODELS)] if number else NO_MODEL


def model_colour(model: ModelStatus) -> str:
    """The colour of *model*, as long as its server lives."""
    return number_colour(model.load_statistics.number)
