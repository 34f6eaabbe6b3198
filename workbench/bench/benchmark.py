"""One benchmark: a model under one load after another."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import index
from typing import SupportsIndex, TypeAlias

from workbench.asking.connection import Connection
from workbench.asking.question import Question
from workbench.bench.inputs import Inputs
from workbench.bench.point import Point
from workbench.bench.process import measured
from workbench.bench.report import Bench
from workbench.errors import UsageError
from workbench.seconds import parse_seconds

_MOST_CLIENTS = 1024
_LONGEST_S = 3600.0

Several: TypeAlias = Iterable[int] | int | str
"""What a person gives for several numbers: a list of them, one alone, or a text such as "1,8"."""


def bench(
    connection: Connection,
    model: str,
    inputs: object = None,
    *,
    clients: Several,
    batches: Several,
    seconds: float | str,
    told: Callable[[Point, float], object] = lambda _point, _share: None,
) -> Bench:
    """Measure *model* at the server of *connection*: each of *batches* from each of *clients*.

    Without *batches*, requests are of the *inputs* as they are; without these, an example is made.
    Each load lasts so many *seconds*, or longer if answers take their time. *told* is called with
    each point, and the share of all that is done.

    Raises ``UsageError``, ``ServerNotRunning``, and what a first request to the model raises.
    """
    counts = several("clients", clients)
    sizes: list[int | None] = [*several("batches", batches)] or [None]
    period_s = parse_seconds(seconds, "seconds")
    if not counts or not all(1 <= count <= _MOST_CLIENTS for count in counts):
        raise UsageError(f"clients are numbers from 1 to {_MOST_CLIENTS}")
    if not all(size is None or size >= 1 for size in sizes):
        raise UsageError("a batch has at least one element")
    if period_s > _LONGEST_S:
        raise UsageError(f"a load lasts up to {_LONGEST_S:.0f} seconds, not {period_s:g}")
    given = Inputs(connection, model, inputs)
    connection.infer(model, given.of(sizes[0]))
    points: list[Point] = []
    for size in sizes:
        request = connection.request(Question(model, given.of(size)))
        for count in counts:
            points.append(Point(given.count(size), count, measured(request, count, period_s)))
            told(points[-1], len(points) / (len(sizes) * len(counts)))
    return Bench(model, connection.url, tuple(points))


def several(name: str, values: Several) -> list[int]:
    """The numbers that a person gives for *name*. Raises ``UsageError``."""
    listed = values.split(",") if isinstance(values, str) else values
    try:
        each = listed if isinstance(listed, Iterable) else [listed]
        return [_whole_number(value) for value in each if value != ""]
    except (ValueError, TypeError):
        raise UsageError(f"{name}: {values!r} is not a list such as 1,2,4") from None


def _whole_number(value: str | SupportsIndex) -> int:
    return int(value) if isinstance(value, str) else index(value)
