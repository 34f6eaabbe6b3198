"""The model repository: folders of models, and the callables beside them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from types import MappingProxyType

from workbench.errors import (
    InvalidRequest,
    LoadFailed,
    ModelNotFound,
    RepositoryError,
    WorkbenchError,
)
from workbench.model import PLATFORM_PREFIX, FunctionModel, ModelConfig, ModelId, check_name
from workbench.repository.config import config_stamp
from workbench.repository.folder import Fingerprint, FolderModel, ModelFolder, OneModel
from workbench.repository.one_model import model_of
from workbench.repository.overrides import Override, keep_override, read_override
from workbench.spelling import available

NO_PARTS: Mapping[str, Path] = MappingProxyType({})

_READ_CONFIGS = 1000


class ModelRepository:
    """The models under *roots* and the functions that were added.

    A root that is one model is served as *name*, if there is one. Links that lead out of the root
    they are in are refused, or followed (*follow_links*). Raises ``RepositoryError`` when one of
    *roots* is not a readable folder.
    """

    def __init__(self, *roots: Path, name: str | None = None, follow_links: bool = False) -> None:
        self._folders: tuple[ModelFolder, ...] = tuple(
            OneModel(name, path, root=root, follow_links=follow_links)
            if name is not None and (path := model_of(root))
            else ModelFolder(root, follow_links=follow_links)
            for root in dict.fromkeys(roots)
        )
        self._follow_links = follow_links
        self._added: dict[str, OneModel] = {}  # which are among the folders
        # of each ensemble that was added
        self._parts: dict[str, dict[str, OneModel]] = {}
        self._functions: dict[str, dict[int, FunctionModel]] = {}
        self._overrides: dict[str, Override] = {}
        self._lock = threading.Lock()
        # one for each object, since there may be several repositories
        self._seen: ContextVar[dict[str, FolderModel] | None] = ContextVar("seen", default=None)

    def names(self) -> tuple[str, ...]:
        """The names of all models, sorted, broken ones included.

        Folders that can no longer be read are left out: ``find`` raises for their models.
        """
        with self._lock:
            names = {*self._functions, *self._overrides}
        for folder in self._folders:
            with suppress(RepositoryError):
                names |= folder.names()
        return tuple(sorted(names))

    def versions(
        self, names: Sequence[str] | None = None
    ) -> Iterator[tuple[str, tuple[int, ...] | WorkbenchError]]:
        """The served versions of all models, or of these *names*; of broken ones, the error.

        In large repositories, configurations that were not needed yet are not all read.
        """
        names = self.names() if names is None else names
        for name in names:
            try:
                special = name in self._functions or name in self._overrides
                if special or len(names) <= _READ_CONFIGS:
                    yield name, self.find(name).versions
                elif folder := self._holder(name):  # otherwise it was removed just now
                    yield name, folder.versions(name)
            except WorkbenchError as error:
                yield name, error

    def fingerprints(self) -> dict[str, Fingerprint]:
        """For each model in a folder, a value that changes with any of its files.

        Raises ``RepositoryError`` when a folder can no longer be read.
        """
        found: dict[str, Fingerprint] = {}
        for folder in self._folders:
            for name in folder.names():
                files = folder.fingerprint(name)
                if files is not None:  # otherwise it was removed just now
                    found[name] = found.get(name, ()) + files
        return found

    def functions(self) -> dict[ModelId, FunctionModel]:
        with self._lock:
            return {
                ModelId(name, version): function
                for name, versions in self._functions.items()
                for version, function in versions.items()
            }

    def add_function(self, model: ModelId, function: FunctionModel) -> None:
        """Serve *function* as *model*, instead of an earlier function of that name and version."""
        if "\\" in check_name(model.name):
            raise RepositoryError(f"the name of a function has no backslash: {model.name!r}")
        if model.name not in self._added and self._path(model.name) is not None:
            raise RepositoryError(f"{model.name!r} is taken by a model of the repository folder")
        if model.name in self._overrides:
            raise RepositoryError(
                f"{model.name!r} is taken by a model that came with its load: unload it first"
            )
        with self._lock:
            self._take_out(model.name)
            self._functions.setdefault(model.name, {})[model.version] = function

    def add(self, name: str, path: Path, parts: Mapping[str, Path] = NO_PARTS) -> None:
        """Serve the folder of versions, or the file, at *path* as the model called *name*.

        It replaces what was added under that name before. If it is an ensemble, its steps find
        *parts* before all other models: they are served too, as *name*/*part*. Raises
        ``RepositoryError`` where the name is taken, or nothing is there.
        """
        renamed = {part: f"{name}/{part}" for part in parts}
        places = {name: path, **{renamed[part]: place for part, place in parts.items()}}
        made = {each: self._made(each, place, renamed) for each, place in places.items()}
        with self._lock:
            for each in made:
                self._check_not_taken(each)
            for each in renamed.values():
                self._check_part(each, name)
            for each in made:
                self._take_out(each)
                self._functions.pop(each, None)
            self._folders = (*self._folders, *made.values())
            self._added.update(made)
            self._parts[name] = {each: made[each] for each in renamed.values()}

    def _made(self, name: str, path: Path, renamed: Mapping[str, str]) -> OneModel:
        if "\\" in check_name(name) or name.startswith((".", "__")):
            raise RepositoryError(f"no model can be called {name!r}")
        return OneModel(name, path, renamed=renamed, follow_links=self._follow_links)

    def _check_not_taken(self, name: str) -> None:
        """Raise ``RepositoryError`` if *name* belongs to a model that was not added."""
        others = (folder for folder in self._folders if folder is not self._added.get(name))
        if name in self._overrides or any(folder.where(name) for folder in others):
            taken = "came with its load" if name in self._overrides else "is of the repository"
            raise RepositoryError(f"{name!r} is a model that {taken}: choose another name")

    def _check_part(self, part: str, ensemble: str) -> None:
        """Raise ``RepositoryError`` if a model was added as *part* that is none of *ensemble*."""
        taken = part in self._added or part in self._functions
        if taken and not self._is_part(part, ensemble):
            raise RepositoryError(
                f"{part!r}, a part of {ensemble!r}, has the name of another model: remove that one"
            )

    def _is_part(self, name: str, ensemble: str) -> bool:
        """True if *name* is still what was added with *ensemble*, and not a model of its own."""
        part = self._parts.get(ensemble, {}).get(name)
        return part is not None and self._added.get(name) is part

    def remove(self, name: str) -> tuple[str, ...]:
        """Stop serving the model added as *name*, and its parts; returns their names."""
        with self._lock:
            names = self._take_out(name)
            if self._functions.pop(name, None):
                names.append(name)
        return tuple(names)

    def _take_out(self, name: str) -> list[str]:
        """Forget the folder that was added as *name*, and its parts; returns their names."""
        parts = [each for each in self._parts.get(name, ()) if self._is_part(each, name)]
        self._parts.pop(name, None)
        names = [*([name] if name in self._added else ()), *parts]
        gone = [self._added.pop(each) for each in names]
        self._folders = tuple(folder for folder in self._folders if folder not in gone)
        return names

    @property
    def seen(self) -> dict[str, FolderModel] | None:
        """The models found so far in the current ``one_look``, by name."""
        return self._seen.get()

    @contextmanager
    def one_look(
        self, seen: dict[str, FolderModel] | None = None
    ) -> Iterator[dict[str, FolderModel]]:
        """Context in which each model is read once, and then stays the same.

        So all steps of a load use the same files, also steps in threads of the workbench's pools (a
        context variable). To continue it in another thread, pass *seen*.
        """
        seen = {} if seen is None else seen
        token = self._seen.set(seen)
        try:
            yield seen
        finally:
            self._seen.reset(token)

    def find(self, name: str) -> FolderModel:
        """The model called *name*; as it was found before, within ``one_look``.

        Raises ``ModelNotFound``, or ``LoadFailed`` where its folder or its
        configuration is broken, or ``RepositoryError`` as ``fingerprints`` does.
        """
        seen = self._seen.get()
        if seen is None:
            return self._find(name)
        model = seen.get(name)
        if model is None:
            model = seen[name] = self._find(name)
        return model

    def _find(self, name: str) -> FolderModel:
        check_name(name)
        functions = self._functions.get(name)
        if functions:
            return FolderModel(ModelConfig(name), dict(functions))
        override = self._overrides.get(name)
        if override is not None and override.origins:
            return FolderModel(override.config, dict(override.origins), override.folder)
        config = override.config if override is not None else None
        folder = self._holder(name)
        model = folder.find(name, config) if folder else None
        if model is None:
            raise self._unknown(name)
        return model

    # ── overrides ──

    def read_override(self, name: str, config: str, files: Mapping[str, bytes]) -> Override:
        """A configuration, as JSON, and perhaps files by their paths, for model *name*.

        Raises ``InvalidRequest``, ``ModelNotFound``, ``LoadFailed``.
        """
        check_name(name)
        if name in self._functions:
            raise InvalidRequest(f"{name!r} is a function, which has no configuration")
        if files:
            if "\\" in name or name.startswith(PLATFORM_PREFIX):
                raise InvalidRequest(
                    f"the name of a model of files has no backslash, and does not begin with "
                    f"{PLATFORM_PREFIX!r}: {name!r}"
                )
            return keep_override(name, config, files)
        folder = self._holder(name)
        path = folder.where(name) if folder else None
        if folder and path:
            override = read_override(name, Path(path), config, config_stamp(path))
            folder.check_config(path, override.config)
            return override
        if name.startswith(PLATFORM_PREFIX):
            raise self._unknown(name)
        override = read_override(name, None, config, None)
        if override.config.ensemble is None:
            raise self._unknown(name)
        return override

    def overriding(self, name: str) -> Override | None:
        """The configuration and files that replace those in the folder of the model *name*."""
        return self._overrides.get(name)

    def lasting(self, name: str) -> Override | None:
        """The part of the override that stays after a load without a configuration and files.

        That is a configuration, until the folder's own one changes. Raises ``LoadFailed`` if the
        model has no folder.
        """
        override = self._overrides.get(name)
        path = self._path(name)
        if override is None or (override.origins and path is not None):
            return None
        if override.origins and override.config.ensemble is None:
            raise LoadFailed(f"{name!r} came with the files of its load: load it with them again")
        stamp = config_stamp(path) if path is not None else None
        return override if stamp == override.stamp else None

    def set_override(self, name: str, override: Override | None) -> None:
        """Serve the model called *name* from *override*, or from its folder."""
        seen = self._seen.get()
        if seen is not None and self._overrides.get(name) is not override:
            seen.pop(name, None)  # it was replaced meanwhile
        with self._lock:
            if override is None:
                self._overrides.pop(name, None)
            else:
                self._overrides[name] = override

    def drop_override(self, name: str) -> bool:
        """Serve the model called *name* from its folder again, not as a load brought it.

        Returns True if it has no folder, and so is gone.
        """
        if self._overrides.get(name) is None:
            return False
        self.set_override(name, None)
        return not self._is_in_folders(name)

    def take_over(self, other: ModelRepository) -> None:
        """Take over from *other* what was added to it and what loads brought."""
        with other._lock:
            overrides, other._overrides = other._overrides, {}
            added, parts = dict(other._added), dict(other._parts)
        with self._lock:
            self._overrides.update(overrides)
            # a name that is now in the folders too would be the name of two models
            free = {name: each for name, each in added.items() if not self._is_in_folders(name)}
            self._folders = (*self._folders, *free.values())
            self._added = free | self._added
            self._parts = parts | self._parts

    def close(self) -> None:
        """Forget what loads brought."""
        with self._lock:
            self._overrides = {}

    def _is_in_folders(self, name: str) -> bool:
        return any(folder.where(name) for folder in self._folders)

    def _holder(self, name: str) -> ModelFolder | None:
        """The root that has the model called *name*. Raises ``ModelNotFound`` if several do."""
        holders = [folder for folder in self._folders if folder.where(name) is not None]
        if len(holders) > 1:
            listed = " and ".join(repr(str(folder.path)) for folder in holders)
            raise ModelNotFound(
                f"model {name!r} appears in two or more repositories: {listed}; rename one"
            )
        return holders[0] if holders else None

    def _path(self, name: str) -> str | None:
        """The path of the model called *name*. Raises as ``_holder``."""
        folder = self._holder(name)
        return folder.where(name) if folder else None

    def _unknown(self, name: str) -> ModelNotFound:
        """The error that there is no model called *name*; it lists some that there are.

        Raises ``RepositoryError`` if it may be in a folder that cannot be read.
        """
        for folder in self._folders:
            folder.names()
        names = [each for each in self.names() if not each.startswith(PLATFORM_PREFIX)]
        return ModelNotFound(f"there is no model {name!r}; {available(names)}")
