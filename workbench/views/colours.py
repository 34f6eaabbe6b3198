"""The colours of states and models, the same in every view."""

from __future__ import annotations

from colorsys import hls_to_rgb

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


_TURN, _LIGHTNESSES, _SATURATION = 0.618034, (0.45, 0.6, 0.75), 0.45


def number_colour(number: int) -> str:
    """The colour of the model that was the *number*-th to be loaded, from 1; 0: it never was.

    After those that were chosen, each hue is far from the ones before: by the golden ratio.
    """
    if number <= len(_MODELS):
        return _MODELS[number - 1] if number else NO_MODEL
    lightness = _LIGHTNESSES[number % len(_LIGHTNESSES)]
    parts = hls_to_rgb(number * _TURN % 1, lightness, _SATURATION)
    return "#" + bytes(round(255 * part) for part in parts).hex()


def model_colour(model: ModelStatus) -> str:
    """The colour of *model*, as long as its server lives."""
    return number_colour(model.load_statistics.number)
