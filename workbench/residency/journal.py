"""The last events that a machine was given: what a bug report holds, and a replay applies.

A dump is the machine as it was before the oldest kept event, and the events since, with their
times. Leases on loaded models are no events; what they left, where decisions depend on it, is
written before the next event, see ``events.Used``.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator
from typing import Any

from workbench.residency.effects import Effect
from workbench.residency.events import Event, Used
from workbench.residency.machine import Machine

_OURS = "workbench."
_PLAIN = {
    ("builtins", name) for name in ("getattr", "set", "frozenset", "tuple", "list", "dict")
} | {("collections", "Counter"), ("operator", "attrgetter")}


class Journal:
    """Applies events to *machine*, and keeps the last *capacity*, or up to twice as many."""

    def __init__(self, machine: Machine, capacity: int = 5000) -> None:
        self._machine = machine
        self._apply = machine.apply
        self._capacity = capacity
        self._recent: list[tuple[float, Event]] = []
        self._before = pickle.dumps(machine)  # as it was before these
        self._older: tuple[bytes, list[tuple[float, Event]]] | None = None

    def apply(self, event: Event, now_s: float) -> list[Effect]:
        """What follows from *event*, at *now_s*."""
        residents = self._machine.residents
        if residents.used:
            self._recent.append((now_s, Used(residents.uses(), residents.last_use)))
        if len(self._recent) >= self._capacity:
            self._older = self._before, self._recent
            self._before, self._recent = pickle.dumps(self._machine), []
        self._recent.append((now_s, event))
        return self._apply(event, now_s)

    def dump(self) -> bytes:
        """All of it, for ``replay``."""
        before, older = self._older or (self._before, [])
        return pickle.dumps((before, [*older, *self._recent]))


def replay(dump: bytes) -> Iterator[tuple[Event, list[Effect]]]:
    """Each event of *dump*, and the effects that a machine now gives for it.

    Takes nothing from *dump* but values of the workbench's own, whoever made it. Raises
    ``pickle.UnpicklingError`` for anything else.
    """
    before, events = _Unpickler(io.BytesIO(dump)).load()
    machine: Machine = _Unpickler(io.BytesIO(before)).load()
    for now_s, event in events:
        yield event, machine.apply(event, now_s)


class _Unpickler(pickle.Unpickler):
    """Makes values of the workbench's own classes, and plain ones."""

    def find_class(self, module: str, name: str) -> Any:
        if not (module.startswith(_OURS) or (module, name) in _PLAIN):
            raise pickle.UnpicklingError(f"a journal has no {module}.{name}")
        return super().find_class(module, name)
