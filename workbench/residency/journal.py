"""The last events that a machine was given: what a bug report holds, and a replay applies.

A dump is the machine as it was before the oldest kept event, and the events since, with their
times. Leases on loaded models are no events; what they left, where decisions depend on it, is
written before the next event, see ``events.Used``.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from typing import Any

from workbench.memory.eviction import POLICIES, EvictionPolicy
from workbench.residency.effects import Effect
from workbench.residency.events import EstimateFailed, Event, NotLoaded, Used
from workbench.residency.machine import Machine

_OURS = ("errors", "events", "memory.eviction", "memory.ledger", "model")
_MODULES = {f"workbench.{name}" for name in _OURS}


class Journal:
    """Applies events to *machine*, and keeps the last *capacity*, or up to twice as many."""

    def __init__(self, machine: Machine, capacity: int = 10_000) -> None:
        self._machine = machine
        self._apply = machine.apply
        self._capacity = capacity
        self._recent: list[tuple[float, Event]] = []
        self._before = _dumped(machine)  # as it was before these
        self._older: tuple[bytes, list[tuple[float, Event]]] | None = None

    def apply(self, event: Event, now_s: float) -> list[Effect]:
        """What follows from *event*, at *now_s*."""
        residents = self._machine.residents
        if residents.used:
            used = Used(tuple(residents.uses()), residents.last_use)
            self._recent.append((now_s, used))
        if len(self._recent) >= self._capacity:
            self._older = self._before, self._recent
            self._before, self._recent = _dumped(self._machine), []
        self._recent.append((now_s, _without_frames(event)))
        return self._apply(event, now_s)

    def dump(self) -> bytes:
        """All of it, for ``replay``."""
        before, older = self._older or (self._before, [])
        return _dumped((before, [*older, *self._recent]))


def replay(dump: bytes) -> Iterator[tuple[Event, list[Effect]]]:
    """Each event of *dump*, and the effects that a machine now gives for it.

    Takes nothing from *dump* but values of the residency's own, whoever made it. Raises
    ``pickle.UnpicklingError`` for anything else.
    """
    before, events = _Unpickler(io.BytesIO(dump)).load()
    machine: Machine = _Unpickler(io.BytesIO(before)).load()
    for now_s, event in events:
        yield event, machine.apply(event, now_s)


def _without_frames(event: Event) -> Event:
    """The *event*, whose error holds none of the frames that it came through."""
    if isinstance(event, EstimateFailed | NotLoaded):
        return replace(event, error=copy(event.error))
    return event


def _dumped(value: object) -> bytes:
    file = io.BytesIO()
    _Pickler(file).dump(value)
    return file.getvalue()


class _Pickler(pickle.Pickler):
    """Writes policies by their names: they have functions in them."""

    def persistent_id(self, obj: Any) -> str | None:
        return obj.name if isinstance(obj, EvictionPolicy) else None


class _Unpickler(pickle.Unpickler):
    """Makes values of classes that a machine is made of, and calls nothing else."""

    def persistent_load(self, pid: str) -> EvictionPolicy:
        return POLICIES[pid]

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in (("builtins", "set"), ("collections", "OrderedDict")):
            return super().find_class(module, name)
        if module in _MODULES or module.startswith("workbench.residency."):
            found = super().find_class(module, name)
            if isinstance(found, type) and found.__module__ == module:
                return found
        raise pickle.UnpicklingError(f"a journal holds no {module}.{name}")
