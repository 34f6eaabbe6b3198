"""A benchmark as people see it: a sentence, a figure, and a table."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from workbench.annexes.bench.client import Point
from workbench.views.colours import INK
from workbench.views.table import answer_html, answer_text
from workbench.views.times import show_seconds

if TYPE_CHECKING:
    from workbench.views.picture import Picture

_COLOURS = ("#1f77b4", "#f28e2b", "#59a14f", "#b07aa1", "#76b7b2", "#9c755f")
_HEADS = ("batch", "load", "elements/s", "p50", "p90", "p99", "")
_NUMBERS = {0, 2, 3, 4, 5}  # columns


@dataclass(frozen=True, eq=False, repr=False)
class Bench:
    """The measurements of *model* at the server of *url*; *points* are in order of measuring."""

    model: str
    url: str
    points: tuple[Point, ...]

    @property
    def sentence(self) -> str:
        served = [point for point in self.points if point.answers]
        if not served:
            return f"{self.model} answered no request: {self.points[0].failure}"
        most = max(served, key=lambda point: point.throughput)
        return (
            f"{self.model} answers up to {most.throughput:,.0f} elements a second "
            f"({most.asked}), with a p99 of {show_seconds(most.p99_s)}"
        )

    def __repr__(self) -> str:
        return answer_text(self.sentence, self._failures(), self._table(), _NUMBERS)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        told = self.sentence, self._failures(), self.figure(), self._table(), _NUMBERS
        return {"text/plain": repr(self), "text/html": answer_html(*told)}

    def _table(self) -> list[tuple[str, ...]]:
        return [_HEADS, *map(row, self.points)]

    def _failures(self) -> list[str]:
        """How many requests failed in all, and the first of them; nothing if none did."""
        failed = sum(point.failed for point in self.points)
        if not failed:
            return []
        first = next(point.failure for point in self.points if point.failed)
        asked = failed + sum(point.answers for point in self.points)
        first = " ".join(first.split())
        return [f"{failed} of {asked} requests failed, the first one so: {first[:200]}"]

    def figure(self) -> Picture:
        """Latency against throughput: p50 as lines, p99 as dashes, a colour a batch."""
        from matplotlib.ticker import LogLocator, NullFormatter

        from workbench.views.picture import Picture, draw_in_ink  # matplotlib takes its time

        drawn = Picture(figsize=(9.5, 3.8), layout="constrained")
        axes = drawn.add_subplot()
        served = [point for point in self.points if point.answers]
        for number, (batch, group) in enumerate(groupby(served, key=lambda each: each.batch)):
            line = list(group)
            colour = _COLOURS[number % len(_COLOURS)]
            across = [point.throughput for point in line]
            p50, p99 = ([getattr(p, name) * 1e3 for p in line] for name in ("p50_s", "p99_s"))
            axes.plot(across, p50, "o-", color=colour, label=f"batches of {batch}", markersize=4)
            axes.plot(across, p99, "o--", color=colour, markersize=3)
            for point, x, y in zip(line, across, p50, strict=True):
                axes.annotate(
                    str(point.clients), (x, y), xytext=(3, -11), textcoords="offset points",
                    color=INK, fontsize=8,
                )  # fmt: skip
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.margins(y=0.1)  # for the words below the lowest point
        axes.set_xlim(left=0)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.set_xlabel("elements a second; beside each point, how many clients")
        axes.set_ylabel("ms: p50, and p99 dashed")
        axes.spines[["top", "right"]].set_visible(False)
        if served:
            axes.legend(frameon=False, fontsize=8)
        draw_in_ink(drawn)
        return drawn


def row(point: Point) -> tuple[str, ...]:
    """The cells of *point*, as the table's heads name them."""
    return (
        str(point.batch),
        point.asked,
        f"{point.throughput:,.0f}",
        *map(show_seconds, (point.p50_s, point.p90_s, point.p99_s)),
        "; ".join(point.notes),
    )
