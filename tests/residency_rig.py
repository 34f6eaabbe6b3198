"""A residency with its parts at hand: loading threads that work when told, and a clock."""

from collections.abc import Callable
from concurrent.futures import Future

from doubles import FakeLoader, Jobs, threaded
from workbench.events import EventLog
from workbench.memory.eviction import POLICIES
from workbench.model import ModelId, ModelState
from workbench.residency import Lease, OnDevice, Purpose, Residency, Telemetry


class Rig:
    """One device for each of *loaders*, with a budget of 100 unless *budgets* say otherwise."""

    def __init__(
        self, *loaders: FakeLoader, budgets: tuple[int, ...] = (), policy: str = "lru"
    ) -> None:
        self.jobs = Jobs()
        self.log = EventLog(clock=lambda: 0.0)
        self.now_s = 0.0
        self.loaders = loaders
        self.loader = loaders[0]
        self.system: list[int | None] = [1000] * len(loaders)  # what is free by the system
        works = [threaded(each, self.jobs.submit, clock=self._clock) for each in loaders]
        devices = zip(budgets or (100,) * len(loaders), works, strict=True)
        self.residency = Residency(
            [OnDevice(*device, self._available(n)) for n, device in enumerate(devices)],
            POLICIES[policy],
            Telemetry(self.log),
            clock=self._clock,
        )
        self.device = self.residency._machine.residents.devices[0]

    def _clock(self) -> float:
        return self.now_s

    def _available(self, number: int) -> Callable[[], int | None]:
        return lambda: self.system[number]

    def acquire(
        self, *models: ModelId, parents: tuple[ModelId, ...] = (), purpose: Purpose = Purpose.RUN
    ) -> Future[Lease]:
        future = self.residency.acquire(*models, parents=parents, purpose=purpose)
        self.jobs.run_all()
        return future

    def lease(self, *models: ModelId) -> Lease:
        """A lease on *models*, which are loaded."""
        lease = self.residency.lease_now(*models)
        assert lease is not None
        return lease

    def give_back(self, *leases: Lease) -> None:
        for lease in leases:
            lease.release()
        self.jobs.run_all()

    def load(self, *models: ModelId) -> None:
        for model in models:
            self.give_back(self.acquire(model).result(0))

    def resize(self, budget_nbytes: int, device: int = 0) -> None:
        self.residency.resize(budget_nbytes, device)
        self.jobs.run_all()

    def state(self, model: ModelId) -> ModelState:
        return self.residency.state(model)

    def here(self) -> set[ModelId]:
        return set(self.residency.snapshot().residents)

    def loaded(self) -> set[ModelId]:
        return {model for model in self.here() if self.state(model) is ModelState.READY}

    def on(self, number: int) -> set[ModelId]:
        """The models of that device."""
        return {model for model in self.here() if self.residency.device(model) == number}

    def leases(self) -> int:
        return sum(each.leases for each in self.residency.snapshot().residents.values())

    def told(self, kind: type = object) -> list[object]:
        """The events of that *kind*."""
        return [entry.event for entry in self.log.since() if isinstance(entry.event, kind)]
