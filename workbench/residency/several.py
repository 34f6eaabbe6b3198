"""The residencies of several devices as one: a model is loaded where there is most room."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial, reduce
from operator import add

from workbench.backends.base import Session
from workbench.model import ModelId, ModelState
from workbench.residency.futures import one_by_one, together
from workbench.residency.records import Lease
from workbench.residency.residency import Residency
from workbench.residency.snapshot import Absence, ResidencySnapshot
from workbench.residency.tally import NOTHING, Tally


class Residencies:
    """*each* device's residency; *available* tells for each the bytes that its system has free.

    *need* is an upper bound of the bytes that a model takes, 0 where nobody can tell; it
    may read a file. A model is on one device at a time: where it was asked for first,
    until it has left.
    """

    def __init__(
        self,
        each: Sequence[Residency],
        available: Sequence[Callable[[], int | None]],
        need: Callable[[ModelId], int],
    ) -> None:
        self._each = tuple(each)
        self._available = tuple(available)
        self._need = need
        self._lock = threading.Lock()
        self._homes: dict[ModelId, Residency] = {}
        self._needs: dict[ModelId, int] = {}
        self._asking: Counter[ModelId] = Counter()  # and not yet known where they are asked for

    def home(self, model: ModelId) -> Residency:
        """Where *model* is, or was last; the first device's if it never was anywhere."""
        return self._homes.get(model, self._each[0])

    # ── as ``Residency`` does ──

    def lease_now(self, model: ModelId) -> Lease | None:
        """See ``Residency``."""
        return self.home(model).lease_now(model)

    def lease_all_now(self, *models: ModelId) -> Lease | None:
        """See ``Residency``; of several devices, they are tied."""
        groups = self._groups(models)
        leases: list[Lease] = []
        for home, some in groups:
            lease = home.lease_all_now(*some, tied=len(groups) > 1)
            if lease is None:
                for each in leases:
                    each.release()
                return None
            leases.append(lease)
        return together(leases)

    def session(self, model: ModelId) -> Session | None:
        """See ``Residency``."""
        return self.home(model).session(model)

    def acquire(
        self,
        *models: ModelId,
        preload: bool = False,
        retry: bool = False,
        within: tuple[ModelId, ...] = (),
    ) -> Future[Lease]:
        """See ``Residency``; each on the device with the most room, unless it is on another.

        Of several devices one after the other is asked, always in the same order, so that
        no two requests wait for each other; what one raises comes through the future then.
        """
        wanted = tuple(dict.fromkeys(models))
        for model in wanted:
            self._begin_to_ask(model)
        groups = self._groups(wanted)
        tied = len(groups) > 1
        asking = [
            partial(home.acquire, *some, preload=preload, retry=retry, within=within, tied=tied)
            for home, some in groups
        ]
        if tied:
            future = one_by_one(asking)
            future.add_done_callback(lambda _: self._end_to_ask(wanted))
            return future
        try:
            return asking[0]()
        finally:
            self._end_to_ask(wanted)

    def unload(self, model: ModelId, reason: str = "unloaded by hand") -> Future[None]:
        """See ``Residency``."""
        return self.home(model).unload(model, reason)

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
        """See ``Residency``."""
        deadline_s = time.monotonic() + timeout_s
        for residency in self._each:  # so that all begin
            residency.close(0.0)
        done = [r.close(max(0.0, deadline_s - time.monotonic())) for r in self._each]
        return all(done)

    def state(self, model: ModelId) -> ModelState:
        """See ``Residency``."""
        return self.home(model).state(model)

    def absence(self, model: ModelId) -> Absence | None:
        """See ``Residency``."""
        return self.home(model).absence(model)

    def is_broken(self, model: ModelId) -> bool:
        """See ``Residency``."""
        return self.home(model).is_broken(model)

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

    # ── where to ──

    def _begin_to_ask(self, model: ModelId) -> None:
        """Choose the device to ask for *model*, which is its own until the asking has ended."""
        need_nbytes = 0 if self._is_placed(model) else self._need(model)
        with self._lock:
            if not self._is_placed(model):
                self._homes[model] = self._roomiest(need_nbytes)
                self._needs[model] = need_nbytes
            self._asking[model] += 1

    def _end_to_ask(self, models: Sequence[ModelId]) -> None:
        with self._lock:
            self._asking -= Counter(models)

    def _groups(self, models: Sequence[ModelId]) -> list[tuple[Residency, list[ModelId]]]:
        """*models* by where they are, in the order of the devices."""
        homes = {model: self.home(model) for model in models}
        groups = [(each, [m for m, home in homes.items() if home is each]) for each in self._each]
        return [(each, some) for each, some in groups if some]

    def _is_placed(self, model: ModelId) -> bool:
        home = self._homes.get(model)
        return home is not None and (self._asking[model] > 0 or home.knows(model))

    def _roomiest(self, need_nbytes: int) -> Residency:
        """The device with the most room for a model, by the books and by the system.

        One that could never hold it comes last; the first of equals.
        """

        def room(number: int) -> tuple[bool, int]:
            residency, available_nbytes = self._each[number], self._available[number]()
            coming = {m: n for m, n in self._needs.items() if self._homes[m] is residency}
            free_nbytes = residency.free_nbytes(coming)
            for model, nbytes in coming.items():
                if self._asking[model] and not residency.knows(model):
                    free_nbytes -= nbytes
            if available_nbytes is not None:
                free_nbytes = min(free_nbytes, available_nbytes)
            return residency.budget_nbytes >= need_nbytes, free_nbytes

        return self._each[max(range(len(self._each)), key=room)]
