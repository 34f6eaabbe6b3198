"""Simulates a trace of requests under another budget or policy.

The trace is replayed through the server's own residency, so its decisions are those of the server.
No model is loaded or run: a simulated clock jumps to the next event, and loads, runs and closes
take their measured times.
"""

from __future__ import annotations

import heapq
import math
import statistics
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, NamedTuple

from workbench.backends.base import NO_PARTS, Session
from workbench.errors import UsageError
from workbench.events import Entry, EventLog, ModelLoaded, ModelLoading
from workbench.memory.eviction import EvictionPolicy
from workbench.model import Footprint, ModelId, Signature
from workbench.residency import Estimated, Lease, Loaded, OnDevice, Residency, Work
from workbench.stop import CancellationToken

_KEPT_EVENTS = 1
_NOTHING_TO_TELL = Signature("replay", {}, {})


@dataclass(frozen=True, slots=True)
class ModelCost:
    """The measured memory and times of a model.

    *nbytes* once loaded; *claim_nbytes* (at least *nbytes*) while loading; the seconds of a load,
    of a run, and of freeing the memory.
    """

    nbytes: int
    load_s: float
    claim_nbytes: int = 0
    run_s: float = 0.0
    unload_s: float = 0.0


def measured(log: Iterable[Entry]) -> dict[ModelId, ModelCost]:
    """The costs of the models whose loads are in a server's *log*; medians if there are several."""
    claims: dict[ModelId, int] = {}
    loads: dict[ModelId, list[ModelLoaded]] = {}
    for entry in log:
        event = entry.event
        if isinstance(event, ModelLoading):
            claims[event.model.plain] = event.nbytes
        elif isinstance(event, ModelLoaded):
            loads.setdefault(event.model.plain, []).append(event)
    return {
        model: ModelCost(
            came[-1].nbytes,
            statistics.median(event.seconds for event in came),
            claims.get(model, came[-1].nbytes),
        )
        for model, came in loads.items()
    }


class TraceRequest(NamedTuple):
    """A request for *model*, *at_s* seconds after the beginning of the trace."""

    at_s: float
    model: ModelId


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of replaying a trace.

    *waits_s*: for each request of the trace, in order, the seconds that it waited for its model, or
    ``None`` if it was refused for want of room. *loads* and *evictions* are counts.
    """

    waits_s: tuple[float | None, ...]
    loads: int
    evictions: int

    @property
    def waited_s(self) -> float:
        """The seconds that all requests together waited."""
        return sum(wait_s for wait_s in self.waits_s if wait_s is not None)

    @property
    def refusals(self) -> int:
        """How many requests were refused."""
        return self.waits_s.count(None)


def replay(
    trace: Iterable[TraceRequest],
    costs: Mapping[ModelId, ModelCost],
    budget_nbytes: int,
    policy: EvictionPolicy,
    *,
    loaders: int = 4,
) -> Outcome:
    """Replay *trace*, in order of time, with *budget_nbytes* under *policy*.

    *loaders* is how many models load at once. Requests are sent at their times, even if in reality
    one waited for the answer to another. Raises ``UsageError`` for a trace that is out of order, or
    a model without a cost.
    """
    if loaders < 1:
        raise UsageError(f"a replay takes at least one loader, not {loaders}")
    for model, cost in costs.items():
        numbers = (cost.nbytes, cost.claim_nbytes, cost.load_s, cost.run_s, cost.unload_s)
        if not all(0 <= number < math.inf for number in numbers):
            raise UsageError(f"the cost of {model} is not of numbers from 0 up: {cost}")
    replayed = _Replay(costs, budget_nbytes, policy, loaders)
    for index, request in enumerate(trace):
        replayed.ask(index, request)
    return replayed.outcome()


class _Clock:
    """A simulated clock, in seconds, that jumps to the next scheduled action."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._ahead: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = count()

    def read(self) -> float:
        return self.now_s

    def after(self, seconds: float, happen: Callable[[], object]) -> None:
        heapq.heappush(self._ahead, (self.now_s + seconds, next(self._numbers), happen))

    def go_to(self, until_s: float) -> None:
        while self._ahead and self._ahead[0][0] <= until_s:
            self.now_s, _, happen = heapq.heappop(self._ahead)
            happen()
        self.now_s = until_s

    def go_on(self) -> None:
        """Run until nothing is scheduled any more."""
        while self._ahead:
            self.go_to(self._ahead[0][0])


class _SimulatedWork(Work):
    """Simulated loads that take their measured time, *loaders* of them at once."""

    def __init__(self, costs: Mapping[ModelId, ModelCost], clock: _Clock, loaders: int) -> None:
        self._costs = costs
        self._clock = clock
        self._idle = loaders
        self._waiting: deque[Callable[[], None]] = deque()

    def estimate(self, models: Sequence[ModelId], done: Estimated) -> None:
        costs = {model: self._costs[model] for model in models}
        done({model: max(cost.claim_nbytes, cost.nbytes) for model, cost in costs.items()})

    def load(self, model: ModelId, _stop: CancellationToken, done: Loaded) -> None:
        self._waiting.append(partial(self._begin, self._costs[model], done))
        self._start()

    def close(
        self, _model: ModelId, session: Session, _nbytes: int, done: Callable[[], object]
    ) -> None:
        assert isinstance(session, _SimulatedSession)
        self._clock.after(session.cost.unload_s, done)

    def _start(self) -> None:
        while self._waiting and self._idle:
            self._idle -= 1
            self._waiting.popleft()()

    def _begin(self, cost: ModelCost, done: Loaded) -> None:
        def end() -> None:
            self._idle += 1
            done(_SimulatedSession(cost), cost.load_s)
            self._start()

        self._clock.after(cost.load_s, end)


class _SimulatedSession:
    """A simulated session; it is never run."""

    steady = True
    may_call = False
    recovers = True
    divisible = True
    schedule = None
    signature = _NOTHING_TO_TELL
    origin: object = None
    parts = NO_PARTS
    runner: Any = None
    loaded_from: Any = None

    def __init__(self, cost: ModelCost) -> None:
        self.cost = cost
        self.footprint = Footprint(other_nbytes=cost.nbytes)

    def cancel(self) -> None: ...

    def close(self) -> None: ...


class _Replay:
    """One replay, from request to request."""

    def __init__(
        self,
        costs: Mapping[ModelId, ModelCost],
        budget_nbytes: int,
        policy: EvictionPolicy,
        loaders: int,
    ) -> None:
        self._costs = costs
        self._clock = _Clock()
        self._waits_s: dict[int, float | None] = {}
        self._residency = Residency(
            [OnDevice(budget_nbytes, _SimulatedWork(costs, self._clock, loaders))],
            policy,
            EventLog(_KEPT_EVENTS),
            clock=self._clock.read,
        )

    def ask(self, index: int, request: TraceRequest) -> None:
        """The next request comes in."""
        model = request.model
        if not isinstance(model, ModelId):
            raise UsageError(f"a request of the trace is for a ModelId, not for {model!r}")
        if model not in self._costs:
            raise UsageError(f"no cost of {model} is known: load it once, or leave it out")
        if not self._clock.now_s <= request.at_s < math.inf:  # false for NaN too
            raise UsageError(f"request {index} of the trace is not after the one before it")
        self._clock.go_to(request.at_s)
        lease = self._residency.lease_now(model)
        if lease is not None:
            self._run(index, request, lease)
            return
        asked = self._residency.acquire(model)
        asked.add_done_callback(partial(self._answered, index, request))

    def _answered(self, index: int, request: TraceRequest, asked: Future[Lease]) -> None:
        if asked.exception() is None:
            self._run(index, request, asked.result())
        else:
            self._waits_s[index] = None

    def _run(self, index: int, request: TraceRequest, lease: Lease) -> None:
        self._waits_s[index] = self._clock.now_s - request.at_s
        run_s = self._costs[request.model].run_s
        if run_s:
            self._clock.after(run_s, lease.release)
        else:
            lease.release()

    def outcome(self) -> Outcome:
        """The result, once all requests have ended."""
        self._clock.go_on()
        load_statistics = self._residency.snapshot().load_statistics.values()
        return Outcome(
            tuple(self._waits_s[index] for index in range(len(self._waits_s))),
            sum(load_statistics.loads for load_statistics in load_statistics),
            sum(load_statistics.evictions for load_statistics in load_statistics),
        )
