"""From a model's url to the files that are served: the known layouts of artifacts.

    model.onnx                             any name will do, if it is the only one
    1/model.onnx                           versions, as in Triton's repository
    config.pbtxt, 1/model.onnx             what Triton has on multi-model endpoints
    <name>/config.pbtxt, <name>/1/...      what Triton has on others: several, if one is an ensemble
    code/inference.py, ...                 a model with the code that runs it
    MAR-INF/MANIFEST.json, model.onnx      a model archive: its model is served, without its handler

A single folder around any of these is looked through.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from workbench.errors import InvalidRequest, LoadFailed, ModelNotFound

SCRIPT = "inference.py"
"""The file with an artifact's code, as SageMaker's toolkit calls it unless told otherwise."""

_OF_SYSTEM = tuple(map(Path, ("/proc", "/sys", "/dev")))
_SHARED = Path("/dev/shm")  # noqa: S108  # where folders of models may be, for the sake of speed
_NO_MODELS = {"code", "MAR-INF", "__MACOSX"}
_LOOKED_THROUGH = 2  # folders around a model
_OF_FRAMEWORKS = {
    ".bin", ".bst", ".h5", ".joblib", ".keras", ".pkl", ".pt", ".pth", ".safetensors", ".ubj",
}  # fmt: skip  # the suffixes of models that code loads
OF_MACS = ("._", ".DS_Store", "__MACOSX")
"""The beginnings of the names of files that macOS adds."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """The model at *path*, with the *parts* of an ensemble by name; or with its *code*, a file."""

    path: Path
    parts: Mapping[str, Path] = field(default_factory=dict)
    code: Path | None = None


def find_artifact(url: str, script: str = SCRIPT) -> Artifact:
    """The model in the folder *url*, in which code is called *script*.

    Raises ``InvalidRequest`` for what is no folder of this machine, ``ModelNotFound`` where there
    is nothing, ``LoadFailed`` where there is no model, or more than one.
    """
    return artifact_in(_folder(url), script)


def artifact_in(folder: Path, script: str = SCRIPT) -> Artifact:
    """The model in *folder*, in which code is called *script*. Raises ``LoadFailed``."""
    try:
        artifact = _look(folder, script, _LOOKED_THROUGH)
        root = folder.resolve()
        for path in (artifact.path, artifact.code or root, *artifact.parts.values()):
            if not path.resolve().is_relative_to(root):
                raise LoadFailed(f"{path} is a link out of the artifact: put in what it links to")
    except OSError as error:
        raise LoadFailed(f"{folder} cannot be read: {error.strerror}") from None
    return artifact


def _folder(url: str) -> Path:
    path = Path(url)
    if "\0" in url or not path.is_absolute() or ".." in path.parts:
        raise InvalidRequest(f"url {url!r} must be a folder of this machine, from / on")
    try:
        if _is_of_system(path.resolve()):
            raise InvalidRequest(f"url {url!r} is a folder of the system, which holds no models")
        if path.is_dir():
            return path
        if path.exists():
            raise InvalidRequest(f"url {url!r} is a file: it must be the folder that holds it")
    except (OSError, ValueError):
        pass  # such as a name that no file can have
    raise ModelNotFound(f"Model not found in model store: {url}")


def _is_of_system(folder: Path) -> bool:
    """True for a folder of the system's processes and devices, to be searched by nobody."""
    return any(map(folder.is_relative_to, _OF_SYSTEM)) and not folder.is_relative_to(_SHARED)


def _look(folder: Path, script: str, depth: int) -> Artifact:
    code = folder / "code" / script
    if code.is_file():
        return Artifact(folder, code=code)
    if _is_model(folder):
        return Artifact(folder)
    files = sorted(folder.glob("*.onnx"))
    if len(files) == 1:
        return Artifact(files[0])
    if files:
        raise LoadFailed(f"{folder} holds several models, {_listed(files)}: leave one of them")
    inner = sorted(
        each
        for each in folder.iterdir()
        if each.is_dir() and each.name not in _NO_MODELS and not each.name.startswith(".")
    )
    if len(inner) == 1 and depth:
        return _look(inner[0], script, depth - 1)
    models = [each for each in inner if _is_model(each)]
    if not models:
        raise LoadFailed(f"{folder} holds no model: {_missing_in(folder, script)}")
    if len(models) == 1:  # the other folders are no models
        return Artifact(models[0])
    return _ensemble(folder, models)


def _missing_in(folder: Path, script: str) -> str:
    """The cure for a *folder* without a model."""
    if (folder / script).is_file():
        return f"move {script} into a folder code, beside the model's files"
    if (folder / "code").is_dir():
        return f"rename the script in code to {script}"
    if packed := [path.name for path in folder.glob("*.tar.gz")]:
        return f"it is packed twice, use the {min(packed)} in it"
    others = [path.name for path in folder.iterdir() if path.suffix in _OF_FRAMEWORKS]
    loaded = f", which loads {min(others)}" if others else ""
    return f"put in model.onnx, 1/model.onnx or code/{script}{loaded}"


def wrapper_of(folder: Path) -> str | None:
    """The name of the one folder that holds all of a model in *folder*; ``None`` if none does."""
    entries = [path for path in folder.iterdir() if not path.name.startswith(OF_MACS)]
    if len(entries) != 1 or not entries[0].is_dir():
        return None
    only = entries[0]
    is_layout = only.name.isdecimal() or only.name in _NO_MODELS
    return None if is_layout or (only / "config.pbtxt").exists() else only.name


def _ensemble(folder: Path, models: list[Path]) -> Artifact:
    """Of several *models* in *folder*, the ensemble, and the others as its parts."""
    ensembles = [each for each in models if _is_ensemble(each)]
    if len(ensembles) != 1:
        told = f"{folder} holds several models, {_listed(models)}"
        raise LoadFailed(f"{told}: one of them must be an ensemble")
    return Artifact(ensembles[0], {m.name: m for m in models if m != ensembles[0]})


def _is_model(folder: Path) -> bool:
    """True if *folder* is a model in Triton's layout, or in a simpler one."""
    if any((folder / name).is_file() for name in ("config.pbtxt", "model.onnx")):
        return True
    return any(each.name.isdecimal() and each.is_dir() for each in folder.iterdir())


def _is_ensemble(folder: Path) -> bool:
    config = folder / "config.pbtxt"
    return config.is_file() and b"ensemble_scheduling" in config.read_bytes()


def _listed(paths: list[Path]) -> str:
    return ", ".join(path.name for path in paths[:10])
