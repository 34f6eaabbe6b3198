"""Reading the state of the server: its models, devices and readiness."""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import partial

from workbench.core.names import Names
from workbench.core.opened import Opened
from workbench.core.records import Records, Traced
from workbench.core.runs import Runs
from workbench.core.runtime import Runtime, ServingDevice
from workbench.core.status.snapshot import (
    DeviceStatus,
    ModelStatus,
    Snapshot,
    broken_status,
    forgotten_status,
)
from workbench.core.status.statuses import Statuses
from workbench.errors import (
    LoadFailed,
    MemoryExhausted,
    ModelNotFound,
    ModelNotReady,
    RepositoryError,
    VersionNotFound,
    WorkbenchError,
)
from workbench.memory.device import read_cpu_utilization, read_host
from workbench.model import (
    FunctionModel,
    ModelId,
    ModelMetadata,
    ModelSource,
    ModelState,
    Signature,
    together,
)
from workbench.repository import ModelRepository
from workbench.residency.decision import check_fits

_NAMED_FAILURES = 10  # at most, in the reason why the server is not ready


class CoreStatus:
    """Reports of the models of *repository*: served or not, in memory or not, ready or not.

    *names* finds them; *runs* and *records* have what was counted.
    """

    def __init__(
        self,
        opened: Opened,
        repository: ModelRepository,
        names: Names,
        runs: Runs,
        records: Records,
    ) -> None:
        self._opened = opened
        self._repository = repository
        self._names = names
        self._runs = runs
        self._records = records

    def resolve(self, name: str, version: int | None = None) -> ModelId:
        """The model called *name*; its default version if *version* is ``None``.

        Reads the model's folder the first time. Raises ``ModelNotFound``,
        ``VersionNotFound``, ``LoadFailed``.
        """
        return self._names.find(name, version)

    def metadata(self, name: str, version: int | None = None) -> ModelMetadata:
        """The model's inputs and outputs, and its served versions.

        If its folder is broken or gone, the loaded versions. Raises ``ModelNotFound``,
        ``VersionNotFound``, ``LoadFailed``.
        """
        signature = self.signature(name, version)
        try:
            versions = self._repository.find(name).versions
        except (ModelNotFound, LoadFailed, RepositoryError):
            versions = tuple(sorted(model.version for model in self._opened.ready(name)))
            if not versions:
                raise
        return ModelMetadata(name, versions, signature)

    def signature(self, name: str, version: int | None = None) -> Signature:
        """The model's inputs and outputs; if it is not loaded, from its file's header.

        Raises as ``metadata`` does.
        """
        return self._opened.running().inspected(name, version).signature

    def instances(self, name: str, version: int | None = None) -> int:
        """How many runs of the model may go on at once. Raises as ``metadata`` does."""
        schedule = self._opened.running().inspected(name, version).schedule
        return schedule.instances if schedule is not None else self._opened.running().running.size

    def source(self, name: str, version: int | None = None) -> ModelSource:
        """The model's origin and configuration: as loaded, or as in its folder if it is not loaded.

        Raises as ``metadata`` does.
        """
        runtime, model = self._opened.running(), self.resolve(name, version)
        session = runtime.residency.session(model)
        source: ModelSource | None = session.loaded_from if session is not None else None
        return source or runtime.sources.find(model)[0]

    def gpu(self, model: ModelId) -> int | None:
        """The number of the GPU that *model* is on, was on, or might be; ``None`` for the CPU.

        Raises ``ServerNotRunning``.
        """
        return self._opened.running().device(model).placement.cuda_index

    def check_ready(self, name: str, version: int | None = None) -> ModelId:
        """The version of the model that would answer a request now, if need be after its load.

        If models are loaded on demand, one that is not in memory is ready too, unless its last
        load failed. Raises ``ModelNotReady`` with the reason, ``ModelNotFound``,
        ``VersionNotFound``.
        """
        runtime = self._opened.running()
        try:
            model = self.resolve(name, version)
        except LoadFailed as error:
            raise ModelNotReady(str(error)) from error
        session = runtime.residency.session(model)
        if session is None or session.parts:
            self._check_loadable(runtime, model)
        return model

    def _check_loadable(self, runtime: Runtime, model: ModelId) -> None:
        """Raise ``ModelNotReady`` unless *model*, which may be an ensemble, would answer."""
        now = self.now(model)
        if now.state is ModelState.READY:  # an ensemble, or another edition of the model
            return
        all_of_it = self._with_parts(runtime, model)
        failure = next(filter(None, (_failure(runtime, each) for each in all_of_it)), "")
        states = {runtime.residency.state(each) for each in all_of_it}
        nothing_to_load = states == {ModelState.READY}
        if failure or nothing_to_load or not runtime.leases.on_demand:
            reason = now.reason or failure
            because = f" ({reason})" if reason else ""
            raise ModelNotReady(f"{model} is {now.state.words}{because}")
        _check_fits(runtime, all_of_it)

    def _with_parts(self, runtime: Runtime, model: ModelId) -> list[ModelId]:
        """*model* and all its parts.

        Raises ``ModelNotFound`` or ``VersionNotFound`` if its files are gone, or ``ModelNotReady``.
        """
        try:
            parts = runtime.sources.parts(model.name, model.version)
            return list(dict.fromkeys([model, *(self._names.find(*part) for part in parts)]))
        except (ModelNotFound, VersionNotFound):
            raise
        except WorkbenchError as error:
            raise ModelNotReady(f"{model}: {error}") from error

    def calls_function(self, name: str, version: int | None = None) -> bool:
        """True if the model is a Python function, or an ensemble that uses one.

        May read the model's folder. Raises ``LoadFailed`` if a part of an ensemble is missing,
        ``ServerNotRunning``, and as ``resolve`` does.
        """
        functions = {model.name for model in self._repository.functions()}
        if not functions or name in functions:
            return bool(functions)
        parts = self._opened.running().sources.parts(name, version)
        return any(part in functions for part, _ in parts)

    def functions(self) -> dict[ModelId, FunctionModel]:
        return self._repository.functions()

    def names(self) -> tuple[str, ...]:
        """The names of all models, loaded or not; also of those in memory whose files are gone."""
        runtime = self._opened.runtime
        residents = runtime.residency.snapshot().residents if runtime is not None else ()
        return tuple(sorted({*self._repository.names(), *(model.name for model in residents)}))

    def loaded(self) -> frozenset[str]:
        residents = self._opened.running().residency.snapshot().residents
        return frozenset(m.name for m, r in residents.items() if r.state is ModelState.READY)

    def is_loaded(self, name: str) -> bool:
        """True if the version that answers requests is READY; reads no file."""
        model = self._names.known(name, None)
        state = self._opened.running().residency.state
        return model is not None and state(model) is ModelState.READY

    @property
    def is_ready(self) -> bool:
        return not self.not_ready_because()

    def not_ready_because(self) -> str:
        """Why the server is not ready; ``""`` if it is.

        It is ready from the end of the loads of its start until it begins to stop, but not while a
        version of a model that ``load="all"`` was to load is broken. An eviction does not matter.
        """
        runtime = self._opened.runtime
        if runtime is None:
            return "the server is not running"
        if self._opened.draining.error is not None:
            return str(self._opened.draining.error)
        if not runtime.has_started:
            return "the models of the start are still being loaded"
        if not (failed := runtime.still_broken()):
            return ""
        more = len(failed) - _NAMED_FAILURES
        others = f" and {more} more" if more > 0 else ""
        return f"failed to load {', '.join(map(repr, failed[:_NAMED_FAILURES]))}{others}"

    def of(self, name: str, version: int | None = None) -> ModelStatus:
        """One model, loaded or not. Raises as ``resolve`` does."""
        return self.now(self.resolve(name, version))

    def now(self, model: ModelId) -> ModelStatus:
        """As ``of``, for a model that was found."""
        return self._statuses().of(model)

    def index(self) -> tuple[ModelStatus, ...]:
        """Every served version of every model, by name; broken ones with the reason."""
        return self._statuses().index(self._repository.versions())

    def broken(self, names: Sequence[str] | None = None) -> dict[str, ModelStatus]:
        """The models, of all or of these *names*, of which no version can be read; loaded ones too.

        Reads the folder of each, in 0.2 ms.
        """
        versions = self._repository.versions(names)
        errors = ((name, found) for name, found in versions if isinstance(found, WorkbenchError))
        return {name: broken_status(name, str(error)) for name, error in errors}

    def snapshot(self) -> Snapshot:
        """The devices, their memory, and the models in memory, now."""
        return self._snapshot(self._statuses().here())

    def counted(self) -> Snapshot:
        """As ``snapshot``, but with all models that have statistics, by name.

        Reads no files.
        """
        return self._snapshot(self._statuses().counted())

    def measured(self) -> Snapshot:
        """As ``counted``, with all counts, the computer's memory, and its CPU time meanwhile."""
        with self._records.forgetting:
            now, gone = self.counted(), self._records.forgotten
            counts = gone.requests, gone.loads, gone.stalls
        return replace(
            now,
            host=read_host(),
            cpu_utilization=read_cpu_utilization(),
            forgotten=forgotten_status(*counts),
        )

    def glance(
        self, most: int, *, chosen: str = "", since_s: float = 0.0, wanted: str = ""
    ) -> Snapshot:
        """As ``counted``, but only of about *most* models: those that a person looks at first.

        First the model *chosen*, then models that are loading or could not be loaded, then those
        that take memory, then all others; of each group the last used first.
        All models that were used after *since_s* (Unix seconds) and the largest ones are included,
        even if that makes more than *most*. Models with *wanted* (in lower case) in their names
        come before all others, and only they are counted as left out.
        """
        models, left_out = self._statuses().first(most, chosen, since_s, wanted)
        return replace(self._snapshot(models), left_out=left_out)

    def base_nbytes(self) -> int:
        """The memory of this process that belongs to no model, the engine included.

        On several devices the most on any. Raises ``ServerNotRunning``, and ``LoadFailed`` if the
        engine does not start.
        """
        runtime = self._opened.running()
        for backend in runtime.sources.files:
            backend.wake()
        return max(device.watch.base_nbytes() or 0 for device in runtime.devices)

    def trace(self) -> tuple[Traced, ...]:
        """The last answered requests, in the order of their answers."""
        return self._runs.trace.read()

    @property
    def mark(self) -> Hashable:
        """A value that changes with each event and each step of a load; cheap to read."""
        runtime = self._opened.runtime
        steps = runtime.progress.all() if runtime is not None else ()
        return self._records.events.last, steps

    @property
    def last_answer_s(self) -> float:
        """The time of the last answer (Unix seconds); 0.0 if there was none."""
        return self._runs.trace.last_at_s

    def _snapshot(self, models: tuple[ModelStatus, ...]) -> Snapshot:
        runtime = self._opened.running()
        devices = tuple(map(partial(_device_status, runtime), runtime.devices))
        return Snapshot(time.time(), devices, models)

    def _statuses(self) -> Statuses:
        return Statuses(self._opened.running(), self._names, self._runs)


def _failure(runtime: Runtime, model: ModelId) -> str:
    """Why the last load of *model* failed; ``""`` if it did not."""
    absence = runtime.residency.absence(model)
    return f"{model}: {absence.reason}" if absence and absence.failed else ""


def _check_fits(runtime: Runtime, models: list[ModelId]) -> None:
    """Raise ``ModelNotReady`` if the files of *models* are broken or do not fit into the budget.

    On one device they must fit together; of several devices, each model must fit into one.
    """
    try:
        needs = {model: runtime.sources.look(model) for model in models}
    except WorkbenchError as error:
        raise ModelNotReady(str(error)) from error
    told = {str(model): need for model, need in needs.items()}
    if len(runtime.devices) == 1 and len(models) > 1:
        told = {f"{models[0]} with its parts": together(needs.values())}
    for whole, need in told.items():
        try:
            check_fits(whole, need, runtime.residency.budget_nbytes)
        except MemoryExhausted as error:
            raise ModelNotReady(str(error)) from None


def _device_status(runtime: Runtime, device: ServingDevice) -> DeviceStatus:
    """The *device* and its memory, now."""
    now, placement = runtime.residency.books(device.number), device.placement
    return DeviceStatus(
        placement.device,
        placement.reason,
        now.budget_nbytes,
        now.claimed_nbytes,
        now.held_nbytes,
        device.watch.surplus_nbytes,
        device.watch.base_nbytes(),
        placement.read(),
        placement.read_gpu(),
    )
