"""Folders that are one model, told from folders of models.

    config.pbtxt, 1/model.onnx, model.onnx     any of these is one model, served from the folder
    onnx/model.onnx                            of Hugging Face, served from this file
    net.onnx                                   any name will do, if it is the only one

A folder that has other models in folders of their own is none of these.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from workbench.repository.config import CONFIG_FILENAME

_MODEL = "model.onnx"
_HUGGING_FACE = "onnx"


def model_of(folder: Path) -> Path | None:
    """The folder or the file of the one model that *folder* is; ``None`` if it is not one.

    ``None`` also for a folder that cannot be read.
    """
    try:
        with os.scandir(folder) as entries:
            inner = [Path(each) for each in entries if not each.name.startswith((".", "__"))]
        path = _model_in(folder, inner)
        others = (each for each in inner if not _is_part(each))
        return None if path is None or any(map(_is_model, others)) else path
    except OSError:
        return None


def _model_in(folder: Path, inner: Iterable[Path]) -> Path | None:
    """The folder or the file of the model in *folder*, which holds the paths *inner*."""
    if _is_model(folder):
        return folder
    if (found := folder / _HUGGING_FACE / _MODEL).is_file():
        return found
    files = [each for each in inner if each.suffix == ".onnx" and each.is_file()]
    return files[0] if len(files) == 1 else None


def _is_part(path: Path) -> bool:
    """True if a folder of that name may belong to the model around it."""
    return path.name.isdecimal() or path.name == _HUGGING_FACE


def _is_model(folder: Path) -> bool:
    """True if *folder* has a configuration, a version or a file of a model."""
    if any((folder / name).is_file() for name in (CONFIG_FILENAME, _MODEL)):
        return True
    return folder.is_dir() and bool(_versions(folder))


def _versions(folder: Path) -> list[Path]:
    """The folders in *folder* that are versions with a file."""
    return [
        each for each in folder.iterdir() if each.name.isdecimal() and (each / _MODEL).is_file()
    ]


def taken_as(folders: Iterable[Path], name: str | None) -> str:
    """A message on the *name* for the model of a folder, for each of *folders*; else nothing."""
    if name is None:
        return ""
    models = [(folder, model_of(folder)) for folder in folders]
    return "; ".join(
        f"{name!r} is served from {path}"
        if path
        else f"{folder} is a folder of models, none of which is renamed {name!r}"
        for folder, path in models
    )


def too_deep(folders: Iterable[Path], name: str | None = None) -> str:
    """A warning if one of *folders* is one model, but is served as models; else nothing.

    *name*: that of the model where a folder is one.
    """
    for folder in folders:
        try:
            found = _versions(folder)
        except OSError:  # what reads its models tells that
            continue
        if found and (name is None or model_of(folder) is None):
            return (
                f"{folder} looks like the folder of one model, and its versions are served as "
                f"models: serve the folder above it, {folder.parent}, or set name"
            )
    return ""
