"""A sweep, from what a method or a command line is given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import index
from typing import Any, SupportsIndex, TypeAlias, TypeVar

from workbench.bench.process import Pace
from workbench.bench.sweep import CLIENTS, Sweep
from workbench.bench.variant import variants
from workbench.errors import UsageError
from workbench.seconds import parse_seconds

_LONGEST_S = 3600.0  # a period

T = TypeVar("T")
Several: TypeAlias = Iterable[T] | T | str
"""What a person gives for several values: a list of them, one alone, or a text such as "1,8"."""

_SWITCHES: Mapping[object, bool] = {"off": False, "on": True, False: False, True: True}


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
    period_s = parse_seconds(seconds)
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
