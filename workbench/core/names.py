"""Finding models by the names that clients use."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from workbench.errors import LoadFailed, ModelNotFound, RepositoryError
from workbench.model import ModelId
from workbench.repository import ModelRepository

_Versions = tuple[ModelId, ...]
_NONE: dict[int | None, _Versions] = {}


class Names:
    """Looks names up in *repository* and remembers the results; thread-safe.

    *default* chooses the version for requests that name none; *loaded* gives the READY versions of
    a name. Both work with versions in descending order.
    """

    def __init__(
        self,
        repository: ModelRepository,
        default: Callable[[tuple[ModelId, ...]], ModelId],
        loaded: Callable[[str], tuple[ModelId, ...]],
    ) -> None:
        self.default = default
        self._loaded = loaded
        self._repository = repository
        self._found: dict[str, dict[int | None, _Versions]] = {}

    def one_look(self) -> AbstractContextManager[object]:
        return self._repository.one_look()

    def known(self, name: str, version: int | None) -> ModelId | None:
        """The model called *name*, if it was found before; reads no file."""
        found = self._found.get(name, _NONE).get(version)
        if found is None:
            return None
        return found[0] if len(found) == 1 else self.default(found)

    def find(self, name: str, version: int | None = None) -> ModelId:
        """The model called *name*; its default version if *version* is ``None``.

        Reads the model's folder the first time. If that is broken or gone, a loaded model is
        found. Raises ``ModelNotFound``, ``VersionNotFound``, ``LoadFailed``.
        """
        model = self.known(name, version)
        if model is None:
            found = self._found.setdefault(name, {})
            try:
                models = self._look_or_loaded(name, version)
            except BaseException:
                if not found:  # a name that does not exist leaves nothing
                    self._found.pop(name, None)
                raise
            found[version] = models
            model = self.default(models)
        return model

    def _look_or_loaded(self, name: str, version: int | None) -> _Versions:
        try:
            return self._look(name, version)
        except (ModelNotFound, LoadFailed, RepositoryError):
            here = tuple(m for m in self._loaded(name) if version in (None, m.version))
            if not here:
                raise
            return here

    def look(self, name: str, version: int | None = None) -> ModelId:
        """As ``find``, but reads the folder again; the highest version if *version* is ``None``."""
        return self._look(name, version)[0]

    def look_for_default(self, name: str, version: int | None = None) -> ModelId:
        """As ``look``, but the default version if *version* is ``None``."""
        return self.default(self._look(name, version))

    def _look(self, name: str, version: int | None) -> _Versions:
        """All versions that may answer, the highest first."""
        found = self._repository.find(name)
        versions = reversed(found.versions) if version is None else (version,)
        return tuple(found.source(each).id for each in versions)

    def forget(self, name: str) -> None:
        """Read the folder of *name* again the next time."""
        self._found.pop(name, None)
