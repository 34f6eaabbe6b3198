"""Colours tell models apart."""

from workbench.views.colours import NO_MODEL, number_colour


def test_models_differ() -> None:
    """Among 300 models no two have the same colour, nor that of a model that was never loaded."""
    colours = {number_colour(number) for number in range(1, 301)}
    assert len(colours) == 300
    assert NO_MODEL not in colours
    assert all(len(colour) == len("#rrggbb") for colour in colours)
