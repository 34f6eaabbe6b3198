"""Parts of a server that annexes own: one for each annex, as long as the server's core."""

from __future__ import annotations

import threading
from typing import Any, Protocol

from workbench.annex import annexes
from workbench.settings import Settings


class Part(Protocol):
    """An object that an annex keeps for a core."""

    def close(self) -> None:
        """Free what it holds: the core closes."""
        ...

    def hand_over(self, settings: Settings) -> bool:
        """The server restarts with *settings*; returns whether this part goes on with them."""
        ...


class Regions(Protocol):
    """Memory that clients share with a server, by names of regions. Raises ``InvalidRequest``."""

    def read(self, name: str, offset: int, nbytes: int) -> memoryview:
        """A read-only view."""
        ...

    def writable(self, name: str, offset: int, nbytes: int) -> memoryview | None:
        """A view for the engine to write to; ``None`` where that could change an input."""
        ...

    def write(self, name: str, offset: int, data: bytes | memoryview) -> None:
        """Store *data*."""
        ...


class Parts:
    """The parts of *core* by the names of their annexes, each made when it is first asked for."""

    def __init__(self, core: object) -> None:
        self._core = core
        self._lock = threading.RLock()  # a part may ask for another
        self._made: dict[str, Part] = {}
        self._given: set[str] = set()  # by the core before
        self._lent: set[str] = set()  # another core goes on with them

    def __getitem__(self, name: str) -> Any:
        """The part of the annex *name*. Raises ``KeyError`` if there is none."""
        part = self._made.get(name)
        if part is not None:
            return part
        makes = {annex.name: annex.part for annex in annexes() if annex.part is not None}
        with self._lock:
            if name not in self._made:
                self._made[name] = makes[name](self._core)
            return self._made[name]

    def renew(self) -> None:
        """Forget the parts of an earlier start, but those that another core handed over."""
        with self._lock:
            self._made = {name: self._made[name] for name in self._given if name in self._made}

    def hand_over(self, to: Parts, settings: Settings) -> None:
        """Give *to* the parts that go on with *settings*."""
        with self._lock:
            stay = {name: part for name, part in self._made.items() if part.hand_over(settings)}
            to._made |= stay
            self._given, to._given = set(), set(stay)
            self._lent = set(stay)
            to._lent = set()

    def close(self) -> None:
        """Close all parts that no other core has; what they tell can still be read."""
        for name, part in self._made.items():
            if name not in self._lent:
                part.close()
