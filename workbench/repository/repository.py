"""The model repository: a folder in Triton's layout, and the callables beside it.

    <root>/<name>/config.pbtxt        optional
    <root>/<name>/<version>/model.onnx
    <root>/<name>/model.onnx          the same as version 1
    <root>/<name>.onnx                the same again

Folders are read when they are asked about, never watched or kept in memory, so
that a repository may be large and a file may change between two loads.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

from workbench.errors import LoadFailed, ModelNotFound, RepositoryError, VersionNotFound
from workbench.model import (
    FunctionModel,
    ModelConfig,
    ModelId,
    ModelSource,
    check_name,
)
from workbench.repository.config import CONFIG_FILENAME, read_config


@dataclass(frozen=True, slots=True)
class Model:
    """One model of the repository: its configuration and the origins of its served versions."""

    config: ModelConfig
    origins: dict[int, Path | FunctionModel]

    @property
    def versions(self) -> tuple[int, ...]:
        """The served versions, ascending; at least one."""
        return tuple(sorted(self.origins))

    def source(self, version: int | None = None) -> ModelSource:
        """The source of *version*, or of the highest; ``VersionNotFound`` if not served."""
        name = self.config.name
        chosen = self.versions[-1] if version is None else version
        if chosen not in self.origins:
            served = ", ".join(map(str, self.versions))
            raise VersionNotFound(f"model {name!r} has no version {chosen}; it has {served}")
        return ModelSource(ModelId(name, chosen), self.config, self.origins[chosen])


class ModelRepository:
    """The models under *root* (none without one) and the functions that were added.

    Raises ``RepositoryError`` when *root* is not a readable folder.
    """

    def __init__(self, root: Path | None = None) -> None:
        self._root = None if root is None else _checked(root)
        self._functions: dict[str, dict[int, FunctionModel]] = {}
        self._lock = threading.Lock()

    def names(self) -> tuple[str, ...]:
        """The names of all models, sorted, broken ones included.

        Raises ``RepositoryError`` when the folder can no longer be read.
        """
        with self._lock:
            names = set(self._functions)
        if self._root is not None:
            names.update(filter(None, map(_model_name, _entries(self._root))))
        return tuple(sorted(names))

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
        if self._folder(model.name) is not None:
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
        with self._lock:
            functions = self._functions.get(name)
        if functions:
            return Model(ModelConfig(name), dict(functions))
        path = self._folder(name)
        if path is None:
            raise ModelNotFound(f"there is no model {name!r}; {self._known()}")
        try:
            return Model(ModelConfig(name), {1: path}) if path.is_file() else _folder_model(path)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise LoadFailed(f"the folder of model {name!r} cannot be read: {reason}") from None

    def _folder(self, name: str) -> Path | None:
        if self._root is None or "/" in name or "\\" in name:
            return None
        for path in (self._root / name, self._root / f"{name}.onnx"):
            if _model_name(path) == name:
                return path
        return None

    def _known(self) -> str:
        names = self.names()
        if not names:
            return "the repository is empty"
        shown = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
        return f"there are {shown}"


def _checked(root: Path) -> Path:
    root = root.absolute()
    if not root.exists():
        raise RepositoryError(f"the repository folder {str(root)!r} does not exist")
    if not root.is_dir():
        raise RepositoryError(f"the repository {str(root)!r} is a file, not a folder")
    _entries(root)
    return root


def _entries(root: Path) -> list[Path]:
    try:
        return list(root.iterdir())
    except OSError as error:
        raise RepositoryError(f"the repository folder {str(root)!r}: {error.strerror}") from None


def _model_name(path: Path) -> str | None:
    """The name of the model at *path*, which is a folder or an .onnx file; else ``None``."""
    if path.name.startswith((".", "__")) or "\\" in path.name:
        return None
    try:
        check_name(path.name)
        if path.is_dir():
            return path.name
        return path.stem if path.suffix == ".onnx" and path.is_file() else None
    except (ModelNotFound, OSError):  # no name for a model; one too long; a loop of links
        return None


def _folder_model(folder: Path) -> Model:
    config = read_config(folder)
    versions = _version_folders(folder)
    if not versions and (folder / config.model_filename).is_file():
        return Model(config, {1: folder / config.model_filename})
    if not versions:
        hint = f"1/{config.model_filename} or {config.model_filename}"
        raise LoadFailed(f"the folder of model {folder.name!r} holds no model: put in {hint}")
    served = config.version_policy.choose(tuple(versions))
    if not served:
        raise LoadFailed(
            f"the version_policy in {folder / CONFIG_FILENAME} serves none of versions "
            f"{', '.join(map(str, sorted(versions)))}"
        )
    return Model(config, {version: versions[version] / config.model_filename for version in served})


def _version_folders(folder: Path) -> dict[int, Path]:
    """Triton's rule: a version is a folder named by a number without leading zeros."""
    try:
        return {
            int(path.name): path
            for path in folder.iterdir()
            if path.name.isascii() and path.name.isdigit() and path.name[0] != "0" and path.is_dir()
        }
    except OSError as error:  # it may go, or be closed to us, between two looks
        raise LoadFailed(f"the folder of model {folder.name!r}: {error.strerror}") from None
