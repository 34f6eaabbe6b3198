"""What the residency's own decisions cost, with 20 to 1,000 models in memory.

In microseconds of processor time, as medians of interleaved rounds: a lease on a loaded model
with its release, alone and while another request waits for room; the books of a load that finds
room, and of one for which another model leaves; a look for models whose keep-alive time is over,
where none is. Nothing is really loaded. In brackets the ratio to 20 models.
Run: python benchmarks/residency.py
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence

from workbench.backends.base import Session
from workbench.events import EventLog
from workbench.memory.eviction import POLICIES
from workbench.model import Footprint, ModelId, Need
from workbench.residency import (
    Job,
    Lease,
    ModelWork,
    OnDevice,
    OnEstimated,
    OnLoaded,
    Residency,
    Telemetry,
)
from workbench.stop import CancellationToken

COUNTS = (20, 200, 1000)
ROUNDS, CALLS, LOADS = 9, 400, 40
LARGE = ModelId("large", 1)
FUNCTION = ModelId("function", 1)


class Model(Session):
    """A loaded model of one byte, or of as many as it is told to be."""

    def __init__(self, nbytes: int, *, may_call: bool) -> None:
        self.footprint = Footprint(other_nbytes=nbytes)
        self.may_call = may_call


class AtOnce(ModelWork):
    """Loads and closings that take no time; *sizes* in bytes, of others one byte."""

    def __init__(self, sizes: Mapping[ModelId, int]) -> None:
        self._sizes = sizes

    def estimate(self, models: Sequence[ModelId], done: OnEstimated) -> None:
        """See ``ModelWork``."""
        done({model: Need(self._sizes.get(model, 1)) for model in models})

    def load(self, model: ModelId, stop: CancellationToken, done: OnLoaded) -> None:
        """See ``ModelWork``."""
        assert not stop.error
        done(Model(self._sizes.get(model, 1), may_call=model == FUNCTION), 0.0)

    def close(self, _model: ModelId, _session: Session, _nbytes: int, done: Job) -> None:
        """See ``ModelWork``."""
        done()


class Bench:
    """A residency with *count* models of one byte, room for *more*, and a function of that size."""

    def __init__(self, count: int, policy: str = "lru", *, more: int = 0) -> None:
        sizes = {FUNCTION: count, LARGE: count + count // 2}
        device = OnDevice(count + more, AtOnce(sizes))
        self.residency = Residency([device], POLICIES[policy], Telemetry(EventLog()))
        self.models = [ModelId(f"m{number}", 1) for number in range(count)]
        self.next = 0
        for model in self.models:
            self.lease(model).release()

    def lease(self, model: ModelId) -> Lease:
        """A lease, which comes at once."""
        return self.residency.acquire(model).result(0)

    def leases(self) -> None:
        """Leases on a loaded model."""
        lease_now, model = self.residency.lease_now, self.models[0]
        for _ in range(CALLS):
            lease = lease_now(model)
            assert lease is not None
            lease.release()

    def loads(self) -> None:
        """Loads of models that were not loaded before."""
        for _ in range(LOADS):
            self.next += 1
            self.lease(ModelId(f"n{self.next}", 1)).release()

    def looks(self) -> None:
        """Looks for models that were not used for an hour."""
        for _ in range(LOADS):
            self.residency.expire(3600.0)


def per_call(work: Callable[[], None], calls: int) -> float:
    """The seconds of processor time of one of *calls* in *work*."""
    begun_s = time.process_time()
    work()
    return (time.process_time() - begun_s) / calls


def main() -> None:
    """Print the table."""
    rows: dict[str, dict[int, list[float]]] = {}
    for _ in range(ROUNDS):
        for count in COUNTS:
            measure(count, rows)
    print(f"{'':52}" + "".join(f"{f'{count} models':>20}" for count in COUNTS))
    for name, by_count in rows.items():
        medians = [statistics.median(by_count[count]) * 1e6 for count in COUNTS]
        cells = [f"{us:.1f} µs ({us / medians[0]:.1f}×)" for us in medians]
        print(f"{name:52}" + "".join(f"{cell:>20}" for cell in cells))


def measure(count: int, rows: dict[str, dict[int, list[float]]]) -> None:
    """One round with *count* models."""

    def note(name: str, seconds: float) -> None:
        rows.setdefault(name, {}).setdefault(count, []).append(seconds)

    bench = Bench(count, more=count)
    run = bench.lease(FUNCTION)
    note("lease and release", per_call(bench.leases, CALLS))
    waits = bench.residency.acquire(LARGE)
    note("lease and release while a request waits", per_call(bench.leases, CALLS))
    assert not waits.done()
    waits.cancel()
    run.release()
    bench = Bench(count, more=LOADS)
    note("load that finds room", per_call(bench.loads, LOADS))
    for policy in ("lru", "cost"):
        bench = Bench(count, policy)
        note(f"load for which another leaves ({policy})", per_call(bench.loads, LOADS))
    note("look for models to expire", per_call(bench.looks, LOADS))


if __name__ == "__main__":
    main()
