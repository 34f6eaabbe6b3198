"""The dashboard of a terminal, by rich: memory, models and events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from workbench.core.status.snapshot import DeviceStatus, ModelStatus, Snapshot
from workbench.events import Entry
from workbench.nbytes import show_nbytes
from workbench.views.board import gpu_words
from workbench.views.history import History
from workbench.views.states import place, state_words
from workbench.views.text import event_row, folded, shortened, without_middles
from workbench.views.times import show_age, show_seconds

_BARS = " ▁▂▃▄▅▆▇█"
_EVENTS, _REASONS = 8, 4
_FAILED = "failed/min"
_SPARK = 8  # bars of the last minutes
_NAME = 12  # characters of a name, in the narrowest terminal
_BETWEEN = 2  # characters between two columns
_WIDE = 110  # characters, of a terminal with all columns
_DROPPED = {_WIDE: ("in flight", "loads", "evicted"), 72: ("p99", "used")}  # where it is narrower


def screen(
    url: str, snapshot: Snapshot, history: History, entries: Sequence[Entry], rows: int = 20
) -> RenderableType:
    """The server at *url*: figures, a bar a device, models, steps and failures of loads, events.

    Models, steps and failures take *rows* lines.
    Of each model the last event is shown, and how many came before it. Names and reasons are shown
    as they are, never as markup.
    """
    traffic = history.all_traffic
    head = _line(
        ("workbench ", "bold"), url, f"   {snapshot.ready} ready",
        f"   {traffic.failed} {_FAILED}" if traffic.failed else "",
        f"   {traffic.rate:.1f} requests/s",
        f"   p99 {show_seconds(traffic.p99_s)}" if traffic.p99_s else "",
    )  # fmt: skip
    ordered = sorted(snapshot.models, key=lambda m: (place(m), -m.requests.last_at_s, m.id))
    parts: list[RenderableType] = [head, *map(_device, snapshot.devices)]
    told = [model for model in ordered[:rows] if model.reason][:_REASONS]
    rows -= len(told)
    parts.append(_Models(ordered[:rows], snapshot, history))
    others = max(0, len(ordered) - rows) + snapshot.left_out.models
    if others:
        parts.append(Text(f"{others} more models", style="dim"))
    parts += [
        _line(f"{model.id} {state_words(model).word}: {_short_words(model.reason)}")
        for model in told
    ]
    for latest, *before in folded(entries)[:_EVENTS]:
        at, kind, text = event_row(latest)
        more = f" ({len(before)} before it)" if before else ""
        parts.append(_line((at, "dim"), f" {kind:<9} ", _short_words(text), (more, "dim")))
    return Group(*parts)


def _short_words(text: str) -> str:
    """*text* with paths that leave room, in a line of 80 characters, for what is wrong there."""
    return without_middles(text, 10, 20)


def _line(*words: str | tuple[str, str]) -> Text:
    return Text.assemble(*words, no_wrap=True, overflow="ellipsis")


def _device(device: DeviceStatus) -> RenderableType:
    row = Table.grid(padding=(0, 1))
    held = f"{show_nbytes(device.held_nbytes)} of {show_nbytes(device.budget_nbytes)} budget"
    bar = ProgressBar(max(1, device.budget_nbytes), device.held_nbytes, width=30)
    words = Text(" · ".join([held, *gpu_words(device.gpu)]), no_wrap=True, overflow="ellipsis")
    row.add_row(Text(str(device.device)), bar, words)
    return row


@dataclass(frozen=True)
class _Models:
    """A table of *models*; where it is narrow, without the columns that one can do without."""

    models: Sequence[ModelStatus]
    snapshot: Snapshot
    history: History

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        states = [state_words(model) for model in self.models]
        columns = self._columns(options.max_width)
        others = [["state", *(state.word for state in states)]]
        others += [[head, *cells] for head, cells in columns.items()]
        taken = sum(_BETWEEN + max(map(len, cells)) for cells in others)
        width = max(_NAME, options.max_width - taken)
        table = Table(box=None, pad_edge=False, header_style="dim")
        table.add_column("model", no_wrap=True)
        table.add_column("state", no_wrap=True)
        for head in columns:
            table.add_column(head, justify="right", no_wrap=True)
        for model, state, *cells in zip(self.models, states, *columns.values(), strict=True):
            name = shortened(str(model.id), width)
            table.add_row(Text(name), Text(state.word, style=state.shade), *cells)
        yield table

    def _columns(self, width: int) -> dict[str, list[str]]:
        """The cells of each column by its head, in a terminal of that *width*."""
        models = self.models
        loads = [model.load_statistics for model in models]
        traffic = [self.history.traffic(model.id) for model in models]
        rates = [f"{each.rate:.1f}" for each in traffic]
        sparks = [
            f"{_spark(each.recent)} {rate}" for each, rate in zip(traffic, rates, strict=True)
        ]
        columns = {
            "memory": [show_nbytes(m.nbytes) if m.nbytes else "-" for m in models],
            "in flight": [_in_flight(m) for m in models],
            "requests/s": sparks if width >= _WIDE else rates,
            _FAILED: [str(each.failed or "-") for each in traffic],
            "p99": [show_seconds(each.p99_s) for each in traffic],
            "used": [
                f"{show_age(max(0.0, self.snapshot.at_s - last_s))} ago" if last_s else "-"
                for last_s in (model.requests.last_at_s for model in models)
            ],
            "loads": [str(each.loads) for each in loads],
            "evicted": [str(each.evictions) for each in loads],
        }
        if not any(each.failed for each in traffic):
            del columns[_FAILED]
        dropped = {head for most, heads in _DROPPED.items() if width < most for head in heads}
        return {head: cells for head, cells in columns.items() if head not in dropped}


def _in_flight(model: ModelStatus) -> str:
    return str(model.leases or "-") + (f" + {model.pending}" if model.pending else "")


def _spark(recent: Sequence[int]) -> str:
    """The last of the numbers as bars of eighths; nothing where all are 0."""
    shown = recent[-_SPARK:]
    most = max(shown, default=0)
    return "".join(_BARS[-(-8 * count // most)] for count in shown) if most else ""
