"""One benchmark: a model, a sweep, and the points."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from workbench.asking.connection import Connection
from workbench.bench.report import Bench
from workbench.bench.sweep import Point, Sweep, measured
from workbench.bench.targets import Configurations, InProcess, Inputs, Target, Wire

Infer = Callable[[object], object]


def bench(
    connection: Connection,
    model: str,
    sweep: Sweep,
    *,
    infer: Infer | None = None,
    told: Callable[[Point, float], object] = lambda _point, _share: None,
) -> Bench:
    """Measure *model* at the server of *connection*.

    With *infer* the model is asked by that function, in this process, and not over the wire.
    *told* is called with each point, and the share of the sweep that is done.

    Raises ``ModelNotFound``, ``ServerNotRunning``, ``UsageError``, and as a load does.
    """
    given = Inputs(connection, model, sweep.inputs)
    target: Target = Wire(connection, model) if infer is None else InProcess(infer)
    points: list[Point] = []
    with closing(target), Configurations(connection, model) as configurations:
        for point in measured(sweep, target, given, configurations):
            points.append(point)
            told(point, len(points) / len(sweep))
    return Bench(model, connection.url, tuple(points))
