"""Measures a model under many loads, one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any, SupportsIndex, TypeAlias, TypeVar

from workbench.bench.client import Load
from workbench.bench.process import Pace
from workbench.bench.targets import Configurations, Inputs, Target
from workbench.bench.variant import Variant, variants
from workbench.errors import UsageError
from workbench.seconds import parse_seconds

CLIENTS = (1, 2, 4, 8, 16, 32, 64)
_MOST_CLIENTS = 1024
_MOST_POINTS = 2000
_MOST_RATE = 1_000_000  # more than any client sends
_PACE = Pace()
_BUSY = 0.9  # of a processor, from which on the client may be what limits

_LONGEST_S = 3600.0  # a period

T = TypeVar("T")
Several: TypeAlias = Iterable[T] | T | str
"""What a person gives for several values: a list of them, one alone, or a text such as "1,8"."""

_SWITCHES: Mapping[object, bool] = {"off": False, "on": True, False: False, True: True}


@dataclass(frozen=True)
class Point:
    """What came of one load: requests of *batch* elements, from *clients*, or at a *rate*.

    *rate*, in requests a second, is that which was asked for; the *load* has that which was served.
    """

    variant: Variant
    batch: int
    clients: int
    rate: float | None
    load: Load

    def __repr__(self) -> str:
        served = f"{self.throughput:,.0f} elements a second, p99 {self.load.p99_s:.3g} s"
        return f"<Point: {self.variant}, {self.asked}: {served}>"

    @property
    def asked(self) -> str:
        """As in ``"8 clients"`` or ``"100 requests/s"``."""
        if self.rate is not None:
            return f"{self.rate:g} requests/s"
        return f"{self.clients} client" + "s" * (self.clients != 1)

    @property
    def throughput(self) -> float:
        """Elements a second: requests that were answered, times their batch."""
        return self.load.rate * self.batch

    @property
    def notes(self) -> list[str]:
        """What to know before the figures are believed."""
        load = self.load
        notes = []
        if load.failed:
            share = load.failed / (load.failed + load.answers)
            notes.append(f"{share:.0%} failed")
        if load.unstable:
            notes.append(f"not stable: {load.unstable}")
        if self.rate and load.behind > max(10.0, 0.1 * self.rate):
            notes.append(f"falls behind: {load.behind} requests wait")
        if load.busy > _BUSY:
            notes.append("the client was busy all the time: the server may do more")
        return notes


@dataclass(frozen=True)
class Sweep:
    """Which loads a model is measured under: each *variant* with each batch and number of clients.

    *rates*, in requests a second, come after the clients, for each batch. A *batch* of ``None`` is
    the *inputs* as they are; without any, an example is made.
    """

    clients: tuple[int, ...] = CLIENTS
    rates: tuple[float, ...] = ()
    batches: tuple[int | None, ...] = (None,)
    variants: tuple[Variant, ...] = (Variant(),)
    inputs: object = None
    pace: Pace = _PACE

    def __post_init__(self) -> None:
        if not self.clients and not self.rates:
            raise UsageError("nothing is to be measured: give some clients, or a rate")
        if not all(1 <= clients <= _MOST_CLIENTS for clients in self.clients):
            raise UsageError(f"clients are numbers from 1 to {_MOST_CLIENTS}")
        if not all(batch is None or batch >= 1 for batch in self.batches):
            raise UsageError("a batch has at least one element")
        if any(variant.instances == 0 for variant in self.variants):
            raise UsageError("a model has at least one instance")
        if not all(0 < rate <= _MOST_RATE for rate in self.rates):
            raise UsageError(f"rates are more than 0 and at most {_MOST_RATE:,} requests a second")
        if len(self) > _MOST_POINTS:
            raise UsageError(f"{len(self)} loads would take hours: at most {_MOST_POINTS} go")

    def __len__(self) -> int:
        loads = len(self.clients) + len(self.rates)
        return len(self.variants) * len(self.batches) * loads

    @property
    def loads(self) -> list[tuple[int, float | None]]:
        """Numbers of clients, then rates."""
        return [*((each, None) for each in self.clients), *((0, each) for each in self.rates)]


def _whole_number(value: str | SupportsIndex) -> int:
    return int(value) if isinstance(value, str) else index(value)


_READ: Mapping[str, Callable[[Any], Any]] = {"rates": float, "batching": _SWITCHES.__getitem__}


def sweep_of(
    *,
    clients: Several[int] = CLIENTS,
    rates: Several[float] = (),
    batches: Several[int] = (),
    batching: Several[bool] = (),
    instances: Several[int] = (),
    threads: Several[int] = (),
    inputs: object = None,
    seconds: float | str = 0.5,
) -> Sweep:
    """The sweep over all of these; *seconds* is the length of a period, a number or ``"500ms"``.

    The warm-up is no longer than that. Raises ``UsageError``.
    """
    period_s = parse_seconds(seconds, "seconds")
    if period_s > _LONGEST_S:
        raise UsageError(f"a period has up to {_LONGEST_S:.0f} seconds, not {period_s:g}")
    configurations = variants(
        _several("batching", batching),
        _several("instances", instances),
        _several("threads", threads),
    )
    pace = Pace(warm_up_s=min(Pace.warm_up_s, period_s), window_s=period_s)
    batch_sizes = tuple(_several("batches", batches)) or (None,)
    counts, each_rate = _several("clients", clients), _several("rates", rates)
    return Sweep(tuple(counts), tuple(each_rate), batch_sizes, configurations, inputs, pace)


def _several(name: str, values: Several[Any]) -> list[Any]:
    read = _READ.get(name, _whole_number)
    listed = [word.strip() for word in values.split(",")] if isinstance(values, str) else values
    try:
        return [read(each) for each in (listed if isinstance(listed, Iterable) else [listed])]
    except (ValueError, KeyError, TypeError):
        example = {"batching": "off,on", "rates": "50,100"}.get(name, "1,2,4")
        raise UsageError(f"{name}: {values!r} is not a list such as {example}") from None


def measured(
    sweep: Sweep,
    target: Target,
    inputs: Inputs,
    configurations: Configurations,
    enough: Callable[[Point], bool] = lambda _: False,
) -> Iterator[Point]:
    """The points of *sweep*, each as soon as it is measured.

    After a point that is *enough*, larger loads of its batch and variant are left out.
    """
    for variant in sweep.variants:
        configurations.use(variant)
        for batch in sweep.batches:
            given, count = inputs.of(batch), inputs.count(batch)
            for clients, rate in sweep.loads:
                load = target.measure(given, clients, rate, sweep.pace)
                point = Point(variant, count, clients, rate, load)
                yield point
                if enough(point):
                    break


def best(points: Sequence[Point], p99_s: float) -> Point | None:
    """Which point served most elements a second within a p99 of *p99_s*, with no failure."""
    within = [
        point
        for point in points
        if point.load.answers and not point.load.failed and point.load.p99_s <= p99_s
    ]
    return max(within, key=lambda point: point.throughput, default=None)
