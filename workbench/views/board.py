"""The parts of the dashboard as HTML: the head, the models, the events; values in, text out.

Names and reasons come from clients and files; all of them are escaped.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from html import escape
from typing import NamedTuple

from workbench.core.status.snapshot import DeviceStatus, ModelStatus, Snapshot
from workbench.events import Entry, Event, ModelEvicted
from workbench.memory.device import GpuReading
from workbench.model import ModelId
from workbench.nbytes import show_nbytes
from workbench.views.colours import BLUE, GREEN, GREY, ORANGE, RED, model_colour
from workbench.views.columns import TableColumn, count_column, nbytes_column, seconds_column
from workbench.views.history import MINUTE_S, History, Traffic, other_nbytes
from workbench.views.states import place, state_words
from workbench.views.table import CLASSES, Looks, heads_html, reasons_html, rows_html, short_words
from workbench.views.text import folded, shortened, subject
from workbench.views.times import clock_time, show_age, show_seconds

STALE_S = 12
"""After so many seconds without a new head, its badge says that there is no news."""

MODELS = 30
"""Rows of the table, but for large models; more models are counted below it."""

NAME = 40
"""Characters of a model's name that are shown: two lines of the table."""

_CELLS = 256  # of a kind that are kept, since most are as they were half a second ago
_LARGE = 0.02  # of the budget: a model that is seen in the chart
_BROKEN = 5  # models that nobody asked for yet
_FOLDS = 10  # models with events
_FOLDED = 20  # events of one model

STYLE = f"""<style>
.wbd {{max-width:1200px; font:13px/1.5 var(--jp-ui-font-family, sans-serif);
  color:var(--jp-ui-font-color1, var(--vscode-foreground, #222))}}
.wbd a {{color:inherit; text-decoration:underline}}
.wbd small, .wbd .q {{font-size:12px; color:var(--jp-ui-font-color1, inherit); opacity:.78}}
.wbd table.m {{width:100%; min-width:700px; table-layout:fixed; border-collapse:collapse;
  font-size:12px}}
.wbd table.m td, .wbd table.m th {{text-align:left; padding:3px 4px; overflow:hidden;
  text-overflow:ellipsis; white-space:nowrap; vertical-align:middle; line-height:18px;
  border-top:1px solid #8883}}
.wbd table.m .n {{text-align:right; font-variant-numeric:tabular-nums}}
.wbd table.m tr {{height:34px}}
.wbd table.m td:first-child {{white-space:normal; overflow-wrap:anywhere; line-height:14px}}
.wbd table.m td:first-child > span {{display:-webkit-box; -webkit-box-orient:vertical;
  -webkit-line-clamp:2; overflow:hidden}}
.wbd table.m th {{white-space:normal; overflow-wrap:anywhere}}
.wbd table.m tr.c td {{background:#8882}}
.wbd .s {{display:flex; flex-wrap:wrap; align-items:baseline}}
.wbd .s b {{font-size:17px}}
.wbd pre {{white-space:pre-wrap; overflow-wrap:anywhere; max-height:220px; overflow:auto;
  font-size:12px; margin:2px 0 6px; color:inherit; background:#8881; padding:6px}}
.wbd .e, .wbd.e {{overflow-wrap:anywhere; padding:1px 0}}
@keyframes wbd-stale {{to {{opacity:1}}}}
.wbd .stale {{opacity:0; animation:wbd-stale 0s linear {STALE_S}s forwards}}
</style>"""

LIVE_STYLE = """<style>.wbd-head .live-models, .wbd-models .live-head {display:none}</style>"""
"""Of ``live`` a box of class ``wbd-head`` shows the head only, one of ``wbd-models`` the models."""


def live(head: str, models: str) -> str:
    """Both parts that change with requests, as one message; each is shown in its own place."""
    return f'<div class="live-head">{head}</div><div class="live-models">{models}</div>'


def head(
    snapshot: Snapshot, traffic: Traffic, *, names: int, link: str, title: str, note: str = ""
) -> str:
    """The address *title*, a link unless *link* is empty, and the figures of the whole server.

    *names* is the number of models that the server knows; *note* replaces the badge that appears
    when no new head comes.
    """
    at = clock_time(snapshot.at_s)
    address = escape(title)
    if link:
        address = f'<a href="{escape(link)}" target="_blank">{address}</a>'
    badge = note and pill(note, GREY)
    if not note:
        stale = pill(f"stopped at {at}, or the kernel is blocked", RED)
        badge = f'<span class="stale">{stale}</span>'
    apart = 'style="margin-right:22px"'  # also in files, where the style sheet may be dropped
    shown = "".join(
        f"<span {apart}><b>{escape(one)}</b> {escape(what)}</span> "
        for one, what in figures(snapshot, traffic, names)
    )
    devices = "".join(f"<div>{escape(device_words(device))}</div>" for device in snapshot.devices)
    return (
        f'<div class="wbd"><div><b>workbench</b> {address} <small>updated {at}</small> {badge}'
        f'</div><div class="s">{shown}</div><div class="q">{devices}</div></div>'
    )


def figures(snapshot: Snapshot, traffic: Traffic, names: int) -> list[tuple[str, str]]:
    """The figures of the whole server, which knows so many *names*, each with its words."""
    ready, budget = snapshot.ready, show_nbytes(snapshot.budget_nbytes)
    return [
        (f"{ready} of {max(names, ready)}", "models ready"),
        (show_nbytes(snapshot.held_nbytes), f"of {budget} budget in use"),
        (rate_words(traffic.rate), "requests/s"),
        *_last_minute(snapshot, traffic),
    ]


def _last_minute(snapshot: Snapshot, traffic: Traffic) -> list[tuple[str, str]]:
    """The figures of the last minute; none of what came before *traffic*."""
    figures = []
    if traffic.p99_s:
        figures.append((show_seconds(traffic.p99_s), "p99 of the last minute"))
    if traffic.failed:
        requests = "request" if traffic.failed == 1 else "requests"
        figures.append((f"{traffic.failed:,}", f"{requests} failed in the last minute"))
    if figures:
        return figures
    last_s = max((model.requests.last_at_s for model in snapshot.models), default=0.0)
    return [] if last_s > snapshot.at_s - MINUTE_S else [("no", "requests in the last minute")]


@lru_cache(_CELLS)
def device_words(status: DeviceStatus) -> str:
    """A device in a sentence: why models run there, and how full and busy it is."""
    device, system = status.device, status.system
    words = [f"{device}: {status.reason}" if device.kind == "cuda" else status.reason]
    if system is None and device.kind == "cuda":
        words.append("the driver does not report its memory in use")
    if system is not None:
        whole = "card" if device.kind == "cuda" else "computer"
        used, total = show_nbytes(system.used_nbytes), show_nbytes(system.total_nbytes)
        words.append(f"{used} of the {whole}'s {total} in use")
    if device.kind == "cpu":
        words.append(f"{show_nbytes(other_nbytes(status))} by the rest of this process")
    return " · ".join([*words, *gpu_words(status.gpu)])


def gpu_words(gpu: GpuReading) -> list[str]:
    """How busy a GPU is, its power and its temperature, as far as its driver tells."""
    words = []
    if gpu.utilization is not None:
        words.append(f"{gpu.utilization:.0%} busy")
    if gpu.power_watts is not None:
        limit = f" of {gpu.power_limit_watts:.0f}" if gpu.power_limit_watts else ""
        words.append(f"{gpu.power_watts:.0f}{limit} W")
    if gpu.temperature_celsius is not None:
        words.append(f"{gpu.temperature_celsius:.0f} °C")
    return words


class Shown(NamedTuple):
    """All that the row of a *model* shows: as long as it stays, so does the row."""

    model: ModelStatus
    traffic: Traffic
    memory: str
    p99: str
    is_chosen: bool
    budget_nbytes: int


ShownRows = dict[ModelId, tuple[Shown, str]]
"""The rows of a table as HTML, each with what it shows."""


def _name(model: ModelStatus) -> str:
    return name_cell(model, breakable(shortened(model.id.name, NAME)))


def name_cell(model: ModelStatus, name: str) -> str:
    """The colour of *model*, whether it is pinned, its *name* as HTML, and its version."""
    swatch = (
        f'<span style="display:inline-block;width:10px;height:10px;border-radius:2px;'
        f'background:{model_colour(model)}"></span>'
    )
    return (
        f'<span title="{escape(str(model.id))}">{swatch}{star(model.pinned)} '
        f"{name} <small>{model.id.version or ''}</small></span>"
    )


def models_table(
    snapshot: Snapshot,
    history: History,
    chosen: str = "",
    looks: Looks = CLASSES,
    kept: ShownRows | None = None,
) -> str:
    """A row for each of the first and the large models of *snapshot*; one is *chosen*.

    Those in trouble are above, then those in memory. As ``table_of``, of the same *looks*.
    """
    first, others = snapshot.models[:MODELS], snapshot.models[MODELS:]
    large = (model for model in others if model.nbytes > _LARGE * snapshot.budget_nbytes)
    models = sorted((*first, *large), key=lambda m: (place(m), m.id))
    if not models:
        return one_line("no model was used yet: choose one and load it, or send it a request")
    more = len(snapshot.models) - len(models) + snapshot.left_out.models
    return table_of(models, snapshot, history, more=more, chosen=chosen, looks=looks, kept=kept)


def with_broken(snapshot: Snapshot, broken: Mapping[str, ModelStatus]) -> Snapshot:
    """*snapshot* with those of the *broken* models that it does not have, by name.

    A few of them, so that they hide no others; the rest are only counted.
    """
    known = {model.id.name for model in snapshot.models}
    more = [model for name, model in broken.items() if name not in known]
    left_out = snapshot.left_out
    left_out = left_out._replace(models=left_out.models + max(0, len(more) - _BROKEN))
    return replace(snapshot, models=(*more[:_BROKEN], *snapshot.models), left_out=left_out)


def table_of(
    models: Sequence[ModelStatus],
    snapshot: Snapshot,
    history: History,
    *,
    more: int,
    name: Callable[[ModelStatus], str] = _name,
    chosen: str = "",
    looks: Looks = CLASSES,
    kept: ShownRows | None = None,
) -> str:
    """The rows of these *models* of *snapshot*, and below them why some are not loaded.

    So many *more* are counted. *name* gives the name of a model as HTML. *kept* are the rows of
    the table before: those that did not change are taken again, and it becomes those of this one.
    """
    kept = {} if kept is None else kept
    budget_nbytes, several = snapshot.budget_nbytes, len(snapshot.devices) > 1
    traffic = [history.traffic(model.id) for model in models]
    memory = nbytes_column("memory", [model.nbytes for model in models])
    p99 = seconds_column("p99", [each.p99_s for each in traffic])
    shown = [
        Shown(*each, each[0].id.name == chosen, budget_nbytes)
        for each in zip(models, traffic, memory.cells, p99.cells, strict=True)
    ]
    fresh = [row for row in shown if row.model.id not in kept or kept[row.model.id][0] != row]
    spark = spark_image if looks.in_file else sparkline
    names = tuple(name(row.model) for row in fresh)
    wide = _columns(fresh, names, memory.head, p99.head, several=several, spark=spark)
    columns = [column for _, column in wide]
    marks = [' class="c"' if row.is_chosen else "" for row in fresh]
    for row, html in zip(fresh, rows_html(columns, looks, marks), strict=True):
        kept[row.model.id] = row, html
    rows = {model.id: kept[model.id] for model in models}
    kept.clear()
    kept.update(rows)
    widths = "".join(f'<col style="width:{width}%">' for width, _ in wide)
    body = "".join(html for _, html in rows.values())
    words = "1 more model is" if more == 1 else f"{more} more models are"
    note = f"<small>{words} not shown</small>" if more else ""
    heads = heads_html(columns, looks)
    table = f'<table class="m"><colgroup>{widths}</colgroup>{heads}{body}</table>'
    return f'<div class="wbd">{table}{note}{reasons_html(models)}</div>'


def _columns(
    rows: Sequence[Shown],
    names: tuple[str, ...],
    memory: str,
    p99: str,
    *,
    several: bool,
    spark: Callable[[tuple[int, ...]], str],
) -> list[tuple[int, TableColumn]]:
    """The columns, each with its width in percent; *memory* and *p99* are the heads of two."""
    models = [row.model for row in rows]
    states = [state_words(model) for model in models]
    sizes = (row.memory + _bar(row.model.nbytes, row.budget_nbytes) for row in rows)
    devices = tuple(escape(str(model.device or "")) for model in models)
    uses = (model.requests.last_at_s for model in models)
    loads = [model.load_statistics for model in models]
    rates = tuple(_recent(row.traffic, spark(row.traffic.recent)) for row in rows)
    return [
        (12 if several else 19, TableColumn("model", names)),
        (12, TableColumn("state", tuple(pill(s.word, s.shade, s.title) for s in states))),
        *([(8, TableColumn("device", devices))] if several else ()),
        (10, TableColumn(memory, tuple(sizes), numbers=True)),
        (7, TableColumn("in flight", tuple(map(_in_flight, models)), numbers=True)),
        (17, TableColumn("requests/s", rates, numbers=True)),
        (8, TableColumn(p99, tuple(row.p99 for row in rows), numbers=True)),
        (
            10,
            TableColumn(
                "last used", tuple(clock_time(at_s) if at_s else "" for at_s in uses), True
            ),
        ),
        (7, count_column("loads", [each.loads for each in loads])),
        (9, count_column("evicted", [each.evictions for each in loads])),
    ]


def star(pinned: bool) -> str:
    """The mark of a pinned model."""
    return ' <span title="pinned: it is never evicted">&#9733;</span>' if pinned else ""


def _in_flight(model: ModelStatus) -> str:
    waiting = f' <span title="{model.pending} wait">+ {model.pending}</span>'
    return str(model.leases or "") + (waiting if model.pending else "")


def _recent(traffic: Traffic, drawn: str) -> str:
    rate = f"{drawn} {rate_words(traffic.rate)}"
    if not traffic.failed:
        return rate
    title = "requests that failed in the last minute"
    failed = f'<b title="{title}">{traffic.failed:,} failed</b>'
    return f'<div style="line-height:13px">{rate}<br>{failed}</div>'


def _bar(nbytes: int, budget_nbytes: int) -> str:
    """The part of the budget that a model takes."""
    share = min(1.0, nbytes / max(1, budget_nbytes))
    back = "#8884" if nbytes else "none"
    return (
        f'<div style="height:4px;background:{back};border-radius:2px">'
        f'<div style="width:{share:.1%};height:4px;background:#1f77b4;border-radius:2px">'
        "</div></div>"
    )


@lru_cache(_CELLS)  # it changes each ten seconds
def sparkline(recent: tuple[int, ...]) -> str:
    """Bars, one a number, as a small SVG; nothing where all are 0."""
    most = max(recent, default=0)
    if not most:
        return ""
    bars = "".join(
        f"M{2 * at} 14v-{max(1, round(14 * count / most))}"
        for at, count in enumerate(recent)
        if count
    )
    return (
        f'<svg width="{2 * len(recent)}" height="14" style="vertical-align:middle">'
        f'<path d="{bars}" stroke="currentColor" stroke-width="1.6" opacity=".7"/></svg>'
    )


def spark_image(recent: tuple[int, ...]) -> str:
    """The same as an image, which is left where drawings are taken out of HTML."""
    svg = sparkline(recent).replace("currentColor", "#888")
    if not svg:
        return ""
    alone = svg.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"')
    source = "data:image/svg+xml;base64," + base64.b64encode(alone.encode()).decode()
    return f'<img alt="requests over time" style="vertical-align:middle" src="{source}">'


def events_list(
    entries: Sequence[Entry], *, most_models: int = _FOLDS, most_each: int = _FOLDED
) -> str:
    """The events folded by model: the latest of each, newest first, and those before it inside.

    At most *most_each* events of each of *most_models* models.
    """
    folds = folded(entries, most_each)
    rows = [_fold(fold) for fold in folds[:most_models]]
    more = len(folds) - len(rows)
    where = "%workbench events, or in a shell: workbench events"
    note = f"<small>events of {more} more models: {where}</small>" if more else ""
    return f'<div class="wbd"><b>Events</b>{"".join(rows)}{note}</div>'


def _fold(fold: Sequence[Entry]) -> str:
    latest, *before = fold
    if not before:
        return f'<div class="e">{_line(latest)}</div>'
    inside = "".join(f'<div class="e">{_line(entry)}</div>' for entry in before)
    return (
        f'<div class="e">{_line(latest)} <details style="display:inline-block;'
        f'vertical-align:top" data-of="{escape(subject(latest))}">'
        f"<summary><small>{len(before)} before it</small></summary>"
        f"{inside}</details></div>"
    )


def _line(entry: Entry) -> str:
    words, shade = event_words(entry.event)
    kind = pill(entry.event.kind, shade)
    return f"<small>{clock_time(entry.at_s)}</small> {kind} {short_words(words, 400)}"


def event_words(event: Event) -> tuple[str, str]:
    """An event in a sentence, and the colour of its kind."""
    verb, shade = _KINDS.get(event.kind, ("", GREY))
    idle = f" ({_idle(event.idle_s)})" if isinstance(event, ModelEvicted) else ""
    return f"{verb}{event}{idle}", shade


_KINDS = {
    "evict": ("evicted ", ORANGE),
    "expire": ("unloaded ", GREY),
    "unload": ("unloaded ", GREY),
    "load": ("loaded ", GREEN),
    "loading": ("loading ", BLUE),
    "unloading": ("unloading ", GREY),
    "failed": ("could not load ", RED),
    "cancelled": ("did not load ", GREY),
    "refused": ("no memory: ", RED),
    "thrash": ("", RED),
}
"""The verb before the text of an event of a kind, and the colour of that kind."""


def _idle(idle_s: float | None) -> str:
    if idle_s is None:
        return "in use"
    return f"idle {show_age(idle_s)}" if idle_s >= 1 else "just used"


def one_line(text: str) -> str:
    """A short message in place of a part, or below the controls."""
    return f'<div class="wbd e"><small>{short_words(text, 300)}</small></div>' if text else ""


@lru_cache(_CELLS)
def pill(text: str, shade: str, title: str = "") -> str:
    """A word in white on *shade*, which is dark enough for it."""
    pointed = f' title="{escape(title)}"' if title else ""
    return (
        f'<span{pointed} style="background:{shade};color:#fff;border-radius:9px;padding:0 6px;'
        f'font-size:12px;white-space:nowrap">{escape(text)}</span>'
    )


def breakable(text: str) -> str:
    """A name that may go on in the next line after ``_``, ``-``, ``.`` and ``/``."""
    return re.sub(r"([-_./])", r"\1<wbr>", escape(text))


def rate_words(rate: float) -> str:
    """Requests per second, with a decimal if they are few."""
    return f"{rate:,.0f}" if rate >= 10 or not rate else f"{rate:.1f}"
