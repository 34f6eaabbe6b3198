"""From measurements to RESULTS.md: medians, ratios, targets met and missed; its sections."""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

OURS = "workbench"


@dataclass(frozen=True)
class Unit:
    """How a figure is written, and whether more of it is better."""

    write: Callable[[float], str]
    more_is_better: bool


def seconds(value: float) -> str:
    """As milliseconds, or microseconds."""
    return f"{value * 1e3:.2f} ms" if value >= 1e-3 else f"{value * 1e6:.0f} µs"


RATE = Unit(lambda value: f"{value:,.0f}/s", more_is_better=True)
LATENCY = Unit(seconds, more_is_better=False)
SHARE = Unit(lambda value: f"{value * 100:.0f} %", more_is_better=True)


@dataclass(frozen=True)
class Target:
    """What is asked for, in words and in numbers.

    With a *peer*, ours is to be at least *bound* times better than it; without
    one, ours is to be *bound* or better, in the unit of the row.
    """

    text: str
    bound: float
    peer: str | None = None


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    title: str
    unit: Unit
    targets: tuple[Target, ...] = ()


Figures = Mapping[str, Sequence[float]]  # by contestant, one of each repeat


def ratio(unit: Unit, figures: Figures, peer: str) -> float:
    """How many times better our median is than that of *peer*."""
    ours, theirs = (statistics.median(figures[name]) for name in (OURS, peer))
    return ours / theirs if unit.more_is_better else theirs / ours


def verdict(row: Row, target: Target, figures: Figures) -> str:
    """The target, and whether it was met."""
    if not figures.get(OURS) or (target.peer and not figures.get(target.peer)):
        return f"{target.text}: not measured"
    if target.peer:
        met = ratio(row.unit, figures, target.peer) >= target.bound
    else:
        median = statistics.median(figures[OURS])
        met = median >= target.bound if row.unit.more_is_better else median <= target.bound
    return f"{target.text}: {'met' if met else '**missed**'}"


def cell(row: Row, figures: Figures, name: str) -> str:
    """The median of one contestant, and how many times better ours is."""
    if not figures.get(name):
        return "–"
    median = row.unit.write(statistics.median(figures[name]))
    if name == OURS or not figures.get(OURS):
        return median
    return f"{median}, ours {ratio(row.unit, figures, name):.2f}×"


def spread(row: Row, figures: Figures, name: str) -> str:
    """The least and the greatest figure of one contestant."""
    if not figures.get(name):
        return "–"
    return f"{row.unit.write(min(figures[name]))} – {row.unit.write(max(figures[name]))}"


def table(
    rows: Mapping[str, Row], titles: Mapping[str, str], measured: Mapping[str, Figures]
) -> str:
    """Medians, ratios and targets; *titles* by contestant, the rest by the key of the row."""
    lines = [
        [
            row.title,
            *(cell(row, measured[key], name) for name in titles),
            "<br>".join(verdict(row, target, measured[key]) for target in row.targets) or "–",
        ]
        for key, row in rows.items()
    ]
    return markdown(["case", *titles.values(), "targets"], lines)


def spreads(
    rows: Mapping[str, Row], titles: Mapping[str, str], measured: Mapping[str, Figures]
) -> str:
    """How far the repeats lay apart; as ``table``."""
    lines = [
        [row.title, *(spread(row, measured[key], name) for name in titles)]
        for key, row in rows.items()
    ]
    return markdown(["case", *titles.values()], lines)


def versions(found: Mapping[str, str]) -> str:
    """Names and numbers in a line."""
    return ", ".join(f"{name} {number}" for name, number in found.items())


def section(
    *,
    title: str,
    made: str,
    machine: str,
    versions: Sequence[str],
    table: str,
    spreads: str,
    left_out: Sequence[str],
) -> str:
    """The section of RESULTS.md of servers beside ours."""
    parts = [
        f"## {title}",
        f"Made by {made}.",
        f"{machine}.",
        "\n".join(f"- {line}" for line in versions),
        "### Medians",
        '"Ours 2×" says that our server is twice as good in that run.',
        table,
        "\n".join(f"- {line}" for line in left_out),
        "### From the least to the greatest of the repeats",
        spreads,
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def put(name: str, text: str, page: str) -> str:
    """The *page* with *text* as its section *name*, in place of the last one."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    if (begin in page) != (end in page):
        raise ValueError(f"of the section {name!r} one mark is missing")
    before, _, rest = page.partition(begin)
    after = rest.partition(end)[2].strip()
    parts = (before.strip(), begin, text.strip(), end, after)
    return "\n\n".join(part for part in parts if part) + "\n"


def write(name: str, text: str) -> None:
    """Put *text* into RESULTS.md as its section *name*."""
    results = Path(__file__).parent / "RESULTS.md"
    results.write_text(put(name, text, results.read_text("utf-8")), "utf-8")


def publish(name: str, section: Callable[[Path], str], doc: str) -> None:
    """Print the *section*, made in an empty folder; with ``--write`` put it into RESULTS.md too."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="write benchmarks/RESULTS.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix=f"{name}-") as work:
        text = section(Path(work))
    print(text)
    if options.write:
        write(name, text)


def markdown(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *lines))
