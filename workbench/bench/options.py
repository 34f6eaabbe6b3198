"""A sweep, from what a method or a command line is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from workbench.bench.process import Pace
from workbench.bench.sweep import CLIENTS, Sweep
from workbench.bench.variant import variants
from workbench.errors import UsageError

_READ: Mapping[str, Callable[[str], Any]] = {
    "rates": float,
    "batching": {"off": False, "on": True}.__getitem__,
}


def sweep_of(
    *,
    clients: Sequence[int] = CLIENTS,
    rates: Sequence[float] = (),
    batches: Sequence[int] = (),
    batching: Sequence[bool] = (),
    instances: Sequence[int] = (),
    threads: Sequence[int] = (),
    inputs: object = None,
    seconds: float = 0.5,
) -> Sweep:
    """The sweep over all of these; *seconds* is the length of a period.

    The warm-up is no longer than that. Raises ``UsageError``.
    """
    if not 0 < seconds <= 3600:
        raise UsageError(f"a period has more than 0 and up to 3600 seconds, not {seconds}")
    configurations = variants(batching, instances, threads)
    pace = Pace(warm_up_s=min(Pace.warm_up_s, seconds), window_s=seconds)
    each_batch = tuple(batches) or (None,)
    return Sweep(tuple(clients), tuple(rates), each_batch, configurations, inputs, pace)


def parsed(texts: Mapping[str, str]) -> dict[str, Any]:
    """Lists as a command line has them: ``{"clients": "1,2", "batching": "off,on"}``.

    Those that are empty are left out. Raises ``UsageError`` for other words.
    """
    return {name: _several(name, text) for name, text in texts.items() if text}


def _several(name: str, text: str) -> list[Any]:
    read: Callable[[str], Any] = _READ.get(name, int)
    try:
        return [read(word.strip()) for word in text.split(",")]
    except (ValueError, KeyError):
        example = {"batching": "off,on", "rates": "50,100"}.get(name, "1,2,4")
        raise UsageError(f"{name}: {text!r} is not a list such as {example}") from None
