"""Loading, replacing and unloading models on request."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass, field

from workbench.backends.base import Runnable, Session
from workbench.core.inference.call import UnderWay
from workbench.core.lifecycle.await_load import are_loading, loaded, too_long
from workbench.core.lifecycle.loader import Sources
from workbench.core.lifecycle.pins import Pins
from workbench.core.lifecycle.replacing import Replacing
from workbench.core.names import Names
from workbench.core.run_memory import RunMemory
from workbench.core.runs import Runs
from workbench.errors import (
    LoadFailed,
    MemoryExhausted,
    ModelNotReady,
    RequestStopped,
    UsageError,
    VersionNotFound,
    WorkbenchError,
)
from workbench.model import ModelId, ModelState, shown_name
from workbench.repository import FolderModel, ModelRepository, Override
from workbench.residency import Lease, Purpose, Residency, give_back
from workbench.stop import CancellationToken

_log = logging.getLogger("workbench")

REDEFINED = "replaced by a new definition"
REPLACED = "replaced by what its files are now"
_FAILED = "its load failed for another version"

_GRACE_S = 5.0  # runs of a model that is unloaded may take so long
_END_S = 1.0  # and so long to end after they were stopped


@dataclass(eq=False)
class Loads:
    """Loads and unloads the models of *repository*.

    A model whose files changed is loaded beside the edition that is loaded already, which answers
    until the new one is ready, and stays if the load fails. If there is no room for both, the load
    fails. *gone* is called with the name of each model that only a load brought, and that was
    unloaded.
    """

    residency: Residency
    repository: ModelRepository
    sources: Sources
    names: Names
    runs: Runs
    memory: Callable[[ModelId], RunMemory]
    under_way: UnderWay
    pins: Pins
    gone: Callable[[str], object]
    wait_s: float
    _endless: set[ModelId] = field(default_factory=set, init=False)
    """Models that are unloaded, but a run that cannot be ended goes on."""
    _by_hand: set[str] = field(default_factory=set, init=False)
    """Models that are loaded for themselves, not only as parts of others."""
    _replacing: Replacing = field(init=False)

    def __post_init__(self) -> None:
        self._replacing = Replacing(self.wait_s, self._check_waiting, self._forget)

    def load_at_start(self, *, everything: bool) -> set[str]:
        """Load the functions, and with *everything* all other models, as far as they fit.

        Returns the names of the models that are broken. To be called in one look at the repository.
        """
        broken = set()
        models = list(self.repository.functions())
        if everything:
            for name, found in self.repository.versions():
                if isinstance(found, WorkbenchError):
                    if isinstance(found, LoadFailed):  # then an event says so
                        self.residency.note_read(name, found)
                    else:
                        _log.warning("model %s is not loaded: %s", name, found)
                    broken.add(name)
                else:
                    models.extend(ModelId(name, version) for version in found)
        asked = dict.fromkeys(models)
        loads = {model: self.residency.acquire(model, purpose=Purpose.PRELOAD) for model in asked}
        for load in loads.values():
            give_back(load)  # a request may need its room before the last one is loaded
        wait(loads.values())  # first, since a run cannot be measured while a model loads
        for model, load in loads.items():
            if isinstance(load.exception(), LoadFailed):
                broken.add(model.name)
            elif load.exception() is None:  # other errors are in the events
                self._by_hand.add(model.name)
                lease = self.residency.lease_now(model, attempt=True)
                if lease is not None:  # else it was evicted meanwhile
                    with lease:
                        lease.counts = False
                        self._try_out(model, lease.session)
                        self.names.find(model.name, model.version)
        return broken

    def _try_out(
        self, model: ModelId, session: Session, stop: CancellationToken | None = None
    ) -> None:
        if isinstance(session, Runnable):  # an ensemble has no runs of its own
            self.runs.try_out(model, session, self.memory(model), stop)

    def load(self, name: str, version: int | None, stop: CancellationToken | None) -> ModelId:
        """Load the model, or replace it if its files changed; returns it.

        *stop* ends the load, unless others wait for it.
        """
        with self.repository.one_look():
            return self._load_by_hand(name, version, stop)

    def _load_by_hand(
        self, name: str, version: int | None, stop: CancellationToken | None
    ) -> ModelId:
        model = self._load(name, version, stop)
        self._by_hand.add(name)
        self._remember(name, version, model.version, None)
        return model

    def load_all(self, name: str, override: Override | None = None) -> None:
        """Load all served versions of the model, as ``load`` does, and unload its other versions.

        From now on *override* replaces the model's configuration and files, unless the load fails.
        Without one, those parts of the last override remain that outlast a load.
        """
        with self.repository.one_look(), self._replacing.one_at_a_time(name):
            before = self.repository.overriding(name)
            wanted = override or self.repository.lasting(name)
            self.repository.set_override(name, wanted)
            try:
                self._load_served(name)
            except BaseException:
                if before is None and self.repository.drop_override(name):
                    self._unload(name, None, reason=_FAILED)
                    self.gone(name)
                else:
                    self.repository.set_override(name, before)
                    if override is not None:
                        self._take_back(name)
                raise
            self._by_hand.add(name)
            self.sources.keep_only(name, self.here(name))

    def _take_back(self, name: str) -> None:
        """An override failed for one version: load the others as they were, or unload them."""
        here, state = self.here(name), self.residency.state
        self.sources.keep_only(name, here)
        for model in (each for each in here if state(each) is not ModelState.UNLOADING):
            try:
                self._load(name, model.version, None)
            except VersionNotFound:  # only the override had it
                self._leave(model, _FAILED)
            except WorkbenchError as error:
                _log.warning("%s is not as it was before its load failed: %s", model, error)

    def _load_served(self, name: str) -> None:
        """Load all served versions of *name*, also if one of them is broken."""
        served, failures = set(), []
        for version in self._readable(name).versions:
            try:
                served.add(self._load(name, version, None))
            except ModelNotReady:  # it was unloaded meanwhile, and the other versions with it
                raise
            except WorkbenchError as error:
                failures.append(error)
        if failures:
            raise failures[0]
        self._remember(name, None, *(model.version for model in served))
        for model in self.here(name):
            if model.plain not in served:
                self._leave(model, "not served any more")

    def _leave(self, model: ModelId, reason: str) -> None:
        self.residency.unload(model, reason)
        self.pins.remove(model)

    def _readable(self, name: str) -> FolderModel:
        """The model called *name*; if its folder or configuration is broken, the log says so."""
        try:
            found = self.repository.find(name)
        except LoadFailed as error:
            self.residency.note_read(name, error)
            raise
        self.residency.note_read(name)
        return found

    def _remember(self, name: str, *versions: int | None) -> None:
        """Look up *versions* of *name* now, so that requests need not read the folder."""
        self.names.forget(name)
        for version in versions:
            self.names.find(name, version)

    def unload(
        self, name: str, version: int | None, *, dependents: bool = False, until_gone: bool = False
    ) -> None:
        going = self._dependents(name) if dependents else ()
        self.check_not_needed(name, version)
        for part in going:
            self.check_not_needed(part)
        if not self._unload(name, version, until_gone=until_gone):
            self.names.find(name, version)
        for part in going:
            self._unload(part, None)

    def replace(self, name: str, version: int | None) -> None:
        self._unload(name, version, reason=REDEFINED)
        for model in self._endless.intersection(self.here(name)):  # which need not be waited for
            self.residency.leave_behind(model, REDEFINED)
        self.load(name, version, None)

    def unload_all(self) -> None:
        """Unload all models; returns when their memory is free, as ``unload`` does."""
        now = self.residency.snapshot()
        models = tuple(dict.fromkeys((*now.residents, *now.pending, *self.pins.models)))
        for model in models:
            self.check_not_needed(model.name)
        self._wait_until_gone({model: self.residency.unload(model) for model in models})
        for model in models:
            self.pins.remove(model)
        for name in dict.fromkeys(model.name for model in models):
            self._replacing.unloaded(name)

    def _dependents(self, name: str) -> tuple[str, ...]:
        """The models that are loaded only as parts of the ensemble *name*."""
        residents = self.residency.snapshot().residents
        uses: dict[str, set[str]] = {}
        for model, resident in residents.items():
            uses.setdefault(model.name, set()).update(part for part, _ in resident.parts)
        with suppress(WorkbenchError):  # its folder may be broken or gone by now
            uses.setdefault(name, set()).update(p for p, _ in self.sources.parts(name, None))
        gone = [name]
        while True:
            needed = {part for user, parts in uses.items() if user not in gone for part in parts}
            loose = {part for user in gone for part in uses.get(user, ())}
            more = sorted(loose.difference(gone, needed, self._by_hand))
            if not more:
                return tuple(gone[1:])
            gone.extend(more)

    def check_not_needed(self, name: str, version: int | None = None) -> None:
        """Raise ``UsageError`` if this is called from a run that uses the model itself."""
        kept = {model.version for model in self.runs.kept if model.name == name}
        if version in kept or (version is None and kept):
            raise UsageError(f"{name!r} cannot be unloaded from within its own run")

    def _unload(
        self,
        name: str,
        version: int | None,
        *,
        until_gone: bool = False,
        reason: str = "unloaded by hand",
    ) -> bool:
        """Unload the version, or all versions; returns whether any was in memory.

        Their memory is free then; that of a model whose load is being ended will be.
        """
        known = (*self.here(name), *self.pins.models)  # a pinned model may not be in memory
        models = [m for m in known if m.name == name and version in (None, m.version)]
        gone = {m: self.residency.unload(m, reason, until_gone=until_gone) for m in models}
        self._wait_until_gone(gone)
        if until_gone:
            wait(gone.values())
        for model in models:
            self.pins.remove(model)
        self._replacing.unloaded(name)
        return bool(models)

    def _forget(self, name: str) -> None:
        """Forget what is known of *name*; if no version is left, also its override."""
        self.names.forget(name)
        here = self.here(name)
        self.sources.keep_only(name, here)
        residents = self.residency.snapshot().residents
        leaving = {m for m, each in residents.items() if each.state is ModelState.UNLOADING}
        if leaving.issuperset(here):  # or if there are none
            self._by_hand.discard(name)
            if self.repository.drop_override(name):
                self.gone(name)

    def _wait_until_gone(self, gone: Mapping[ModelId, Future[None]]) -> None:
        """Wait until models are *gone*; end requests that still use them after 5 s.

        A run that cannot be ended, such as that of a function, is not waited for: its request is
        answered with an error, and its model leaves when the run ends.
        """
        new = {each: model for model, each in gone.items() if model not in self._endless}
        for unloaded in wait(new, _GRACE_S).not_done:
            told = f"{new[unloaded]} was unloaded while the request was under way"
            for models, stop in list(self.under_way.values()):  # in one step: requests change it
                if new[unloaded].plain in {model.plain for model in models}:
                    stop.set(RequestStopped(told))
        for unloaded in wait(new, _END_S).not_done:
            self._endless.add(new[unloaded])
            unloaded.add_done_callback(lambda each: self._endless.discard(new[each]))

    def here(self, name: str) -> tuple[ModelId, ...]:
        """The versions of *name*, in all editions, that are in memory or will be loaded."""
        now = self.residency.snapshot()
        both = dict.fromkeys((*now.residents, *now.pending))
        return tuple(model for model in both if model.name == name)

    def of_files(self) -> set[str]:
        """The names of the models in memory that were loaded from the repository's folders."""
        functions = {model.name for model in self.repository.functions()}
        names = {model.name for model in self.residency.snapshot().residents}
        return {n for n in names - functions if self.repository.overriding(n) is None}

    def pin(self, name: str, version: int | None) -> ModelId:
        with self.repository.one_look():
            model = self.names.look(name, version)
            new = self.pins.add(model, self._parts(model))  # first, so that it is not evicted
            try:
                return self._load_by_hand(name, version, None)
            except BaseException:
                if new:
                    self.pins.remove(model)
                raise

    def unpin(self, name: str, version: int | None) -> ModelId:
        model = self.names.find(name, version)
        self.pins.remove(model)
        return model

    def _parts(self, model: ModelId) -> tuple[ModelId, ...]:
        return tuple(
            self.names.look_for_default(*part)
            for part in self.sources.parts(model.name, model.version)
        )

    def _load(self, name: str, version: int | None, stop: CancellationToken | None) -> ModelId:
        self._readable(name)
        model = self.names.look(name, version)
        parts = self._parts(model)
        if parts:
            self._load_parts(model, parts, stop)
        elif not self._is_outdated(model):
            with self._brought((model,), stop) as lease:
                self._try_out(lease.model, lease.session, stop)
        self._keep_current(model, stop)
        self.pins.renew(model, parts)
        return model

    def _load_parts(
        self, ensemble: ModelId, parts: tuple[ModelId, ...], stop: CancellationToken | None
    ) -> None:
        """Load *ensemble* and its *parts* in one decision; replace parts whose files changed."""
        was_here = self.residency.state(ensemble) is ModelState.READY
        try:
            with self._brought((ensemble, *parts), stop) as lease:
                for part, session in lease.sessions.items():
                    self._try_out(part, session, stop)
            for part in parts:
                self._keep_current(part, stop)
        except BaseException:
            for model in () if was_here else self.here(ensemble.name):
                if model.plain == ensemble:
                    self.residency.unload(model, "not all of its parts could be loaded")
            raise

    def _keep_current(self, model: ModelId, stop: CancellationToken | None) -> None:
        """Replace *model* if its files changed, also during its load."""
        for _ in range(2):  # they may change meanwhile, but are not awaited for ever
            if self._is_outdated(model):
                self._renew(model, stop)
        self.sources.follow_policy(model, self.residency.session(model))

    def _check_waiting(self, name: str) -> None:
        """Raise ``WaitedTooLong`` if whoever replaces the model *name* now loads nothing yet."""
        if not are_loading(self.residency, self.here(name)):
            told = f"{shown_name(name)!r}, which others load too,"
            raise too_long(told, self.residency, self.wait_s)

    def _is_outdated(self, model: ModelId) -> bool:
        """True if *model* is loaded and its files have changed since."""
        session = self.residency.session(model)
        if session is None:
            return False
        source, backend = self.sources.find(model)
        return backend.inspect(source).origin != session.origin

    def _renew(self, model: ModelId, stop: CancellationToken | None) -> None:
        """Load a new edition of *model* beside the one that answers, and let it answer instead."""
        try:
            lease = self._leased(self.residency.acquire_next(model, self.runs.kept), (model,), stop)
        except MemoryExhausted as error:
            raise (error if error.too_large else _both(error, model)) from None
        with lease:
            try:
                self._try_out(lease.model, lease.session, stop)
            except BaseException:
                if self.residency.session(model) is not lease.session:
                    self.residency.unload(lease.model, "not wanted any more")
                raise
            self.residency.succeed(lease.model, REPLACED)

    def _brought(self, models: tuple[ModelId, ...], stop: CancellationToken | None) -> Lease:
        """Load *models*; returns a lease on them."""
        kept = self.runs.kept
        coming = self.residency.acquire(*models, purpose=Purpose.LOAD, parents=kept)
        return self._leased(coming, models, stop)

    def _leased(
        self, coming: Future[Lease], models: tuple[ModelId, ...], stop: CancellationToken | None
    ) -> Lease:
        return loaded(self.residency, coming, models, stop, self.wait_s)


def _both(error: MemoryExhausted, new: ModelId) -> MemoryExhausted:
    return MemoryExhausted(
        f"{error}: its files changed, and what was loaded before is to answer until they are "
        f"loaded; unload {new.name!r} first, or give more memory",
        need_nbytes=error.need_nbytes,
        free_nbytes=error.free_nbytes,
        budget_nbytes=error.budget_nbytes,
    )
