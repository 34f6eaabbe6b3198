"""The model repository: folders of models, and the callables beside them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

from workbench.errors import ModelNotFound, RepositoryError, WorkbenchError
from workbench.model import FunctionModel, ModelConfig, ModelId, check_name
from workbench.repository.folder import Model, ModelFolder

_MANY = 1000


class ModelRepository:
    """The models under *root* (none without one) and the functions that were added.

    Raises ``RepositoryError`` when *root* is not a readable folder.
    """

    def __init__(self, root: Path | None = None) -> None:
        self._folder = None if root is None else ModelFolder(root)
        self._functions: dict[str, dict[int, FunctionModel]] = {}
        self._lock = threading.Lock()

    def names(self) -> tuple[str, ...]:
        """The names of all models, sorted, broken ones included.

        Raises ``RepositoryError`` when the folder can no longer be read.
        """
        with self._lock:
            names = set(self._functions)
        if self._folder is not None:
            names |= self._folder.names()
        return tuple(sorted(names))

    def versions(self) -> Iterator[tuple[str, tuple[int, ...] | WorkbenchError]]:
        """The served versions of all models by name, or why they are broken.

        Of many models, configurations that nobody asked about yet are not all read.
        Raises as ``names`` does.
        """
        names = self.names()
        for name in names:
            try:
                if self._folder is None or name in self._functions or len(names) <= _MANY:
                    yield name, self.find(name).versions
                elif versions := self._folder.versions(name):  # else it went just now
                    yield name, versions
            except WorkbenchError as error:
                yield name, error

    def functions(self) -> dict[ModelId, FunctionModel]:
        """The functions that were added."""
        with self._lock:
            return {
                ModelId(name, version): function
                for name, versions in self._functions.items()
                for version, function in versions.items()
            }

    def add_function(self, model: ModelId, function: FunctionModel) -> None:
        """Serve *function* as *model*, in place of what had that name and version."""
        if "\\" in check_name(model.name):
            raise RepositoryError(f"the name of a function has no backslash: {model.name!r}")
        if self._folder is not None and self._folder.where(model.name) is not None:
            raise RepositoryError(f"{model.name!r} is taken by a model of the repository folder")
        with self._lock:
            self._functions[model.name] = {
                **self._functions.get(model.name, {}),
                model.version: function,
            }

    def find(self, name: str) -> Model:
        """The model called *name*.

        Raises ``ModelNotFound``, or ``LoadFailed`` where its folder or its
        configuration is broken, or ``RepositoryError`` as ``names`` does.
        """
        check_name(name)
        functions = self._functions.get(name)
        if functions:
            return Model(ModelConfig(name), dict(functions))
        model = self._folder.find(name) if self._folder is not None else None
        if model is None:
            raise ModelNotFound(f"there is no model {name!r}; {self._known()}")
        return model

    def _known(self) -> str:
        names = self.names()
        if not names:
            return "the repository is empty"
        shown = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
        return f"there are {shown}"
