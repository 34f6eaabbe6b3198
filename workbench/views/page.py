"""The status page of a server: one HTML document, and its parts, which change.

Nothing in it comes from another host. Names and reasons come from clients and files; all of them
are escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from string import Template
from types import MappingProxyType
from urllib.parse import quote

from workbench.core.status.snapshot import ModelStatus, Snapshot
from workbench.events import Entry
from workbench.model import ModelId, ModelState
from workbench.version import __version__
from workbench.views import board
from workbench.views.chart import legend, memory_charts
from workbench.views.history import History, Traffic
from workbench.views.html import budget_bar
from workbench.views.states import place
from workbench.views.text import shortened
from workbench.views.times import clock_time

_ROWS = 200  # of the table; more models are counted below it


def status_page(parts: Mapping[str, str]) -> str:
    """The document with its *parts*."""
    template = Template(files("workbench.views").joinpath("page.html").read_text("utf-8"))
    return template.substitute(parts, style=board.STYLE)


def page_parts(
    snapshot: Snapshot,
    names: Sequence[str],
    entries: Sequence[Entry],
    history: History,
    kept: Mapping[str, str] = MappingProxyType({}),
    *,
    broken: Mapping[str, ModelStatus] = MappingProxyType({}),
) -> dict[str, str]:
    """The new HTML of the document's changing elements, by their ids.

    *names* are of all models, *entries* of the log, oldest first, and *history* has *snapshot*.
    Of *kept*, "memory" and "events" stay as they are. *broken* are models that cannot be read, by
    name.
    """
    models = _all_models(snapshot.models, names, broken)
    return {
        "head": _head(snapshot, len(models), history.all_traffic),
        "memory": kept.get("memory") or _memory(snapshot, entries, history),
        "models": _models(models, snapshot, history),
        "events": kept.get("events") or board.events_list(entries),
    }


def _all_models(
    known: Sequence[ModelStatus], names: Sequence[str], broken: Mapping[str, ModelStatus]
) -> list[ModelStatus]:
    """The models *known*, and one for each other name: the *broken* one, or one not loaded."""
    counted = {model.id.name for model in known}
    unused = (
        broken.get(name) or ModelStatus(ModelId(name, 0), ModelState.UNAVAILABLE)
        for name in names
        if name not in counted
    )
    return sorted((*known, *unused), key=lambda model: (place(model), model.id))


def _head(snapshot: Snapshot, names: int, traffic: Traffic) -> str:
    devices = "".join(f"<p>{escape(board.device_words(each))}</p>" for each in snapshot.devices)
    figures = board.figures(snapshot, traffic, names)
    return (
        f"<h1>workbench {escape(__version__)}</h1>"
        f"<p>{', '.join(f'<b>{one}</b> {what}' for one, what in figures)} "
        f'<small id="news">at {clock_time(snapshot.at_s)}</small></p>'
        f"{budget_bar(snapshot)}{devices}"
    )


def _memory(snapshot: Snapshot, entries: Sequence[Entry], history: History) -> str:
    charts = memory_charts(history, snapshot, entries)
    return f'<div class="wbd">{"".join(charts)}{legend(history, snapshot)}</div>'


def _models(models: Sequence[ModelStatus], snapshot: Snapshot, history: History) -> str:
    if not models:
        return "<p>The repository has no models yet.</p>"
    shown = models[:_ROWS]
    more = len(models) - len(shown)
    return f"<h2>Models</h2>{board.table_of(shown, snapshot, history, more=more, name=_name)}"


def _name(model: ModelStatus) -> str:
    """The name of *model*, as a link to the page where it can be tried."""
    place = f"v2/models/{quote(model.id.name, safe='')}/docs"
    name = board.breakable(shortened(model.id.name, board.NAME))
    link = f'<a href="{place}">{name}</a>'
    return board.name_cell(model, link)
