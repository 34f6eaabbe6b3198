"""Why the chart has a mark: its evictions and refusals to choose from, and their reasons."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import ipywidgets as widgets

from workbench.events import Entry, MemoryRefused, ModelEvicted
from workbench.views import board
from workbench.views.history import WINDOW_S
from workbench.views.text import cut
from workbench.views.times import clock_time

_SHOWN_MARKS = 30  # the newest ones
_NAME = 40  # characters of a model's name
_NONE = (("choose an eviction or a refusal", 0),)


class Marks:
    """A choice of the marks; *chosen* is called on the kernel's threads when a person chooses.

    ``show`` is for the one thread that draws.
    """

    def __init__(self, chosen: Callable[[], None]) -> None:
        self.chooser = widgets.Dropdown(
            description="Why", options=_NONE, layout=widgets.Layout(width="360px"),
            style={"description_width": "50px"},
        )  # fmt: skip
        self._why = widgets.HTML()
        self.row = widgets.VBox([self.chooser, self._why])
        self._writing = False
        self._notify = chosen
        self.chooser.observe(self._on_choice, "value")

    def show(self, marked: Sequence[Entry], until_s: float) -> None:
        """Offer the *marked* events that a chart until *until_s* (Unix seconds) shows.

        And tell why the chosen one is there.
        """
        shown = (entry for entry in reversed(marked) if entry.at_s >= until_s - WINDOW_S)
        marks = list(islice(shown, _SHOWN_MARKS))
        options = (*_NONE, *((_label(entry), entry.number) for entry in marks))
        if self.chooser.options != options:
            chosen = self.chooser.value
            self._writing = True
            try:
                self.chooser.options = options
                kept = chosen in {number for _, number in options}
                self.chooser.value = chosen if kept else 0
            finally:
                self._writing = False
        entry = next((each for each in marks if each.number == self.chooser.value), None)
        self.row.layout.display = None if marks else "none"
        self._why.value = board.one_line(board.event_words(entry.event)[0]) if entry else ""

    def _on_choice(self, _change: Any) -> None:
        if not self._writing:
            self._notify()


def _label(entry: Entry) -> str:
    event = entry.event
    assert isinstance(event, ModelEvicted | MemoryRefused)
    what = "evicted" if isinstance(event, ModelEvicted) else "no memory for"
    return f"{clock_time(entry.at_s)} {what} {cut(str(event.model), _NAME)}"
