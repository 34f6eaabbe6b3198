"""One benchmark: a model, a sweep, and the points."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing
from functools import partial

from workbench.asking.connection import Connection
from workbench.bench.report import Bench, show_point
from workbench.bench.sweep import Point, Sweep, measured
from workbench.bench.targets import Configurations, InProcess, Inputs, Target, Wire
from workbench.errors import InvalidRequest, MemoryExhausted, ModelNotFound, WorkbenchError
from workbench.views.progress import Progress

_log = logging.getLogger(__name__)

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

    Raises ``ModelNotFound``, ``InvalidRequest`` for inputs that the model does not take,
    ``MemoryExhausted`` if it finds no room, ``ServerNotRunning``, ``UsageError``, and as a load
    does.
    """
    given = Inputs(connection, model, sweep.inputs)
    _try_once(connection, model, given.of(sweep.batches[0]))
    target: Target = Wire(connection, model) if infer is None else InProcess(infer)
    points: list[Point] = []
    with closing(target), Configurations(connection, model) as configurations:
        for point in measured(sweep, target, given, configurations):
            points.append(point)
            told(point, len(points) / len(sweep))
    return Bench(model, connection.url, tuple(points))


def _try_once(connection: Connection, model: str, inputs: object) -> None:
    """Raise what is wrong with the *inputs* or the budget; other failures are measured."""
    try:
        connection.infer(model, inputs)
    except (InvalidRequest, MemoryExhausted, ModelNotFound):
        raise
    except WorkbenchError as error:
        _log.debug("the first request to %s failed: %s", model, error)


def bench_shown(
    connection: Connection, model: str, sweep: Sweep, infer: Infer | None = None
) -> Bench:
    """As ``bench``, with progress in the cell that asked for it; the connection is closed."""
    with connection, Progress() as progress:
        told = partial(show_point, progress)
        return bench(connection, model, sweep, infer=infer, told=told)
