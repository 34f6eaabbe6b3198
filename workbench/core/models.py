"""Loading, unloading, adding and removing models."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from workbench.core.names import Names
from workbench.core.opened import Opened
from workbench.core.records import Records
from workbench.core.status.snapshot import ModelStatus
from workbench.core.status.status import CoreStatus
from workbench.errors import InvalidRequest, ModelNotFound
from workbench.model import FunctionModel, ModelId, Need, together
from workbench.repository import NO_PARTS, ModelRepository
from workbench.residency.decision import check_fits
from workbench.stop import CancellationToken


class CoreModels:
    """Loads and unloads models, and adds and removes them.

    *repository* holds their files, which *names* finds; *status* tells of what was loaded, and
    *records* remember it.
    """

    def __init__(
        self,
        opened: Opened,
        repository: ModelRepository,
        names: Names,
        status: CoreStatus,
        records: Records,
    ) -> None:
        self._opened = opened
        self._repository = repository
        self._names = names
        self._status = status
        self._records = records
        self._urls: dict[str, str] = {}  # of the models that were added

    def load(
        self, name: str, version: int | None = None, stop: CancellationToken | None = None
    ) -> ModelStatus:
        """Read the model's folder again and load the model, evicting others if needed.

        If its files have changed since it was loaded, the loaded model keeps answering until the
        new one is ready, and stays if that fails to load. *stop* ends the load, unless others wait
        for it. Raises as ``infer`` does.
        """
        runtime = self._opened.running()
        with runtime.requests.waits.load():
            return self._status.now(runtime.loads.load(name, version, stop))

    def load_all(
        self, name: str, config: str | None = None, files: Mapping[str, bytes] | None = None
    ) -> None:
        """Load all served versions of the model, as ``load`` does, and unload its other versions.

        Until the model is unloaded, *config* (JSON of Triton's ModelConfig) replaces its
        configuration, and *files* (by their paths in it) replace its folder. Raises
        ``InvalidRequest`` if they are not valid.
        """
        runtime, override = self._opened.running(), None
        if config is not None:
            override = self._repository.read_override(name, config, files or {})
        elif files:
            raise InvalidRequest("a load with files needs their configuration, 'config'")
        with runtime.requests.waits.load():
            runtime.loads.load_all(name, override)

    def unload(
        self,
        name: str,
        version: int | None = None,
        *,
        dependents: bool = False,
        until_gone: bool = False,
    ) -> None:
        """Unload the version, or all versions; returns when their memory is free again.

        *dependents*: also unload the parts of an ensemble, except those that another ensemble
        uses or that were loaded by hand. Loads and runs that cannot be ended are waited for only
        if *until_gone* is set. Raises ``ModelNotFound``, ``VersionNotFound``.
        """
        loads = self._opened.running().loads
        loads.unload(name, version, dependents=dependents, until_gone=until_gone)

    def unload_all(self) -> None:
        """Unload every model, as ``unload`` does. Raises ``UsageError`` from within a run."""
        self._opened.running().loads.unload_all()

    def estimate(self, name: str, version: int | None = None) -> Need:
        """An upper bound of the memory that the model takes while loading and after.

        For an ensemble: that of all its parts. Reads only headers of files, and does not start the
        engine. Raises as ``resolve`` does.
        """
        runtime = self._opened.running()
        with self._repository.one_look():
            model = self._names.look(name, version)
            parts = runtime.sources.parts(name, model.version)
            models = [model, *(self._names.look_for_default(*part) for part in parts)]
            return together(map(runtime.sources.look, dict.fromkeys(models)))

    def pin(self, name: str, version: int | None = None) -> ModelStatus:
        """Load the model and never evict it; unloading it forgets the pin. Raises as ``load``."""
        runtime = self._opened.running()
        with runtime.requests.waits.load():
            return self._status.now(runtime.loads.pin(name, version))

    def unpin(self, name: str, version: int | None = None) -> ModelStatus:
        """Allow the model's eviction again. Raises ``ModelNotFound``, ``VersionNotFound``."""
        return self._status.now(self._opened.running().loads.unpin(name, version))

    def register(self, model: ModelId, function: FunctionModel) -> None:
        """Serve *function* as *model*; it replaces an older function of that name.

        If the core is open, it is loaded now. Raises ``RepositoryError`` if the name belongs to a
        model of another kind, and ``MemoryExhausted``; if this one can never fit, the older one
        stays.
        """
        runtime = self._opened.runtime
        if runtime is not None:
            check_fits(str(model), Need(function.nbytes), runtime.residency.budget_nbytes)
            runtime.loads.check_not_needed(model.name)
        self._repository.add_function(model, function)
        self._names.forget(model.name)
        if runtime is not None:
            runtime.loads.replace(model.name, model.version)

    def serve(self, name: str, path: Path) -> None:
        """As ``register``, for the ONNX file, or the folder of versions, at *path*.

        Raises as ``add`` and ``load`` do.
        """
        runtime = self._opened.runtime
        if runtime is not None:
            runtime.loads.check_not_needed(name)
        self.add(name, path)
        if runtime is not None:
            runtime.loads.replace(name, None)

    def add(
        self,
        name: str,
        origin: Path | FunctionModel,
        *,
        parts: Mapping[str, Path] = NO_PARTS,
        url: str = "",
    ) -> None:
        """Serve a folder of versions, a file, or a function as the model *name*.

        Nothing is loaded now. A model that was added under that name before stays until the next
        load. *parts* are models that only the steps of this model, an ensemble, can use, by name.
        *url* is kept for ``added``. Raises ``RepositoryError`` if the name belongs to a model of
        the repository, or if *origin* does not exist.
        """
        if isinstance(origin, FunctionModel):
            self._repository.add_function(ModelId(name, 1), origin)
        else:
            self._repository.add(name, origin, parts)
        self._names.forget(name)
        self._urls[name] = url

    def is_added(self, name: str) -> bool:
        return name in self._urls

    def added(self) -> dict[str, str]:
        """The URL of each model that was added, by name."""
        return self._urls.copy()

    def remove(self, name: str, *, until_gone: bool = False) -> None:
        """Stop serving what was added or registered as *name*; returns when its memory is free.

        As for ``unload``, requests that have begun are answered first; see there for *until_gone*.
        The model's statistics are dropped, since a platform may add new names without end. Raises
        ``ModelNotFound`` if nothing was added under that name.
        """
        names = self._repository.remove(name)
        if not names:
            raise ModelNotFound(f"no model was added as {name!r}")
        self._urls.pop(name, None)
        for each in names:
            self._names.forget(each)
        for each in names if self._opened.runtime is not None else ():
            with suppress(ModelNotFound):  # it was not in memory
                self.unload(each, until_gone=until_gone)
            self._opened.running().removed(each)
        for each in names:
            self._records.forget(each)

    def take_over(self, other: CoreModels) -> None:
        """Take over what was added to *other*, and what loads brought."""
        self._repository.take_over(other._repository)
        self._urls |= other._urls
