"""Benchmarks of a server in this process, with progress in the cell that asked for one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from workbench.asking.connection import Connection
from workbench.bench.benchmark import Infer, bench
from workbench.bench.report import Bench, load_words
from workbench.bench.sweep import Point, Sweep
from workbench.bench.tuning import Tuning, tune
from workbench.views.progress import Progress


class _Told(Progress):
    def point(self, point: Point, share: float) -> None:
        """Show which load was measured last."""
        self.show(share, f"{point.variant}, {load_words(point)}")


def bench_shown(
    connection: Connection, model: str, sweep: Sweep, infer: Infer | None = None
) -> Bench:
    """As ``bench``; the connection is closed."""
    with connection, _Told() as progress:
        return bench(connection, model, sweep, infer=infer, told=progress.point)


def tune_shown(
    connection: Connection, model: str, p99_s: float, sweep: Sweep, folders: Iterable[Path]
) -> Tuning:
    """As ``tune``; the model is in the first of *folders* that has it."""
    places = (folder / model for folder in folders)
    folder = next((place for place in places if place.is_dir()), None)
    with connection, _Told() as progress:
        return tune(connection, model, p99_s, sweep, folder=folder, told=progress.point)
