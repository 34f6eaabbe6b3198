"""The residencies of several devices as one: a model is loaded where there is most room."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial, reduce
from operator import add
from typing import Any

from workbench.errors import ModelTooLarge, WorkbenchError
from workbench.model import ModelId, ModelState
from workbench.residency.futures import abandon, grant, refusal
from workbench.residency.records import Lease
from workbench.residency.residency import Residency
from workbench.residency.snapshot import Absence, ResidencySnapshot
from workbench.residency.tally import NOTHING, Tally


class Residencies:
    """*each* device's residency, and *rooms*: the bytes that its system has free.

    A model is on one of them at a time: where it was asked for first, until it has left.
    """

    def __init__(
        self, each: Sequence[Residency], rooms: Sequence[Callable[[], int | None]]
    ) -> None:
        self._each = tuple(each)
        self._rooms = tuple(rooms)
        self._lock = threading.Lock()
        self._homes: dict[ModelId, Residency] = {}

    def home(self, model: ModelId) -> Residency:
        """Where *model* is, or was last; the first device's if it never was anywhere."""
        return self._homes.get(model, self._each[0])

    # ── as ``Residency`` does ──

    def lease_now(self, model: ModelId) -> Lease | None:
        """See ``Residency``."""
        return self.home(model).lease_now(model)

    def acquire(
        self,
        model: ModelId,
        *,
        preload: bool = False,
        retry: bool = False,
        within: tuple[ModelId, ...] = (),
    ) -> Future[Lease]:
        """See ``Residency``; on the device with the most room, unless it is on another.

        If it would never fit there, then on the one with the largest budget.
        """
        ask = partial(self._acquire, model, preload=preload, retry=retry, within=within)
        asked = ask(self._roomiest)
        if len({residency.budget_nbytes for residency in self._each}) == 1:
            return asked
        answer: Future[Lease] = Future()
        answer.add_done_callback(lambda done: abandon(asked) if done.cancelled() else None)
        asked.add_done_callback(partial(self._relay, model, answer, ask))
        return answer

    def _acquire(
        self, model: ModelId, choose: Callable[[], Residency], **more: Any
    ) -> Future[Lease]:
        """Ask where *model* is; on the device that *choose* gives, if it is on none."""
        with self._lock:
            home = self._homes.get(model)
            if home is None or not home.knows(model):
                home = self._homes[model] = choose()
            return home.acquire(model, **more)

    def _relay(
        self,
        model: ModelId,
        answer: Future[Lease],
        ask: Callable[[Callable[[], Residency]], Future[Lease]],
        asked: Future[Lease],
    ) -> None:
        """Pass on the answer; a model too large for one device is asked for on the largest."""
        if asked.cancelled():
            return
        error = asked.exception()
        if isinstance(error, ModelTooLarge) and self.home(model) is not self._largest():
            ask(self._largest).add_done_callback(partial(self._relay, model, answer, ask))
        elif isinstance(error, WorkbenchError):
            refusal(answer, error)()
        else:
            grant(answer, asked.result())()

    def _largest(self) -> Residency:
        """The device with the largest budget; the first of equals."""
        return max(self._each, key=lambda residency: residency.budget_nbytes)

    def unload(self, model: ModelId) -> Future[None]:
        """See ``Residency``."""
        return self.home(model).unload(model)

    def give_up(self, model: ModelId, asked: Future[Lease]) -> None:
        """See ``Residency``."""
        self.home(model).give_up(model, asked)

    def expire(self, keep_alive_s: float) -> float:
        """See ``Residency``."""
        return min(residency.expire(keep_alive_s) for residency in self._each)

    def pin(self, model: ModelId, pinned: bool = True) -> None:
        """See ``Residency``."""
        self.home(model).pin(model, pinned)

    def cancel(self) -> None:
        """See ``Residency``."""
        for residency in self._each:
            residency.cancel()

    def close(self, timeout_s: float) -> bool:
        """See ``Residency``; each has *timeout_s*."""
        done = [residency.close(timeout_s) for residency in self._each]
        return all(done)

    def wait_for_engine(self, timeout_s: float) -> bool:
        """See ``Residency``."""
        done = [residency.wait_for_engine(timeout_s) for residency in self._each]
        return all(done)

    def state(self, model: ModelId) -> ModelState:
        """See ``Residency``."""
        return self.home(model).state(model)

    def absence(self, model: ModelId) -> Absence | None:
        """See ``Residency``."""
        return self.home(model).absence(model)

    @property
    def budget_nbytes(self) -> int:
        """The largest budget of a device: what one model may take."""
        return max(residency.budget_nbytes for residency in self._each)

    def snapshot(self) -> ResidencySnapshot:
        """All devices' together; each device's own is its residency's."""
        all_of_them = [residency.snapshot() for residency in self._each]
        tallies: dict[ModelId, Tally] = {}
        for each in all_of_them:
            for model, tally in each.tallies.items():
                tallies[model] = Tally(*map(add, tallies.get(model, NOTHING), tally))
        return ResidencySnapshot(
            {model: shown for each in all_of_them for model, shown in each.residents.items()},
            sum(each.budget_nbytes for each in all_of_them),
            sum(each.claimed_nbytes for each in all_of_them),
            sum(each.held_nbytes for each in all_of_them),
            tallies,
            dict(reduce(add, (Counter(each.pending) for each in all_of_them))),
        )

    def _roomiest(self) -> Residency:
        """The device with the most room by the books and by the system; the first of equals."""
        rooms = []
        for residency, system in zip(self._each, self._rooms, strict=True):
            free_nbytes, system_nbytes = residency.free_nbytes, system()
            rooms.append(free_nbytes if system_nbytes is None else min(free_nbytes, system_nbytes))
        return self._each[rooms.index(max(rooms))]
