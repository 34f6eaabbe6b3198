"""Which models are served, and which of them are loaded by hand."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from workbench.core.lifecycle.loads import Loads
from workbench.core.status.snapshot import ModelStatus
from workbench.core.status_verbs import StatusVerbs
from workbench.errors import InvalidRequest, ModelNotFound
from workbench.model import FunctionModel, ModelId, Need
from workbench.repository import NO_PARTS
from workbench.residency.decision import check_fits
from workbench.stop import CancellationToken


class ModelVerbs(StatusVerbs):
    """Loads and unloads models, and adds and removes them."""

    def load(
        self, name: str, version: int | None = None, stop: CancellationToken | None = None
    ) -> ModelStatus:
        """Load the model, evicting others if need be, and look at its folder anew.

        Where its files changed, what is loaded already answers until they are loaded too,
        and goes on if they do not load. *stop* ends the load, unless others wait for it.
        Raises as ``infer`` does.
        """
        return self._now(self._by_hand().load(name, version, stop))

    def load_all(
        self, name: str, config: str | None = None, files: Mapping[str, bytes] | None = None
    ) -> None:
        """Load every version of the model that is served, as ``load`` does; others leave.

        From now on with *config* (JSON of Triton's ModelConfig) in place of its configuration,
        and with *files* (by ``<version>/<name>``) in place of its folder, until it is unloaded.
        Raises ``InvalidRequest`` where these are no good.
        """
        by_hand, override = self._by_hand(), None
        if config is not None:
            override = self._repository.read_override(name, config, files or {})
        elif files:
            raise InvalidRequest("a load with files needs their configuration, 'config'")
        by_hand.load_all(name, override)

    def unload(
        self,
        name: str,
        version: int | None = None,
        *,
        dependents: bool = False,
        until_gone: bool = False,
    ) -> None:
        """Unload the version, or all of them; returns when the memory is back.

        With its *dependents* go the parts of an ensemble, but for those that another one
        is made of, or that were loaded by hand. Loads and runs that cannot be ended are waited
        for only if it is to be *until_gone*. Raises ``ModelNotFound``, ``VersionNotFound``.
        """
        self._by_hand().unload(name, version, dependents=dependents, until_gone=until_gone)

    def unload_all(self) -> None:
        """Unload every model, as ``unload`` does. Raises ``UsageError`` from within a run."""
        self._by_hand().unload_all()

    def estimate(self, name: str, version: int | None = None) -> int:
        """An upper bound of the bytes that loading and holding the model takes.

        Of an ensemble, all its parts together. Reads the headers of files, starts no engine.
        Raises as ``resolve`` does.
        """
        runtime = self._running()
        with self._repository.one_look():
            model = self._names.look(name, version)
            parts = runtime.sources.parts(name, model.version)
            models = [model, *(self._names.look_for_default(*part) for part in parts)]
            return sum(runtime.sources.look(model).nbytes for model in dict.fromkeys(models))

    def pin(self, name: str, version: int | None = None) -> ModelStatus:
        """Load the model and never evict it; unloading it forgets the pin. Raises as ``load``."""
        return self._now(self._by_hand().pin(name, version))

    def unpin(self, name: str, version: int | None = None) -> ModelStatus:
        """Allow the model's eviction again. Raises ``ModelNotFound``, ``VersionNotFound``."""
        return self._now(self._by_hand().unpin(name, version))

    def _by_hand(self) -> Loads:
        return self._running().loads

    def register(self, model: ModelId, function: FunctionModel) -> None:
        """Serve *function* as *model*, now if the server runs, in place of an older one.

        Raises ``RepositoryError`` if the name is taken, ``MemoryExhausted``; an
        older one goes on if this one can never fit.
        """
        if self.is_open:
            check_fits(str(model), Need(function.nbytes), self._running().residency.budget_nbytes)
            self._by_hand().check_not_needed(model.name)
        self._repository.add_function(model, function)
        self._names.forget(model.name)
        if self.is_open:
            self._by_hand().replace(model.name, model.version)

    def serve(self, name: str, path: Path) -> None:
        """As ``register``, of the ONNX file, or the folder of versions, at *path*.

        Raises as ``add`` and ``load`` do.
        """
        if self.is_open:
            self._by_hand().check_not_needed(name)
        self.add(name, path)
        if self.is_open:
            self._by_hand().replace(name, None)

    def add(
        self,
        name: str,
        origin: Path | FunctionModel,
        *,
        parts: Mapping[str, Path] = NO_PARTS,
        url: str = "",
    ) -> None:
        """Serve the folder of versions, the file, or the function as the model called *name*.

        It is loaded as others are, and what was added under that name before is replaced by the
        next load. An ensemble may bring *parts*, which only its own steps find by these names.
        *url* is kept for ``added``. Raises ``RepositoryError`` where the name is taken, or
        nothing is there.
        """
        if isinstance(origin, FunctionModel):
            self._repository.add_function(ModelId(name, 1), origin)
        else:
            self._repository.add(name, origin, parts)
        self._names.forget(name)
        self._urls[name] = url

    def added(self) -> dict[str, str]:
        """The names of all models that were added, each with its url."""
        return self._urls.copy()

    def remove(self, name: str, *, until_gone: bool = False) -> None:
        """Serve no longer what was added or registered as *name*; returns when its memory is back.

        Requests that have begun are answered first, as ``unload`` does; later ones do not find
        it, and what was counted of it is dropped: a platform's names are new ones for ever.
        *until_gone* is as there. Raises ``ModelNotFound`` if nothing was added under that name.
        """
        names = self._repository.remove(name)
        if not names:
            raise ModelNotFound(f"no model was added as {name!r}")
        self._urls.pop(name, None)
        for each in names:
            self._names.forget(each)
        for each in names if self.is_open else ():
            with suppress(ModelNotFound):  # it was not in memory
                self.unload(each, until_gone=until_gone)
        for each in names:
            self.records.forget(each)
