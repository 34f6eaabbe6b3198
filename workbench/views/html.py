"""Status as HTML, for notebooks: static, without scripts, in the notebook's own colours.

Names and reasons come from clients and files; all of them are escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from workbench.core.status.snapshot import ModelStatus, Snapshot
from workbench.events import Entry
from workbench.model import Signature
from workbench.nbytes import show_nbytes
from workbench.views import board
from workbench.views.colours import model_colour
from workbench.views.columns import model_columns, signature_columns
from workbench.views.states import state_words
from workbench.views.table import Looks, heads_html, reasons_html, rows_html, short_words
from workbench.views.text import device_lines, headline

_TABLE = "border-collapse:collapse;font-size:13px"
_CELL = "padding:3px 12px 3px 0;vertical-align:top;overflow-wrap:anywhere"
_LEFT = f"{_CELL};text-align:left"
_RIGHT = f"{_CELL};text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums"
_LEGEND = 10  # names below the bar of the budget
_NOTE = f"{_LEFT};padding-top:0;font-size:12px;opacity:.78"
_HEAD = "white-space:normal;overflow-wrap:normal"
_LOOKS = Looks(
    f' style="{_LEFT}"',
    f' style="{_RIGHT}"',
    f' style="{_LEFT};{_HEAD}"',
    f' style="{_RIGHT};{_HEAD}"',
)
_SWATCH = "display:inline-block;width:10px;height:10px;border-radius:2px;margin-right:6px"


def models_html(models: Sequence[ModelStatus], signatures: Sequence[Signature | None] = ()) -> str:
    """A table of models, and of what they take and give; a star marks a pinned one."""
    if not models:
        return "<i>no models</i>"
    names = (f"<b>{short_words(model.id.name)}</b>{board.star(model.pinned)}" for model in models)
    states = (board.pill(s.word, s.shade, s.title) for s in map(state_words, models))
    columns = model_columns(models, names, states)
    rows = rows_html(columns, _LOOKS)
    if signatures:  # below each model, as they are long
        takes, gives = (column.cells for column in signature_columns(signatures))
        shapes = map(_shapes, takes, gives, [len(columns)] * len(rows))
        rows = [row + below for row, below in zip(rows, shapes, strict=True)]
    return (
        f'<table style="{_TABLE}"><thead>{heads_html(columns, _LOOKS)}</thead>'
        f"<tbody>{''.join(rows)}</tbody></table>{reasons_html(models)}"
    )


def _shapes(takes: str, gives: str, columns: int) -> str:
    words = [f"takes {takes}" if takes else "", f"gives {gives}" if gives else ""]
    note = escape(" · ".join(filter(None, words))) or "&nbsp;"
    return f'<tr><td colspan="{columns}" style="{_NOTE}">{note}</td></tr>'


def events_html(entries: Sequence[Entry]) -> str:
    """The events folded by model, the newest first."""
    if not entries:
        return "<i>no events</i>"
    return board.events_list(entries, most_models=len(entries), most_each=len(entries))


def status_html(snapshot: Snapshot, title: str = "", link: str = "") -> str:
    """*title* with a *link*, a bar of the budget, the devices, and the models in memory."""
    words = escape(title + headline(snapshot))
    if link:
        words = f'<a href="{escape(link)}" target="_blank" style="color:inherit">{words}</a>'
    devices = "".join(f"<div>{escape(board.device_words(each))}</div>" for each in snapshot.devices)
    details = "".join(f"<div>{escape(line)}</div>" for line in device_lines(snapshot))
    return (
        f"<div><b>{words}</b></div>{budget_bar(snapshot)}{devices}"
        f"<details><summary>Details</summary>{details}</details>"
        f"{models_html(snapshot.models) if snapshot.models else ''}"
    )


def budget_bar(snapshot: Snapshot) -> str:
    """The budget as a bar with a segment a model in memory, and their names below it."""
    held = [model for model in snapshot.models if model.nbytes]
    whole = max(1, snapshot.budget_nbytes, sum(model.nbytes for model in held))
    segments, legend = [], []
    for model in sorted(held, key=lambda each: -each.nbytes):
        shade = model_colour(model)
        words = f"{model.id.name}: {show_nbytes(model.nbytes)}"
        segments.append(
            f'<span title="{escape(words)}" style="width:{model.nbytes / whole:.2%};'
            f'background:{shade}"></span>'
        )
        swatch = f'<i style="{_SWATCH};background:{shade}"></i>'
        legend.append(f"<span>{swatch}{short_words(words)}</span>")
    shown = legend[:_LEGEND]
    if len(legend) > len(shown):
        shown.append(f"<span>and {len(legend) - len(shown)} more</span>")
    return (
        '<div style="display:flex;height:12px;background:#8884;border-radius:6px;overflow:hidden;'
        f'margin:8px 0 4px">{"".join(segments)}</div>'
        f'<div style="display:flex;flex-wrap:wrap;gap:2px 16px">{"".join(shown)}</div>'
    )
