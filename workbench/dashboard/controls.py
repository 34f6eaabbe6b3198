"""The widgets with which a person changes something; their handlers only pass it on."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from typing import Any

import ipywidgets as widgets

from workbench.nbytes import show_nbytes
from workbench.seconds import show_duration
from workbench.views.board import MODELS

VERBS = ("load", "unload", "pin", "unpin")
POLICIES = (
    ("least recently used", "lru"),
    ("least often used", "lfu"),
    ("largest", "largest"),
    ("cheapest to load again", "cost"),
    ("nobody", "never"),
)
"""Which model is evicted when room is needed: words, and the value of the setting."""

KEEP_ALIVES = (0.0, 10.0, 60.0, 300.0, 900.0, 3600.0)
"""Seconds to choose from; 0.0 is without end, since ipywidgets shows nothing for ``None``."""

_IPYKERNEL = version("ipykernel")
_WAITS = (
    f"With ipykernel {_IPYKERNEL} a change takes effect when the running cell has ended; "
    "with 7.4 and newer, at once."
)
_STEPS = (1.0, 1.25, 1.5, 1.75)  # of a budget, between two powers of 2


def budget_steps(budget_nbytes: int, most_nbytes: int) -> list[tuple[str, int]]:
    """Budgets to choose from, from 1 MiB up to *most_nbytes*, and *budget_nbytes* itself."""
    most_nbytes = max(budget_nbytes, most_nbytes)
    amounts = {int(2**power * step) for power in range(20, 64) for step in _STEPS}
    chosen = sorted({n for n in amounts if n <= most_nbytes} | {budget_nbytes, most_nbytes})
    return [(show_nbytes(nbytes), nbytes) for nbytes in chosen]


def keep_alive_options(keep_alive_s: float) -> list[tuple[str, float]]:
    """Keep-alive times to choose from, *keep_alive_s* among them."""
    return [(_keep_alive_words(span_s), span_s) for span_s in sorted({*KEEP_ALIVES, keep_alive_s})]


def _keep_alive_words(span_s: float | None) -> str:
    return show_duration(span_s) if span_s else "until room is needed"


class Controls:
    """A model to choose, what to do with it, the memory's rules, and the playground.

    *act* is called with a verb and a model, *adjust* with one of ``budget``, ``evict`` and
    ``keep_alive`` and its value, *choose* with a model, *send* with a model and a request, *find*
    when a part of a name was written: on the kernel's threads, so they must return at once. All
    else is for the one thread that draws.
    """

    def __init__(
        self,
        act: Callable[[str, str], None],
        adjust: Callable[[str, Any], None],
        choose: Callable[[str], None],
        send: Callable[[str, str], None],
        find: Callable[[], None],
    ) -> None:
        self._adjust, self._choose = adjust, choose
        self._writing = False
        self._budget_nbytes = 0
        self.chooser = widgets.Dropdown(
            description="Model",
            options=(),
            layout=_layout("auto", flex="1 1 180px", min_width="180px", max_width="300px"),
        )
        buttons = [self._button(verb, act) for verb in VERBS]
        self.slider = widgets.SelectionSlider(
            description="Budget",
            options=[("-", 0)],
            continuous_update=False,
            layout=_layout("360px"),
            style={"description_width": "50px"},
        )
        self.chooser.style.description_width = "50px"
        self.find = widgets.Text(
            description="Find", placeholder="part of a name", layout=_layout("170px")
        )
        self.find.style.description_width = "50px"
        self.find.observe(lambda _change: find(), "value")
        self.policy = _setting("Evict first", POLICIES, "260px")
        self.keep_alive = _setting("Keep idle models", [("-", 0.0)], "310px")
        self.request = widgets.Textarea(layout=_layout("auto", height="84px"))
        self.send = widgets.Button(
            description="Send", tooltip="send this request over the wire", layout=_layout("90px")
        )
        self.send.on_click(lambda _button: send(self.chosen, self.request.value))
        self.chooser.observe(self._on_choice, "value")
        for name, control in (
            ("budget", self.slider), ("evict", self.policy), ("keep_alive", self.keep_alive),
        ):  # fmt: skip
            control.observe(partial(self._on_setting, name), "value")
        self.buttons = buttons
        rows = [
            _row(self.find, self.chooser, *buttons),
            _row(self.slider, self.policy, self.keep_alive),
        ]
        if _IPYKERNEL.startswith("6."):  # one thread runs cells and hears the widgets
            rows.append(widgets.HTML(_WAITS))
        self.bar = widgets.VBox(rows)
        self.playground = widgets.VBox([self.request, self.send])

    @property
    def chosen(self) -> str:
        """The chosen model; an empty text without one."""
        return self.chooser.value or ""

    @property
    def wanted(self) -> str:
        """The part of a name that a person looks for, in lower case; empty for all models."""
        return str(self.find.value).strip().casefold()

    @property
    def active(self) -> list[Any]:
        """The widgets that a person changes."""
        rules = [self.slider, self.policy, self.keep_alive]
        return [self.find, self.chooser, *self.buttons, *rules, self.request, self.send]

    def show(
        self,
        names: Sequence[str],
        budget_nbytes: int,
        most_nbytes: int,
        evict: str,
        keep_alive_s: float | None,
        *,
        first: str = "",
    ) -> None:
        """Offer the *wanted* of *names*, budgets up to *most_nbytes*, and show the settings in use.

        What did not change stays. If no model is chosen yet, it is *first*, or the first one.
        """
        self.find.layout.display = "none" if len(names) <= MODELS else None
        if wanted := self.wanted:
            names = [name for name in names if wanted in name.casefold()]
        self._writing = True
        try:
            if self.chooser.options != tuple(names):
                liked = (self.chosen, first, *names)
                self.chooser.options = tuple(names)
                self.chooser.value = next((name for name in liked if name in names), None)
            if self._budget_nbytes != budget_nbytes:
                self._budget_nbytes = budget_nbytes
                options = budget_steps(budget_nbytes, most_nbytes)
                index = bisect_left([nbytes for _, nbytes in options], budget_nbytes)
                self.slider.options = options
                self.slider.index = index
            if self.policy.value != evict:
                self.policy.value = evict
            span_s = keep_alive_s or 0.0
            if self.keep_alive.value != span_s or len(self.keep_alive.options) == 1:
                self.keep_alive.options = keep_alive_options(span_s)
                self.keep_alive.value = span_s
        finally:
            self._writing = False

    def fill(self, text: str) -> None:
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

    def _on_setting(self, name: str, change: Any) -> None:
        if not self._writing:
            endless = name == "keep_alive" and not change["new"]
            self._adjust(name, None if endless else change["new"])


def setting_words(name: str, value: Any) -> str:
    """A setting and its value in words."""
    if name == "budget":
        return f"budget {show_nbytes(value)}"
    if name == "evict":
        return f"evict first: {next(words for words, policy in POLICIES if policy == value)}"
    return f"keep idle models: {_keep_alive_words(value)}"


def answer_while_busy(control: Any) -> None:
    """Have *control* answered while a cell runs, in ipykernels that would make it wait."""
    comm: Any = getattr(control, "comm", None)
    if hasattr(comm, "_reply_subshell_for"):  # ipykernel 7.4: answers go where the comm last sent
        comm._reply_subshell_for = lambda _data, default: default  # noqa: SLF001


def _setting(description: str, options: Sequence[tuple[str, Any]], width: str) -> Any:
    style = {"description_width": "initial"}
    return widgets.Dropdown(
        description=description, options=options, layout=_layout(width), style=style
    )


def _row(*controls: Any) -> Any:
    return widgets.Box(
        list(controls), layout=widgets.Layout(flex_flow="row wrap", align_items="center")
    )


def _layout(width: str, **more: str) -> Any:
    return widgets.Layout(width=width, **more)
