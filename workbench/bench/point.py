"""What came of one load on a model."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.bench.client import Load

_BUSY = 0.9  # of a processor, from which on the client may be what limits


@dataclass(frozen=True)
class Point:
    """What came of one load: requests of *batch* elements, from *clients*."""

    batch: int
    clients: int
    load: Load

    def __repr__(self) -> str:
        served = f"{self.throughput:,.0f} elements a second, p99 {self.load.p99_s:.3g} s"
        return f"<Point: {self.asked}: {served}>"

    @property
    def asked(self) -> str:
        """As in ``"8 clients"``."""
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
            notes.append(f"{load.failed / (load.failed + load.answers):.0%} failed")
        if not load.steady:
            notes.append("not steady: measure longer")
        if load.busy > _BUSY:
            notes.append("the client was busy all the time: the server may do more")
        return notes
