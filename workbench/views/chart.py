"""Memory over time as a picture: SVG, for a page or, on white paper, for a file."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from workbench.core.status.snapshot import DeviceStatus, Snapshot
from workbench.events import Entry, MemoryRefused, ModelEvicted
from workbench.nbytes import show_nbytes
from workbench.tensor import Array
from workbench.views.colours import NO_MODEL
from workbench.views.history import WINDOW_S, DeviceSample, History
from workbench.views.times import clock_time

_NAMED = 10  # models with an area of their own
_OTHER = "#8a8a8a"
_FAINT = 0.2  # how opaque memory is that belongs to no model
_WIDTH, _HEIGHT = 1000, 210
_LEFT, _RIGHT, _TOP, _BOTTOM = 88, 12, 22, 26
_LEAST_S = 30.0  # that the picture shows, also just after the start
_MARKS, _NEAR = 100, 12  # marks that are nearer to each other cannot be told apart
_FLUID = 'width="100%" style="max-width:1200px"'
_PAPER = "var(--jp-layout-color0, var(--vscode-editor-background, #fff))"
_HALO = f'style="stroke:{_PAPER}" stroke-width="4" paint-order="stroke"'


@dataclass(frozen=True, slots=True)
class _Frame:
    """The places of times and bytes in a picture that shows *span_s* seconds."""

    until_s: float
    span_s: float
    most_nbytes: float

    def x(self, at_s: Any) -> Any:
        """Of one time, or of an array of them."""
        share = 1 - (self.until_s - at_s) / self.span_s
        return _LEFT + np.maximum(0.0, share) * (_WIDTH - _LEFT - _RIGHT)

    def y(self, nbytes: Any) -> Any:
        """Of one amount, or of an array of them."""
        return _HEIGHT - _BOTTOM - nbytes / self.most_nbytes * (_HEIGHT - _TOP - _BOTTOM)


def memory_chart(
    history: History,
    device: DeviceStatus,
    events: Sequence[Entry],
    until_s: float,
    number: int = 0,
) -> str:
    """The memory of *device* in the last minutes *until_s* (Unix seconds), as SVG.

    The picture begins with the first sample, if that is later.
    Evictions and refusals among *events* are marks, with the reason as their title: those on the
    device of this *number*.
    """
    samples = history.samples(str(device.device))
    models = max((sample.models_nbytes for sample in samples), default=0)
    whole = max((sample.models_nbytes + sample.other_nbytes for sample in samples), default=0)
    # what is not ours, and what there is, may be a hundred times the budget: the models are to be
    # seen beside it
    far, capacity = 2 * device.budget_nbytes, device.device.total_nbytes
    needed = max(device.budget_nbytes, models, min(whole, far), capacity if capacity <= far else 0)
    age_s = until_s - samples[0].at_s if samples else 0.0
    frame = _Frame(until_s, min(WINDOW_S, max(_LEAST_S, age_s)), 1.12 * needed)
    opening = (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" {_FLUID} role="img" '
        'font-family="sans-serif" font-size="14" fill="currentColor" '
        f'xmlns="http://www.w3.org/2000/svg"><title>memory of {escape(str(device.device))} '
        "in the last minutes</title>"
    )
    parts = [opening]
    parts += _axes(frame)
    if samples:
        parts += _areas(frame, history, samples)
    parts += _limits(frame, device)
    parts += _marks(frame, events, number)
    parts.append("</svg>")
    return "".join(parts)


def memory_charts(history: History, snapshot: Snapshot, events: Sequence[Entry]) -> Iterator[str]:
    """The chart of each device of *snapshot*."""
    for number, device in enumerate(snapshot.devices):
        yield memory_chart(history, device, events, snapshot.at_s, number)


def is_mark(entry: Entry) -> bool:
    """True if a chart marks the event: an eviction, or a refusal of memory."""
    return isinstance(entry.event, ModelEvicted | MemoryRefused)


def legend(history: History, snapshot: Snapshot) -> str:
    """The legend of the charts of *history* until *snapshot*, as HTML."""
    has_gpu = any(device.device.kind != "cpu" for device in snapshot.devices)
    rest = "other programs" if has_gpu else "the rest of this process"
    parts = [
        f"{_swatch(f'{_OTHER}{round(255 * _FAINT):02x}', _OTHER)} {rest}, not in the budget",
        "each model has its own colour",
        "&#9660; evicted",
        "&times; refused, as there was no room",
    ]
    seen = (history.samples(str(device.device)) for device in snapshot.devices)
    peaks = max((len(_peaks(samples)) for samples in seen), default=0)
    if max(peaks, sum(model.nbytes > 0 for model in snapshot.models)) > _NAMED:
        parts[1:2] = [
            f"each of the {_NAMED} largest models has its own colour",
            f"{_swatch(NO_MODEL, NO_MODEL)} the other models",
        ]
    return f'<div class="q">{" · ".join(parts)}</div>'


def _swatch(fill: str, border: str) -> str:
    style = "display:inline-block;width:8px;height:8px;border-radius:2px"
    return f'<span style="{style};border:1px solid {border};background:{fill}"></span>'


def as_image(svg: str, title: str) -> str:
    """*svg* as an ``<img>`` on white, which also survives where SVG in a page does not."""
    paper = '<rect width="100%" height="100%" fill="white"/>'
    # a reader may drop styles: then the picture needs a size of its own
    svg = svg.replace(_FLUID, f'width="{_WIDTH}" height="{_HEIGHT}"', 1)
    alone = svg.replace("</title>", f"</title>{paper}", 1).replace("currentColor", "#222")
    source = "data:image/svg+xml;base64," + base64.b64encode(alone.encode()).decode()
    return f'<img alt="{escape(title)}" style="width:100%;max-width:1200px" src="{source}">'


def _axes(frame: _Frame) -> list[str]:
    parts = []
    for step in range(5):
        nbytes = _round(frame.most_nbytes / 4.5) * step
        y, amount = frame.y(nbytes), show_nbytes(nbytes).replace(".0 ", " ")
        if y < _TOP - 4:
            break
        parts.append(
            f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}" stroke="currentColor" opacity=".15"/>'
            f'<text x="{_LEFT - 6}" y="{y + 5:.1f}" text-anchor="end">{amount}</text>'
        )
    step_s, unit_s, unit = (60, 60, "min") if frame.span_s > 100 else (20, 1, "s")
    for ago_s in range(0, int(frame.span_s) + 1, step_s):
        x = frame.x(frame.until_s - ago_s)
        label = f"-{ago_s // unit_s} {unit}" if ago_s else "now"
        anchor = "middle" if ago_s and x > _LEFT + 20 else "start" if ago_s else "end"
        parts.append(f'<text x="{x:.1f}" y="{_HEIGHT - 5}" text-anchor="{anchor}">{label}</text>')
    return parts


def _round(nbytes: float) -> int:
    """The next amount above that is 1, 2 or 5 of a unit, or ten or a hundred times that."""
    unit = 1
    while nbytes >= 1024 * unit:
        unit *= 1024
    return unit * next(n for n in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1024) if n * unit >= nbytes)


def _areas(frame: _Frame, history: History, samples: Sequence[DeviceSample]) -> list[str]:
    """The largest models of any time, one above the other, then all others, then the rest."""
    peaks = _peaks(samples)
    kinds = {id(sample.held): sample.held for sample in samples}
    named = sorted(sorted(peaks, key=lambda name: -peaks[name])[:_NAMED])
    columns = {key: [held.get(name, 0) for name in named] for key, held in kinds.items()}
    shown = np.array([columns[id(sample.held)] for sample in samples], np.float64)
    rows = [(sample.at_s, sample.models_nbytes, sample.other_nbytes) for sample in samples]
    at_s, models, other = np.array(rows, np.float64).T
    tops = [*np.cumsum(shown, axis=1).T, models, models + other]
    xs = np.round(frame.x(at_s), 1).tolist()
    ys = np.maximum(_TOP, np.round(frame.y(np.array(tops)), 1))
    titles = [
        *((f"{name}, now {show_nbytes(samples[-1].held.get(name, 0))}") for name in named),
        "other models",
        f"not the models', now {show_nbytes(samples[-1].other_nbytes)}",
    ]
    fills = [f'fill="{colour}"' for colour in (*map(history.colour, named), NO_MODEL)]
    # faint: it may reach above the line of the budget, which limits only the models
    fills.append(f'fill="{_OTHER}" fill-opacity="{_FAINT}" stroke="{_OTHER}"')
    drawn = zip(titles, fills, ys, strict=True)
    # the highest first: each hides the lower part of the one before
    return [_area(frame, xs, *each) for each in reversed(list(drawn))]


def _peaks(samples: Sequence[DeviceSample]) -> dict[str, int]:
    """The most bytes that each model held at any time of *samples*."""
    peaks: dict[str, int] = {}
    kinds = {id(sample.held): sample.held for sample in samples}  # most samples share theirs
    for held in kinds.values():
        for name, nbytes in held.items():
            if nbytes > peaks.get(name, 0):
                peaks[name] = nbytes
    return peaks


def _area(frame: _Frame, xs: Sequence[float], title: str, fill: str, ys: Array) -> str:
    changes = (np.flatnonzero(np.diff(ys)) + 1).tolist()  # memory comes and goes in steps
    steps = "".join(f"H{xs[at]}V{y}" for at, y in zip(changes, ys[changes].tolist(), strict=True))
    path = f"M{xs[0]} {frame.y(0):.1f}V{ys[0]}{steps}H{_WIDTH - _RIGHT}V{frame.y(0):.1f}Z"
    return f'<path d="{path}" {fill}><title>{escape(title)}</title></path>'


def _limits(frame: _Frame, device: DeviceStatus) -> list[str]:
    whose = "" if device.device.kind == "cpu" else f"{device.device}: "  # there may be several
    lines = [(f"{whose}budget for models", device.budget_nbytes, "#c62828", _LEFT + 6, "start")]
    capacity_nbytes = device.device.total_nbytes
    if device.budget_nbytes < capacity_nbytes <= frame.most_nbytes:
        right = _WIDTH - _RIGHT - 6  # else it stands in the other's words if they are near
        lines.append(("capacity", capacity_nbytes, "currentColor", right, "end"))
    return [
        f'<path d="M{_LEFT} {frame.y(nbytes):.1f}H{_WIDTH - _RIGHT}" stroke="{stroke}" '
        'stroke-width="1.5" stroke-dasharray="6 4"/>'
        f'<text x="{x}" y="{frame.y(nbytes) - 6:.1f}" text-anchor="{anchor}" {_HALO}>'
        f"{name} {show_nbytes(nbytes)}</text>"
        for name, nbytes, stroke, x, anchor in lines
    ]


def _marks(frame: _Frame, events: Sequence[Entry], number: int) -> list[str]:
    marks: list[str] = []
    lasts: dict[bool, float] = {}  # where the last mark of a refusal, or of an eviction, is
    for entry in reversed(events):
        if entry.at_s < frame.until_s - frame.span_s or len(marks) == _MARKS:
            break
        event = entry.event
        if isinstance(event, ModelEvicted | MemoryRefused) and event.device_number == number:
            x = frame.x(entry.at_s)
            refused = isinstance(event, MemoryRefused)
            if abs(lasts.get(refused, _WIDTH) - x) < _NEAR:
                continue  # the events below the chart have them all
            lasts[refused] = x
            shape = f"M{x - 4:.1f} 2l8 8m0-8l-8 8" if refused else f"M{x - 5:.1f} 2h10l-5 9z"
            what = "refused" if refused else "evicted"
            marks.append(
                f'<g stroke="#c62828" fill="#c62828"><path d="{shape}" stroke-width="2"/>'
                f'<path d="M{x:.1f} 11V{_HEIGHT - _BOTTOM}" opacity=".45"/><title>'
                f"{clock_time(entry.at_s)} {what}: {escape(str(event))}</title></g>"
            )
    return marks
