"""Saves served models as files, for Triton, KServe, SageMaker and this server.

A folder of a model repository, ``<name>/config.pbtxt`` and ``<name>/<version>/model.onnx``, or an
archive of it. The report of a conversion is beside the model that it made, ``conversion.json``.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from workbench.archives import ENDINGS, ArchiveMembers, onnx_members, write_archive
from workbench.backends.onnx.backend import OnnxBackend
from workbench.codecs.model_config import describe
from workbench.contracts.triton.metadata import model_config
from workbench.core import ServerCore
from workbench.errors import UsageError
from workbench.model import Ensemble, FunctionModel, ModelSource
from workbench.own_folder import OwnFolder
from workbench.repository.config import CONFIG_FILENAME
from workbench.repository.config_text import as_text, portable, replace_config

_OTHER_FILES = (".zip", ".tar", ".gz", ".bz2", ".xz", ".7z", ".onnx", ".pt", ".pkl", ".joblib")
_REPORT = "conversion.json"
_WHY_EMPTY = b"Triton serves an ensemble only if there is a folder for its version.\n"


Export = Callable[[Path], object]
"""Writes a Python object as an ONNX model to a path, and what belongs to it beside that."""


def save(
    core: ServerCore,
    name: str,
    to: Path,
    version: int | None = None,
    objects: Mapping[str, Export] = MappingProxyType({}),
) -> Path:
    """Save the model *name* in the folder *to*, or as the archive *to* if it ends as one.

    An ensemble brings its parts. Files of the same names are replaced, and others stay. *objects*:
    what writes the Python objects that are served, by their models. Returns the folder of the
    model, or the archive. Raises ``UsageError``, also as *objects* do, ``ModelNotFound``,
    ``VersionNotFound``, ``LoadFailed``, ``OSError``.
    """
    is_archive = to.name.endswith(ENDINGS)
    if not is_archive and (to.is_file() or to.suffix.lower() in _OTHER_FILES):
        wrong = "is a file" if to.is_file() else f"would be a folder called as a {to.suffix} file"
        raise UsageError(f"{to} {wrong}: name a folder, or a file that ends in {ENDINGS[0]}")
    sources: dict[str, list[ModelSource]] = {}
    with ExitStack() as folders:
        for source in _sources(core, name, version, objects):
            written = _written(source, objects, folders)
            sources.setdefault(source.id.name, []).append(written)
        models = {each: dict(_members(core, found)) for each, found in sources.items()}
        if not is_archive:
            for each, members in models.items():
                _write_folder(to / each, members)
            return to / name
        to.parent.mkdir(parents=True, exist_ok=True)
        several = {f"{each}/{path}": m[path] for each, m in models.items() for path in m}
        write_archive(several if len(models) > 1 else models[name], to)
    return to


def _written(source: ModelSource, objects: Mapping[str, Export], folders: ExitStack) -> ModelSource:
    """*source*, whose origin is a file; that of an object is written into one of *folders*."""
    if not isinstance(source.origin, FunctionModel):
        return source
    folder = OwnFolder()
    folders.callback(folder.close)
    path = Path(folder.name, "model.onnx")
    objects[source.id.name](path)
    return replace(source, origin=path, folder=folder)


def _sources(
    core: ServerCore, name: str, version: int | None, objects: Mapping[str, Export]
) -> Iterator[ModelSource]:
    """The model's source, and those of its parts, each once."""
    waiting: list[tuple[str, int | None]] = [(name, version)]
    for part in waiting:  # the list grows: parts may have parts
        source = core.status.source(*part)
        called, origin = source.id.name, source.origin
        if isinstance(origin, FunctionModel) and called not in objects:
            raise UsageError(
                f"{called!r} is a Python function, which has no file: for SageMaker, write it into "
                "a .py file and run workbench pack FILE.py"
            )
        if "/" in called or "\\" in called:
            raise UsageError(f"{called!r} has a slash: serve it by a name that a folder can have")
        if isinstance(origin, Ensemble):
            waiting += [each for each in origin.parts if each not in waiting]
        yield source


def _members(core: ServerCore, versions: list[ModelSource]) -> Iterator[tuple[str, Path | bytes]]:
    """The files of these *versions* of one model, by their paths in its folder."""
    unique = {source.id.version: source for source in versions}
    for version, source in unique.items():
        if isinstance(source.origin, Path):
            yield from onnx_members(source.origin, version).items()
            report = source.origin.with_name(_REPORT)
            if report.is_file():
                yield f"{version}/{_REPORT}", report
        else:
            yield f"{version}/empty.txt", _WHY_EMPTY
    config = source.config
    told = portable(_config(core, source))
    if config.instances:
        told["instance_group"] = [{"count": config.instances}]
    if len(unique) > 1:
        told["version_policy"] = {"specific": {"versions": sorted(unique)}}
    yield CONFIG_FILENAME, as_text(told).encode()
    for output, labels in config.labels.items():
        yield config.label_filenames[output], "".join(f"{each}\n" for each in labels).encode()
    for sample in config.warm_up:
        for given in sample.inputs.values():
            if isinstance(given.data, Path):
                yield f"warmup/{given.data.name}", given.data


def _config(core: ServerCore, source: ModelSource) -> Mapping[str, object]:
    """The configuration of the model in *source*, or of the file that was written of an object."""
    served = core.status.source(source.id.name, source.id.version)
    if isinstance(served.origin, FunctionModel):
        return describe(source, OnnxBackend().inspect(source).signature, None)
    return model_config(core, source.id.name, source.id.version)


def _write_folder(folder: Path, members: ArchiveMembers) -> None:
    for path, content in members.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if path == CONFIG_FILENAME and isinstance(content, bytes):
            replace_config(folder, content.decode())
            continue
        part = target.with_name(f".{target.name}.part")
        try:
            if isinstance(content, bytes):
                part.write_bytes(content)
            else:
                shutil.copyfile(content, part)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
