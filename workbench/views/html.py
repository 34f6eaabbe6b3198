"""Status as HTML, for notebooks: static, without scripts, in the notebook's own colours.

Names and reasons come from clients and files; all of them are escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from workbench.core.status.snapshot import ModelStatus, Snapshot
from workbench.events import Entry
from workbench.views.text import MODEL_COLUMNS, device_lines, event_row, headline, model_row

_STATE_COLOURS = {
    "READY": "#2e7d32",
    "LOADING": "#1565c0",
    "UNLOADING": "#ef6c00",
    "UNAVAILABLE": "#757575",
}
_KIND_COLOURS = {
    "load": "#2e7d32",
    "evict": "#c62828",
    "refused": "#c62828",
    "failed": "#c62828",
}
_TABLE = "border-collapse:collapse;font-size:13px"
_CELL = "text-align:left;padding:3px 12px 3px 0"
_SHORT = f"{_CELL};white-space:nowrap"  # all but the last of a row, which is a sentence
_QUIET = "color:var(--jp-ui-font-color2, var(--vscode-descriptionForeground, #666))"


def models_html(models: Sequence[ModelStatus]) -> str:
    """A table of models; a star marks a pinned one."""
    if not models:
        return "<i>no models</i>"
    return _table(MODEL_COLUMNS, [_model_cells(model) for model in models])


def events_html(entries: Iterable[Entry]) -> str:
    """A table of events, the newest first."""
    rows = [
        (_quiet(at), _coloured(kind, _KIND_COLOURS.get(kind, "inherit")), escape(text))
        for at, kind, text in (event_row(entry) for entry in entries)
    ]
    return _table(("time", "event", "what"), rows[::-1]) if rows else "<i>no events</i>"


def status_html(snapshot: Snapshot, title: str = "") -> str:
    """*title* and the head line, a bar of the budget, and the models in memory."""
    share = min(1.0, snapshot.held_nbytes / snapshot.budget_nbytes)
    bar = (
        '<div style="width:320px;height:8px;background:#8884;border-radius:4px;margin:6px 0">'
        f'<div style="width:{share:.1%};height:8px;background:#1f77b4;border-radius:4px"></div>'
        "</div>"
    )
    parts = [f"<div><b>{escape(title + headline(snapshot))}</b></div>", bar]
    parts.extend(f"<div>{_quiet(line)}</div>" for line in device_lines(snapshot))
    if snapshot.models:
        parts.append(models_html(snapshot.models))
    return "".join(parts)


def _model_cells(status: ModelStatus) -> tuple[str, ...]:
    name, version, state, *rest, reason = model_row(status)
    return (
        f"<b>{escape(name)}</b>",
        escape(version),
        _coloured(state, _STATE_COLOURS[state]),
        *map(escape, rest),
        _quiet(reason),
    )


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f'<th style="{_CELL}">{escape(text)}</th>' for text in heads)
    styles = [*[_SHORT] * (len(heads) - 1), _CELL]
    body = "".join(
        "<tr>"
        + "".join(f'<td style="{s}">{cell}</td>' for s, cell in zip(styles, row, strict=True))
        + "</tr>"
        for row in rows
    )
    return f'<table style="{_TABLE}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _quiet(text: str) -> str:
    return f'<span style="{_QUIET}">{escape(text)}</span>'


def _coloured(text: str, colour: str) -> str:
    return f'<span style="color:{colour}">{escape(text)}</span>'
