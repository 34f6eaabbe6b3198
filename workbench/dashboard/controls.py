"""The widgets with which a person changes something; their handlers only pass it on."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets as widgets

from workbench.nbytes import show_nbytes

VERBS = ("load", "unload", "pin", "unpin")
_STEPS = (1.0, 1.25, 1.5, 1.75)  # of a budget, between two powers of 2


def budget_steps(budget_nbytes: int, most_nbytes: int) -> list[tuple[str, int]]:
    """Budgets to choose from, from 1 MiB up to *most_nbytes*, and *budget_nbytes* itself."""
    most_nbytes = max(budget_nbytes, most_nbytes)
    amounts = {int(2**power * step) for power in range(20, 64) for step in _STEPS}
    chosen = sorted({n for n in amounts if n <= most_nbytes} | {budget_nbytes, most_nbytes})
    return [(show_nbytes(nbytes), nbytes) for nbytes in chosen]


class Controls:
    """A model to choose, what to do with it, the budget, and the playground.

    *act* is called with a verb and a model, *resize* with bytes, *choose* with a model, *send*
    with a model and a request: on the kernel's threads, so they must return at once. All else
    is for the one thread that draws.
    """

    def __init__(
        self,
        act: Callable[[str, str], None],
        resize: Callable[[int], None],
        choose: Callable[[str], None],
        send: Callable[[str, str], None],
    ) -> None:
        self._resize, self._choose = resize, choose
        self._writing = False
        self._budget_nbytes = 0
        self.chooser = widgets.Dropdown(description="Model", options=(), layout=_layout("300px"))
        buttons = [self._button(verb, act) for verb in VERBS]
        self.slider = widgets.SelectionSlider(
            description="Budget",
            options=[("-", 0)],
            continuous_update=False,
            layout=_layout("360px"),
            style={"description_width": "50px"},
        )
        self.chooser.style.description_width = "50px"
        self.request = widgets.Textarea(layout=_layout("100%", height="84px"))
        self.send = widgets.Button(
            description="Send", tooltip="send this request over the wire", layout=_layout("90px")
        )
        self.send.on_click(lambda _button: send(self.chosen, self.request.value))
        self.chooser.observe(self._on_choice, "value")
        self.slider.observe(self._on_slide, "value")
        self.buttons = buttons
        row = {"flex_flow": "row wrap", "align_items": "center"}
        self.bar = widgets.Box([self.chooser, *buttons, self.slider], layout=widgets.Layout(**row))
        self.playground = widgets.VBox([self.request, self.send])

    @property
    def chosen(self) -> str:
        """The chosen model; an empty text without one."""
        return self.chooser.value or ""

    @property
    def active(self) -> list[Any]:
        """The widgets that a person changes."""
        return [self.chooser, *self.buttons, self.slider, self.request, self.send]

    def show(self, names: Sequence[str], budget_nbytes: int, most_nbytes: int) -> None:
        """Offer the models *names*, and budgets up to *most_nbytes*; what did not change stays."""
        self._writing = True
        try:
            if self.chooser.options != tuple(names):
                chosen = self.chosen
                self.chooser.options = tuple(names)
                self.chooser.value = chosen if chosen in names else next(iter(names), None)
            if self._budget_nbytes != budget_nbytes:
                self._budget_nbytes = budget_nbytes
                options = budget_steps(budget_nbytes, most_nbytes)
                index = bisect_left([nbytes for _, nbytes in options], budget_nbytes)
                self.slider.options = options
                self.slider.index = index
        finally:
            self._writing = False

    def fill(self, text: str) -> None:
        """Put *text* in the place of the request."""
        self.request.value = text
        self.request.placeholder = "the inputs are too large for an example; write a request here"

    def _button(self, verb: str, act: Callable[[str, str], None]) -> Any:
        button = widgets.Button(
            description=verb.capitalize(),
            tooltip=f"{verb} the chosen model",
            layout=_layout("76px"),
        )
        button.on_click(lambda _button: act(verb, self.chosen))
        return button

    def _on_choice(self, change: Any) -> None:
        if change["new"]:
            self._choose(change["new"])

    def _on_slide(self, change: Any) -> None:
        if not self._writing and change["new"]:
            self._resize(change["new"])


def answer_while_busy(control: Any) -> None:
    """Have *control* answered while a cell runs, in ipykernels that would make it wait."""
    comm: Any = getattr(control, "comm", None)
    if hasattr(comm, "_reply_subshell_for"):  # ipykernel 7.4: answers go where the comm last sent
        comm._reply_subshell_for = lambda _data, default: default  # noqa: SLF001


def _layout(width: str, **more: str) -> Any:
    return widgets.Layout(width=width, **more)
