"""Finds the configuration of a model that serves most within a limit on its latency."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from google.protobuf import json_format, text_format

from workbench.asking.connection import Connection
from workbench.bench.report import Bench, html, show_point, text
from workbench.bench.sweep import Point, Sweep, best, measured
from workbench.bench.targets import Configurations, Inputs, Target, Wire
from workbench.bench.variant import Config, Variant, check_configurable
from workbench.errors import UsageError
from workbench.protos import message_class
from workbench.repository.config import CONFIG_FILENAME
from workbench.repository.config_text import as_text, portable, replace_config
from workbench.seconds import show_duration
from workbench.views.progress import Progress

_GAIN = 1.05  # what a change must give, or it is taken for noise


@dataclass(frozen=True, eq=False, repr=False)
class Tuning:
    """What was found for *model*: the *chosen* variant, ``None`` if none keeps within *p99_s*.

    *before* and *after* are the best points of its own configuration and of the chosen one, from
    one more measurement at the end. If neither kept within *p99_s* then, *unsteady* is the point
    that did earlier. *config* is the text of the ``config.pbtxt`` with the evidence as comments,
    and *path* where it was written, ``None`` if nothing was to be changed.
    """

    bench: Bench
    p99_s: float
    chosen: Variant | None
    before: Point | None
    after: Point | None
    unsteady: Point | None = None
    config: str = ""
    path: Path | None = None

    @property
    def sentence(self) -> str:
        limit = f"a p99 of {show_duration(self.p99_s)}"
        if (first := self.unsteady) is not None:
            served = f"{self.bench.model} served {first.throughput:,.0f} elements a second"
            return (
                f"{served} within {limit} with {first.variant}, but not when it was measured once "
                "more: nothing was changed; measure again while little else runs"
            )
        if self.chosen is None or self.after is None:
            return f"no configuration of {self.bench.model} keeps within {limit}"
        now = f"{self.after.throughput:,.0f} elements a second within {limit}"
        if self.chosen == Variant():
            return f"{self.bench.model} is best as it is configured: {now}"
        earlier = f"{self.before.throughput:.0f}" if self.before else "none"
        where = f"; written to {self.path}" if self.path else ""
        return f"{self.bench.model} serves {now} with {self.chosen} ({earlier} before){where}"

    def __repr__(self) -> str:
        return text(self.sentence, self.bench.points)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": html(self.sentence, self.bench.points)}


def tune(
    connection: Connection,
    model: str,
    p99_s: float,
    sweep: Sweep,
    *,
    folder: Path | None = None,
    told: Callable[[Point, float], object] = lambda _point, _share: None,
) -> Tuning:
    """Try batching, instances and threads one after another, each with the best of those before.

    Of each, more and more clients ask until *p99_s* is exceeded. *sweep* says how many, of which
    batch, and for how long; its variants are not used. What served most is measured once more
    beside the model's own configuration, and written into *folder* if it is still better there.
    *told* is called with each point, and the share that is done.

    Raises ``ModelNotFound``, ``ServerNotRunning``, ``UsageError``, and as a load does.
    """
    given = Inputs(connection, model, sweep.inputs)
    points: list[Point] = []
    own = connection.config(model)
    check_configurable(own)
    tried = list(_tried(own))
    most = (len(tried) + 1) * len(sweep.clients) + 2
    target: Target = Wire(connection, model)

    def is_over(point: Point) -> bool:
        return point.load.p99_s > p99_s or not point.load.answers

    def measure(variant: Variant, clients: tuple[int, ...]) -> Point | None:
        one, begin = replace(sweep, variants=(variant,), clients=clients), len(points)
        for point in measured(one, target, given, configurations, is_over):
            points.append(point)
            told(point, len(points) / most)
        return best(points[begin:], p99_s)

    with closing(target), Configurations(connection, model) as configurations:
        before = measure(Variant(), sweep.clients)
        chosen, after = Variant(), before
        for change in tried:
            variant = replace(chosen, **change)
            found = measure(variant, sweep.clients)
            if found and (not after or found.throughput > _GAIN * after.throughput):
                chosen, after = variant, found
        unsteady = after
        if after and chosen != Variant():
            again = measure(chosen, (after.clients,))
            before = measure(Variant(), (before.clients,)) if before else None
            if not again or (before and again.throughput <= _GAIN * before.throughput):
                chosen, after = Variant(), before
            else:
                after = again
    report = Bench(model, connection.url, tuple(points))
    unsteady = None if after else unsteady
    tuning = Tuning(report, p99_s, chosen if after else None, before, after, unsteady)
    if not after or chosen == Variant():
        return tuning
    changed = config_text(tuning.sentence, repr(report), own, chosen, folder)
    path = replace_config(folder, changed) if folder else None
    if path:
        connection.load(model)
    return replace(tuning, config=changed, path=path)


def _tried(config: Config) -> Iterator[dict[str, Any]]:
    """The changes that are worth a try, for a model of *config*."""
    batches = "dynamic_batching" in config
    if batches:
        yield {"batching": False}
    else:
        try:
            Variant(batching=True).of(config)
        except UsageError:
            pass  # it takes no batches
        else:
            yield {"batching": True}
    cores = os.cpu_count() or 1
    for count in sorted({1, 2, cores}):
        yield {"instances": count}
    for count in sorted({1, cores}):
        yield {"threads": count}


def config_text(
    sentence: str, evidence: str, own: Config, variant: Variant, folder: Path | None
) -> str:
    """The file: *sentence* and *evidence* as comments, then the configuration with *variant*.

    The file in *folder* is taken and changed; without one, what the server tells of its *own*.
    """
    file = folder / CONFIG_FILENAME if folder else None
    written = _parsed(file) if file and file.is_file() else {}
    if "input" in written:  # whose shapes are without a batch, if it names no largest one
        written.setdefault("max_batch_size", 0)
    config = as_text(variant.of({**portable(own), **written}))
    date = time.strftime("%Y-%m-%d %H:%M")
    lines = [f"workbench tune, {date}, {platform.machine()}, {platform.system()}", sentence]
    comments = "".join(f"# {line}".rstrip() + "\n" for line in [*lines, *evidence.splitlines()])
    return comments + config


def _parsed(file: Path) -> dict[str, Any]:
    message: Any = message_class("model_config", "inference.ModelConfig")()
    text_format.Parse(file.read_text("utf-8-sig"), message)
    parsed: dict[str, Any] = json_format.MessageToDict(message, preserving_proto_field_name=True)
    return parsed


def tune_shown(
    connection: Connection, model: str, p99_s: float, sweep: Sweep, folders: Iterable[Path]
) -> Tuning:
    """As ``tune``, with progress in the cell; the model is in the first of *folders* that has it.

    The connection is closed.
    """
    places = (folder / model for folder in folders)
    folder = next((place for place in places if place.is_dir()), None)
    with connection, Progress() as progress:
        told = partial(show_point, progress)
        return tune(connection, model, p99_s, sweep, folder=folder, told=told)
