"""A folder of models in Triton's layout.

    <root>/<name>/config.pbtxt        optional
    <root>/<name>/<version>/model.onnx
    <root>/<name>/model.onnx          the same as version 1
    <root>/<name>.onnx                the same again

An ensemble has no file, and need not have versions.

The folder is read at each call. Only configurations are kept, until their files change: a folder
may hold ten thousand models, and a file may change between two loads.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from workbench.errors import LoadFailed, ModelNotFound, RepositoryError, VersionNotFound, reason_of
from workbench.model import (
    A_VERSION,
    Ensemble,
    FunctionModel,
    ModelConfig,
    ModelId,
    ModelSource,
    VersionPolicy,
    check_name,
    is_version,
    shown_name,
)
from workbench.own_folder import OwnFolder
from workbench.repository.config import CONFIG_FILENAME, ConfigFiles
from workbench.spelling import meant_folder
from workbench.stamps import Stamp, stamp

Fingerprint = tuple[tuple[str, Stamp], ...]

NOTHING_RENAMED: Mapping[str, str] = MappingProxyType({})

MLFLOW_CURE = "load it with MLflow, and give that to wb.serve"
"""What to do with a folder of MLflow's that has no ONNX file."""

_OTHER_FOLDERS = {"warmup", "initial_state", "configs"}  # that Triton allows beside versions


@dataclass(frozen=True, slots=True)
class FolderModel:
    """One model: its configuration and the origins of its served versions.

    *origins* are files, or functions. *folder*: where the files are that came with a load; it
    stays as long as a load refers to it. *left_out*: folders with a number that is no version.
    """

    config: ModelConfig
    origins: dict[int, str | FunctionModel]
    folder: OwnFolder | None = None
    left_out: tuple[str, ...] = ()

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
            shown = shown_name(name)
            raise VersionNotFound(f"model {shown!r} has no version {chosen!r}; it has {served}")
        origin = self.config.ensemble or self.origins[chosen]
        file_or_other = Path(origin) if isinstance(origin, str) else origin
        return ModelSource(ModelId(name, chosen), self.config, file_or_other, self.folder)


class ModelFolder:
    """The models under *root*. Raises ``RepositoryError`` if that is not a readable folder.

    A model is broken if one of its links leads out of *root*, unless *follow_links*; and if its
    configuration has another name than its folder, if *checks_name*.
    """

    def __init__(self, root: Path, *, follow_links: bool = False, checks_name: bool = True) -> None:
        self.path = _checked(root)
        self._follow_links = follow_links
        self._configs = ConfigFiles(checks_name=checks_name)

    def names(self) -> set[str]:
        """The names of all models, broken ones included. Raises ``RepositoryError``."""
        try:
            with os.scandir(self.path) as entries:
                names = {name for name in map(_model_name, entries) if name is not None}
        except OSError as error:
            raise unreadable(self.path, error) from None
        self._configs.keep(len(names))
        return names

    def find(self, name: str, config: ModelConfig | None = None) -> FolderModel | None:
        """The model called *name*, by *config* if there is one; ``None`` if it is not there.

        Raises ``LoadFailed`` where its folder or its configuration is broken.
        """
        path = self.where(name)
        if path is None:
            return None
        self._check_links(path)
        if os.path.isfile(path):  # noqa: PTH113
            return FolderModel(config or ModelConfig(name), {1: path})
        with _reading(name):
            return self._model(path, name, config)

    def versions(self, name: str) -> tuple[int, ...]:
        """The served versions of the model called *name*; none if it is not there.

        A configuration that was not read before is parsed only if it has a version policy, so that
        ten thousand models take a second. A broken one shows in ``find``. Raises as that does.
        """
        path = self.where(name)
        if path is None:
            return ()
        self._check_links(path)
        if os.path.isfile(path):  # noqa: PTH113
            return (1,)
        with _reading(name):
            files, versions, _ = _listed(path)
            if versions and CONFIG_FILENAME in files and self._configs.can_skip(path):
                served = VersionPolicy().choose(tuple(versions))
                self._check_links(*(f"{path}/{version}" for version in served))
                return served
            return self._model(path, name).versions

    def fingerprint(self, name: str) -> Fingerprint | None:
        """The names and stamps of the files of the model *name*; ``None`` if it is gone."""
        path = self.where(name)
        if path is None:
            return None
        try:
            found = _stamped(path, depth=2)
        except OSError:
            return None
        return tuple(sorted(found))

    def where(self, name: str) -> str | None:
        """The folder, or the file, of the model called *name*."""
        if not _can_be_name(name) or "/" in name:
            return None
        path = f"{self.path}/{name}"
        if os.path.isdir(path):  # noqa: PTH112  # of many models, and a Path takes longer to make
            return path
        return f"{path}.onnx" if os.path.isfile(f"{path}.onnx") else None  # noqa: PTH113

    def _model(self, folder: str, name: str, config: ModelConfig | None = None) -> FolderModel:
        files, versions, left_out = _listed(folder)
        if config is None and CONFIG_FILENAME in files:
            self._check_links(f"{folder}/{CONFIG_FILENAME}")
            config = self._read_config(folder)
        config = config or ModelConfig(name)
        self.check_config(folder, config)
        filename = config.model_filename
        if not versions:
            is_there = filename in files and os.path.isfile(f"{folder}/{filename}")  # noqa: PTH113
            if not is_there and config.ensemble is None:
                raise _no_model(folder, name, filename)
            self._check_links(f"{folder}/{filename}")
            return FolderModel(config, {1: f"{folder}/{filename}"})
        served = config.version_policy.choose(tuple(versions))
        if not served:
            raise LoadFailed(
                f"the version_policy in {folder}/{CONFIG_FILENAME} serves none of versions "
                f"{', '.join(map(str, sorted(versions)))}"
            )
        origins: dict[int, str | FunctionModel] = {}
        for version in served:
            origins[version] = path = f"{folder}/{version}/{filename}"
            self._check_links(f"{folder}/{version}", path)
        return FolderModel(config, origins, left_out=left_out)

    def _read_config(self, folder: str) -> ModelConfig:
        return self._configs.read(folder)

    def check_config(self, folder: str, config: ModelConfig) -> None:
        """Check that no file that *config* names, in *folder*, is a link out of the repository.

        Raises ``LoadFailed``.
        """
        labels = (f"{folder}/{name}" for name in config.label_filenames.values())
        samples = config.warm_up_files
        self._check_links(*labels, *{path.parent for path in samples}, *samples)

    def _check_links(self, *paths: str | Path) -> None:
        """Check that links among *paths* stay in the repository. Raises ``LoadFailed``."""
        for path in paths:
            if not self._follow_links and os.path.islink(path):  # noqa: PTH114
                target = os.path.realpath(path)
                root = os.path.realpath(self.path)  # now, since the link may be changed later
                if os.path.commonpath((root, target)) != root:
                    raise LoadFailed(
                        f"{path} is a link out of the repository, to {target}; the setting "
                        "follow_links allows that"
                    )


class OneModel(ModelFolder):
    """One model, called *name*, whose folder or file is *path*, wherever that is.

    Its configuration may have another name. *root*: the folder that no link may lead out of; that
    of the model unless given. *renamed*: other names for models in the steps of an ensemble. Raises
    ``RepositoryError`` if nothing is at *path*.
    """

    def __init__(
        self,
        name: str,
        path: Path,
        *,
        root: Path | None = None,
        renamed: Mapping[str, str] = NOTHING_RENAMED,
        follow_links: bool = False,
    ) -> None:
        path = path.absolute()
        if not path.exists():
            shown = shown_name(name)
            raise RepositoryError(f"the model {shown!r} cannot be added: there is no {str(path)!r}")
        folder = path if path.is_dir() else path.parent
        super().__init__(root or folder, follow_links=follow_links, checks_name=False)
        self._name = name
        self._file_or_folder = str(path)
        self._renamed = renamed

    def names(self) -> set[str]:
        return {self._name} if os.path.exists(self._file_or_folder) else set()  # noqa: PTH110

    def where(self, name: str) -> str | None:
        there = name == self._name and os.path.exists(self._file_or_folder)  # noqa: PTH110
        return self._file_or_folder if there else None

    def _read_config(self, folder: str) -> ModelConfig:
        config = replace(super()._read_config(folder), name=self._name)
        if config.ensemble is None:
            return config
        steps = (
            replace(step, model=self._renamed.get(step.model, step.model))
            for step in config.ensemble.steps
        )
        return replace(config, ensemble=Ensemble(tuple(steps)))


@contextmanager
def _reading(name: str) -> Iterator[None]:
    """Context in which the folder of the model called *name* is read."""
    try:
        yield
    except OSError as error:
        raise LoadFailed(
            f"the folder of model {shown_name(name)!r} cannot be read: {reason_of(error)}"
        ) from None


def _model_name(entry: os.DirEntry[str]) -> str | None:
    """The name of the model at *entry*, which is a folder or an .onnx file; else ``None``."""
    name = entry.name
    if not _can_be_name(name):
        return None
    try:
        if entry.is_dir():
            return name
        return name[:-5] if name.endswith(".onnx") and entry.is_file() else None
    except OSError:  # a loop of links
        return None


def _can_be_name(filename: str) -> bool:
    """True if a file or folder of that name may be a model."""
    if filename.startswith((".", "__")) or "\\" in filename:
        return False
    try:
        check_name(filename)
    except ModelNotFound:
        return False
    return True


def unreadable(root: Path, error: OSError) -> RepositoryError:
    """The error that *root* cannot be read."""
    return RepositoryError(f"the repository folder {str(root)!r}: {error.strerror}")


def _checked(root: Path) -> Path:
    root = root.absolute()
    if not root.exists():
        cure = meant_folder(root) or "; workbench samples --out FOLDER makes one of sample models"
        raise RepositoryError(f"the repository folder {str(root)!r} does not exist{cure}")
    if not root.is_dir():
        raise RepositoryError(
            f"the repository {str(root)!r} is a file, not a folder: name the folder of the models"
        )
    try:
        os.scandir(root).close()
    except OSError as error:
        raise unreadable(root, error) from None
    return root


def _stamped(path: str, depth: int) -> list[tuple[str, Stamp]]:
    """The stamps of *path*, or of the files in it, down to *depth*."""
    if depth == 0 or not os.path.isdir(path):  # noqa: PTH112
        return [(path, stamp(path))]
    with os.scandir(path) as entries:
        paths = [entry.path for entry in entries]
    return [found for each in paths for found in _stamped(each, depth - 1)]


def _listed(folder: str) -> tuple[set[str], set[int], tuple[str, ...]]:
    """The names of what is in *folder*, the versions, and the folders with other numbers.

    A version is a folder named by a number without leading zeros, as in Triton, that clients can
    name.
    """
    files: set[str] = set()
    versions: set[int] = set()
    others: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name
            if not name.isdigit() or not entry.is_dir():
                files.add(name)
            elif is_version(name):
                versions.add(int(name))
            else:
                others.append(name)
    return files, versions, tuple(sorted(others))


def _no_model(folder: str, name: str, filename: str) -> LoadFailed:
    """The error that *folder*, of the model called *name*, has neither *filename* nor a version."""
    shown = shown_name(name)
    told = f"the folder of model {shown!r} holds no model: put in 1/{filename} or {filename}"
    if is_mlflows(Path(folder)):
        return LoadFailed(f"the folder of model {shown!r} is MLflow's: {MLFLOW_CURE}")
    with os.scandir(folder) as entries:
        folders = {each.name for each in entries if each.is_dir()} - _OTHER_FOLDERS
    if strange := sorted(name for name in folders if not name.startswith(".")):
        told += f"; {strange[0]!r} is not a version: {A_VERSION}"
    return LoadFailed(told)


def is_mlflows(folder: Path) -> bool:
    """True if MLflow saved a model in *folder*."""
    return (folder / "MLmodel").exists()


def hidden_files(folders: Iterable[Path]) -> str:
    """A warning of model files in *folders* that are not served; empty if there are none.

    Such a file is beside a folder of the same name.
    """
    hidden = []
    for folder in folders:
        try:
            files = sorted(folder.glob("*.onnx"))
        except OSError:  # what reads its models tells that
            continue
        hidden += [file for file in files if file.is_file() and file.with_suffix("").is_dir()]
    if not hidden:
        return ""
    more = f" ({len(hidden) - 1} more like it)" if len(hidden) > 1 else ""
    return (
        f"{hidden[0].stem!r} is served from the folder {hidden[0].with_suffix('')}, and "
        f"{hidden[0]} is not served{more}: rename or remove one of them"
    )
