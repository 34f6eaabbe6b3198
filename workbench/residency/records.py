"""What the residency keeps of each model in memory and of each waiting request.

All of it is touched only under the residency's lock.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from workbench.backends.base import Session
from workbench.events import ModelUnloaded
from workbench.memory.eviction import Occupant, Usage
from workbench.model import ModelId, ModelState, step
from workbench.stop import Stop


class Owner(Protocol):
    """Who gave a lease out, and takes it back."""

    def take_back(self, residents: tuple[Resident, ...]) -> None:
        """The lease on *residents* has ended."""
        ...

    def share(self, resident: Resident) -> Lease:
        """Another lease, on *resident*, on which there is one."""
        ...


class Lease:
    """Borrowed use of loaded models: until it is released, none of them is unloaded.

    *session* is the first one's, *residents* are all of them until then. A context manager;
    releasing twice does nothing.
    """

    __slots__ = ("_owner", "model", "residents", "session")

    def __init__(self, residents: tuple[Resident, ...], owner: Owner) -> None:
        self.residents = residents
        self._owner = owner
        self.model = residents[0].id
        session = residents[0].session
        assert session is not None
        self.session: Session = session

    @property
    def sessions(self) -> dict[ModelId, Session]:
        """The sessions of all leased models."""
        return {resident.id: resident.loaded() for resident in self.residents}

    def share(self, model: ModelId) -> Lease:
        """Another lease, on *model* alone, which is one of these; it lasts by itself.

        Before this one is released; also where *model* is on its way out.
        """
        (resident,) = (resident for resident in self.residents if resident.id == model)
        return self._owner.share(resident)

    def release(self) -> None:
        """Give the models back."""
        residents = self.residents
        if residents:
            self.residents = ()
            self._owner.take_back(residents)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


class Resident:
    """A model in memory, on its way in, or on its way out. Touched only under the lock."""

    __slots__ = (
        "activations_nbytes",
        "cancelled",
        "farewell",
        "id",
        "last_used_s",
        "leases",
        "leaving_s",
        "load_s",
        "reason",
        "retried",
        "session",
        "state",
        "stop",
        "tickets",
        "tied",
        "unload_wanted",
        "unloaded",
        "usage",
        "waiting",
    )

    def __init__(self, model: ModelId, usage: Usage, now_s: float) -> None:
        self.id = model
        self.state = step(ModelState.UNAVAILABLE, ModelState.LOADING)
        self.session: Session | None = None
        self.leases = 0  # given out, or promised to a waiting ticket
        self.waiting = 0  # of these, promised to a ticket that waits for another model
        self.tied = 0  # of these, given out together with others that may wait
        self.usage = usage
        self.last_used_s = now_s
        self.load_s = 0.0
        self.activations_nbytes = 0  # that its runs took and that stay with it
        self.tickets: list[Ticket] = []  # waiting for this load
        self.stop = Stop()  # of the load
        self.cancelled = False  # whether the load is to end, since nobody wants it any more
        self.retried = False  # whether memory ran out once while it was loading
        self.unload_wanted = ""  # why it is to leave, once it can
        self.unloaded: list[Future[None]] = []
        self.farewell: type[ModelUnloaded] = ModelUnloaded  # what is told when it has left
        self.leaving_s = 0.0  # when it began to leave
        self.reason = ""

    @property
    def stays(self) -> bool:
        """Whether it is loaded, or will be, and has not begun to leave."""
        loading = self.state is ModelState.LOADING and not self.cancelled
        return loading or self.state is ModelState.READY

    def is_awaited(self, *, runs: bool = False) -> bool:
        """Whether anybody waits for its load; with *runs*, only whoever is to run it."""
        return any(t.runs >= runs and not t.future.cancelled() for t in self.tickets)

    def occupant(self, nbytes: int, use: int, *, evictable: bool) -> Occupant:
        """What a policy is told of it: it claimed *nbytes*, and *use* is the last one's number."""
        return Occupant(
            self.id,
            nbytes,
            self.usage.last_use,
            self.leases,
            evictable=evictable,
            waiting=self.waiting > 0 or self.tied > 0 or self.may_wait(),
            loading=self.state is ModelState.LOADING,
            frequency=self.usage.frequency(use),
            load_s=self.load_s,
        )

    def may_wait(self) -> bool:
        """Whether it is loading, or in use by a run that may itself wait for another model."""
        if self.state is ModelState.LOADING:
            return True
        return self.leases > 0 and self.loaded().may_call

    def loaded(self) -> Session:
        """The session of a model that is READY, or was until its leases end."""
        assert self.session is not None
        return self.session


class Ticket:
    """A request for leases that could not be given at once."""

    __slots__ = (
        "future",
        "models",
        "needs",
        "outstanding",
        "preload",
        "residents",
        "runs",
        "tied",
        "within",
    )

    def __init__(
        self,
        models: tuple[ModelId, ...],
        within: tuple[ModelId, ...],
        *,
        preload: bool,
        runs: bool,
        tied: bool,
    ) -> None:
        self.models = models
        self.preload = preload
        self.runs = runs  # the models are to run, not only to be there
        self.tied = tied  # whoever has the lease may wait for other models
        self.within = within
        self.future: Future[Lease] = Future()
        self.needs: Mapping[ModelId, int] = {}
        self.residents: tuple[Resident, ...] = ()
        self.outstanding = 0


@dataclass(frozen=True, slots=True)
class Leaving:
    """A ticket waits for one of its models to be gone, before that can be loaded anew."""


@dataclass(frozen=True, slots=True)
class Promise:
    """Room that is promised, and whose room it was."""

    residents: tuple[Resident, ...]
    victims: tuple[Resident, ...]
