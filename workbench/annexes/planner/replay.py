"""Replays a trace by the server's own rules: the residency machine, and a clock that jumps.

No model is loaded or run: loads, runs and closes take their measured times.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from workbench.annexes.planner.costs import ModelCost
from workbench.annexes.planner.trace import Trace
from workbench.errors import UsageError
from workbench.events import ModelEvicted
from workbench.memory.eviction import EvictionPolicy
from workbench.model import Footprint, ModelId
from workbench.residency import events
from workbench.residency.effects import Close, Grant, Load, Refuse, Tell
from workbench.residency.machine import Machine
from workbench.residency.state import Resident
from workbench.tensor import Array

_LOADERS = 4  # models that load at once on a device, as at a server


@dataclass(frozen=True, eq=False)
class Outcome:
    """The result of a replay; arrays are in the order of the trace.

    *waits_s* (float64): the seconds that each request waited for its model, NaN if it was refused
    for want of room. *cold* (bool): whether its model was not loaded when it came. *loads*,
    *evictions*: how often a model was loaded, and how often one left to make room.
    """

    waits_s: Array
    cold: Array
    loads: int
    evictions: int

    @property
    def waited_s(self) -> float:
        """The seconds that all requests together waited."""
        return float(np.nansum(self.waits_s))

    @property
    def refusals(self) -> int:
        """How many requests were refused."""
        return int(np.isnan(self.waits_s).sum())

    def __repr__(self) -> str:
        cold = np.count_nonzero(self.cold)
        return (
            f"<Outcome: {len(self.cold)} requests, {cold} cold, {self.refusals} refused, "
            f"{self.waited_s:.3g} s waited in all, {self.evictions} evicted>"
        )


def replay(
    trace: Trace,
    costs: Mapping[ModelId, ModelCost],
    budgets: int | Sequence[int],
    policy: EvictionPolicy,
    *,
    pinned: Collection[ModelId] = (),
    keep_alive_s: float = math.inf,
    wait_s: float = math.inf,
    max_waiting: int | None = None,
) -> Outcome:
    """Replay *trace*, of models with *costs*, on devices with *budgets* in bytes, under *policy*.

    Requests are sent at their times; if all came one by one (``Trace.is_one_by_one``), none is sent
    before the answer to the one before. Models *pinned* are loaded first and stay; others are
    unloaded after *keep_alive_s* idle. A request is refused after *wait_s*, or at once if
    *max_waiting* others wait. Raises ``UsageError`` for a budget or a time that is none.
    """
    budgets = (budgets,) if isinstance(budgets, int) else tuple(budgets)
    if min(budgets, default=0) < 1:
        raise UsageError(f"a budget is at least 1 byte, not {min(budgets, default=0)}")
    if not keep_alive_s > 0:
        raise UsageError(f"a keep-alive time is more than 0 seconds, not {keep_alive_s}")
    replayed = _Replay(
        costs, budgets, policy, keep_alive_s=keep_alive_s, wait_s=wait_s, max_waiting=max_waiting
    )
    return replayed.run(trace, pinned)


class _Replay:
    """One replay: the machine, and the future events by their times."""

    def __init__(
        self,
        costs: Mapping[ModelId, ModelCost],
        budgets: Sequence[int],
        policy: EvictionPolicy,
        *,
        keep_alive_s: float,
        wait_s: float,
        max_waiting: int | None,
    ) -> None:
        self._costs = costs
        self._machine = Machine(budgets, policy)
        self._residents = self._machine.residents
        self._keep_alive_s = keep_alive_s
        self._wait_s = wait_s
        self._max_waiting = math.inf if max_waiting is None else max_waiting
        self._now_s = 0.0
        # A heap. Who may wait until a time gives up after everything else at that time.
        self._ahead: list[tuple[float, bool, int, Callable[[Any], None], Any]] = []
        self._numbers = count()
        self._asked: dict[int, tuple[int, float]] = {}  # by request: index in the trace, and when
        self._to_load: list[deque[Load]] = [deque() for _ in budgets]
        self._idle_loaders = [_LOADERS] * len(budgets)
        self._loads = self._evictions = 0
        self._idle: list[tuple[float, int, Resident]] = []  # a heap: since when, also of others

    def run(self, trace: Trace, pinned: Collection[ModelId]) -> Outcome:
        self._waits = waits = [0.0] * len(trace)
        cold = bytearray(len(trace))
        self._preload(pinned, trace[0].at_s if trace else 0.0)
        costs, ahead, release = self._costs, self._ahead, self._machine.release
        lend, use = self._residents.lend, self._residents.use
        expires = self._keep_alive_s < math.inf
        one_by_one, end_s = trace.is_one_by_one, -math.inf
        times_s = [request.at_s for request in trace]
        each = zip(trace, [*times_s[1:], math.inf], strict=False)
        for index, ((at_s, model, _), next_s) in enumerate(each):
            if one_by_one and at_s < end_s:
                at_s = end_s  # noqa: PLW2901 - it waits for the answer to the one before
            if expires or (ahead and ahead[0][0] <= at_s):
                self._go_to(at_s)
            resident = lend(model, at_s)
            run_s = costs[model].run_s
            if resident is None:
                self._now_s = at_s
                cold[index] = 1
                self._ask(model, index)
                while one_by_one and self._asked:
                    self._go_to(ahead[0][0])
                end_s = self._now_s + (0.0 if math.isnan(waits[index]) else run_s)
                continue
            end_s = at_s + run_s
            if expires or (run_s and (end_s > next_s or (ahead and ahead[0][0] <= end_s))):
                use(resident)
            elif release(resident, end_s, True):  # nothing happens before its end,
                continue  # nor by it
            self._now_s = at_s
            self._after(run_s, self._release, resident)
        while ahead:
            self._go_to(ahead[0][0])
        return Outcome(
            np.array(waits, np.float64),
            np.frombuffer(bytes(cold), np.bool_),
            self._loads,
            self._evictions,
        )

    def _preload(self, pinned: Collection[ModelId], before_s: float) -> None:
        """Load the *pinned* models before the first request, and pin them."""
        loads_s = sum(self._costs[model].load_s for model in pinned)
        self._now_s = before_s - loads_s - 1.0  # a second more, since sums are rounded
        for model in pinned:
            self._apply(events.Pin(model, pinned=True))
            self._ask(model, None)
        while self._ahead:
            self._go_to(self._ahead[0][0])

    # ── the clock ──

    def _after(self, seconds: float, happen: Callable[[Any], None], to: Any) -> None:
        ahead = (self._now_s + seconds, False, next(self._numbers), happen, to)
        heapq.heappush(self._ahead, ahead)

    def _go_to(self, until_s: float) -> None:
        """Apply all events until *until_s*."""
        ahead, expires = self._ahead, self._keep_alive_s < math.inf
        while True:
            next_s = ahead[0][0] if ahead else math.inf
            if expires and (due_s := self._due_s()) < next_s and due_s <= until_s:
                self._now_s = max(self._now_s, due_s)
                self._apply(events.Expire(self._keep_alive_s))
            elif next_s <= until_s:
                self._now_s, _, _, happen, to = heapq.heappop(ahead)
                happen(to)
            else:
                return

    def _due_s(self) -> float:
        """The time at which the next model will have been idle for the keep-alive time."""
        idle = self._idle
        while idle:
            since_s, _, resident = idle[0]
            if resident.last_used_s == since_s and resident.idle:
                due_s = since_s + self._keep_alive_s
                while due_s - self._keep_alive_s < since_s:  # as the machine reckons
                    due_s = math.nextafter(due_s, math.inf)
                return due_s
            heapq.heappop(idle)  # it was used since, or is gone
        return math.inf

    # ── requests ──

    def _ask(self, model: ModelId, index: int | None) -> None:
        number = next(self._numbers)
        if index is not None:
            if len(self._asked) >= self._max_waiting:
                self._waits[index] = math.nan
                return
            self._asked[number] = index, self._now_s
            if self._wait_s < math.inf:
                gives_up_s = self._now_s + self._wait_s
                heapq.heappush(self._ahead, (gives_up_s, True, number, self._give_up, number))
        needs = {model: self._costs[model].need_nbytes}
        self._apply(events.Requested(number, (model,), (), events.RUN, (), needs))

    def _give_up(self, request: int) -> None:
        if request in self._asked:
            self._refused(request)
            self._apply(events.Withdrawn(request))

    def _granted(self, request: int, model: ModelId) -> None:
        index, at_s = self._asked.pop(request, (None, 0.0))
        run_s = 0.0
        if index is not None:
            self._waits[index] = self._now_s - at_s
            run_s = self._costs[model].run_s
        self._after(run_s, self._release, self._residents.get(model))

    def _release(self, resident: Resident) -> None:
        if not self._machine.release(resident, self._now_s):
            self._apply(events.Released((resident.id,)))
        if self._keep_alive_s < math.inf:
            idle = resident.last_used_s, next(self._numbers), resident
            heapq.heappush(self._idle, idle)

    def _refused(self, request: int) -> None:
        index, _ = self._asked.pop(request, (None, 0.0))
        if index is not None:
            self._waits[index] = math.nan

    # ── effects ──

    def _apply(self, event: events.MachineEvent) -> None:
        """Apply *event*, and do what follows from it."""
        for effect in self._machine.apply(event, self._now_s):
            kind = type(effect)
            if kind is Tell:
                self._evictions += effect.kind is ModelEvicted
            elif kind is Load:
                self._to_load[effect.device].append(effect)
                self._begin_loads(effect.device)
            elif kind is Close:
                self._after(0.0, self._apply, events.Closed(effect.model))
            elif kind is Grant:
                self._granted(effect.request, effect.models[0])
            elif kind is Refuse:
                self._refused(effect.request)

    def _begin_loads(self, device: int) -> None:
        waiting = self._to_load[device]
        while waiting and self._idle_loaders[device]:
            self._idle_loaders[device] -= 1
            load = waiting.popleft()
            self._after(self._costs[load.model].load_s, self._loaded, load)

    def _loaded(self, load: Load) -> None:
        device = load.device
        self._idle_loaders[device] += 1
        self._loads += 1
        cost = self._costs[load.model]
        footprint = Footprint(other_nbytes=cost.nbytes)
        self._apply(events.Loaded(load.model, footprint, may_call=False, seconds=cost.load_s))
        self._begin_loads(device)
