"""The last events of a machine, for a bug report; a replay applies them again.

A dump is the state of the machine before the oldest kept event, and all events since then with
their times. Leases on loaded models are no events. Instead, each event is kept with the use of the
models that were leased since the event before: a thousand leases cost one entry.
"""

from __future__ import annotations

import io
import pickle
from collections import deque
from collections.abc import Iterator
from copy import copy
from typing import Any

from msgspec.structs import replace

from workbench.memory.eviction import POLICIES, EvictionPolicy
from workbench.residency.effects import Effect
from workbench.residency.events import EstimateFailed, Event, NotLoaded
from workbench.residency.machine import Machine
from workbench.residency.residents import Use

_MODULES = {f"workbench.{name}" for name in ("errors", "events", "memory.eviction", "model")}

_FAILURES = (EstimateFailed, NotLoaded)

Entry = tuple[float, tuple[Use, ...], Event]


class Journal:
    """Applies events to *machine*, and keeps the last *capacity*, or up to twice as many."""

    def __init__(self, machine: Machine, capacity: int = 10_000) -> None:
        machine.residents.records_uses = True
        self._machine = machine
        self._apply = machine.apply
        self._capacity = capacity
        self._parts: deque[tuple[bytes, list[Entry]]] = deque(maxlen=2)  # machine, its events
        self._begin_part()

    def _begin_part(self) -> None:
        self._recent: list[Entry] = []
        self._parts.append((_dumped(self._machine), self._recent))

    def apply(self, event: Event, now_s: float) -> list[Effect]:
        uses = self._machine.residents.uses()
        if len(self._recent) >= self._capacity:
            self._begin_part()
        if isinstance(event, _FAILURES):  # kept without its traceback
            self._recent.append((now_s, uses, replace(event, error=copy(event.error))))
        else:
            self._recent.append((now_s, uses, event))
        return self._apply(event, now_s)

    def dump(self) -> bytes:
        return _dumped((self._parts[0][0], [entry for _, part in self._parts for entry in part]))


def replay(dump: bytes) -> Iterator[tuple[Event, list[Effect]]]:
    """Each event of *dump*, and the effects that the machine gives for it now.

    Safe for a *dump* from an untrusted source: only values of the residency's own classes are read.
    Raises ``pickle.UnpicklingError`` for anything else.
    """
    before, events = _Unpickler(io.BytesIO(dump)).load()
    machine: Machine = _Unpickler(io.BytesIO(before)).load()
    for now_s, uses, event in events:
        machine.residents.reuse(uses)
        yield event, machine.apply(event, now_s)


def _dumped(value: object) -> bytes:
    file = io.BytesIO()
    _Pickler(file).dump(value)
    return file.getvalue()


class _Policy:
    """Makes the policy of that *name*: a dump has no policies, because they contain functions."""

    def __new__(cls, name: str) -> EvictionPolicy:  # type: ignore[misc]  # it is a function
        return POLICIES[name]


class _Pickler(pickle.Pickler):
    """Writes policies by name."""

    def reducer_override(self, obj: Any) -> Any:
        return (_Policy, (obj.name,)) if isinstance(obj, EvictionPolicy) else NotImplemented


class _Unpickler(pickle.Unpickler):
    """Makes values of classes that a machine is made of, and calls nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in (("builtins", "set"), ("collections", "OrderedDict")):
            return super().find_class(module, name)
        if module in _MODULES or module.startswith("workbench.residency."):
            found = super().find_class(module, name)
            if isinstance(found, type) and found.__module__ == module:
                return found
        raise pickle.UnpicklingError(f"a journal holds no {module}.{name}")
