"""The configuration and the files that a load request may bring."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf import json_format

from workbench.errors import InvalidRequest, LoadFailed, ModelNotSupported, reason_of
from workbench.model import ModelConfig, is_version
from workbench.nbytes import show_nbytes
from workbench.own_folder import OwnFolder
from workbench.protos import message_class
from workbench.repository.config import MOST_NBYTES, model_config
from workbench.repository.fields import is_plain
from workbench.stamps import Stamp

_MOST_FILES = 1000
_NESTING = 100


@dataclass(frozen=True, slots=True, eq=False)
class Override:
    """The *config* and the files of a load request, in place of those in the repository.

    *stamp*: that of the configuration that is replaced. *origins*: the model file of each version,
    in *folder*.
    """

    config: ModelConfig
    stamp: Stamp | None
    origins: Mapping[int, str]
    folder: OwnFolder | None = None


def read_override(name: str, folder: Path | None, config: str, stamp: Stamp | None) -> Override:
    """The configuration *config*, JSON of Triton's ModelConfig, for the model in *folder*.

    Without a folder the model has version 1, and no file. Raises ``InvalidRequest``.
    """
    made = _config(name, folder or Path(os.devnull), config)
    return Override(made, stamp, {} if folder else {1: ""})


def keep_override(name: str, config: str, files: Mapping[str, bytes]) -> Override:
    """Write *files*, by their paths in the model's folder, with the configuration *config*.

    Raises ``InvalidRequest``, and ``LoadFailed`` where the files cannot be written.
    """
    if len(files) > _MOST_FILES:
        raise InvalidRequest(f"a load brings at most {_MOST_FILES} files, not {len(files)}")
    versions = {int(path.partition("/")[0]) for path in files if _check_path(path)}
    try:
        folder = OwnFolder()
        for path, content in files.items():
            place = Path(folder.name, path)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
    except OSError as error:
        raise LoadFailed(f"the files of {name!r} cannot be kept: {reason_of(error)}") from None
    made = _config(name, Path(folder.name), config)
    if made.ensemble is not None:
        raise InvalidRequest("an ensemble has no files: leave them out of its load")
    if not versions:
        raise InvalidRequest(f"a load parameter 'file:1/{made.model_filename}' is missing")
    served = made.version_policy.choose(tuple(versions))
    if not served:
        told = ", ".join(map(str, sorted(versions)))
        raise InvalidRequest(f"the version_policy in 'config' serves none of versions {told}")
    for each in served:
        if f"{each}/{made.model_filename}" not in files:
            raise InvalidRequest(f"a load parameter 'file:{each}/{made.model_filename}' is missing")
    origins = {version: f"{folder.name}/{version}/{made.model_filename}" for version in served}
    return Override(made, None, origins, folder)


def _config(name: str, folder: Path, text: str) -> ModelConfig:
    if len(text) > MOST_NBYTES:
        raise InvalidRequest(
            f"load parameter 'config' is longer than the {show_nbytes(MOST_NBYTES)} that are read"
        )
    if text.lstrip()[:1] not in ("", "{"):  # protobuf takes an empty list for an empty object
        raise InvalidRequest("load parameter 'config' is not a JSON object")
    message: Any = message_class("model_config", "inference.ModelConfig")()
    try:
        json_format.Parse(text, message, max_recursion_depth=_NESTING)
        return model_config(name, folder, message)
    except ModelNotSupported:
        raise
    except (json_format.ParseError, ValueError, OSError, LoadFailed) as error:
        told = " ".join(str(error).split()).partition(" Available Fields")[0]
        raise InvalidRequest(f"load parameter 'config': {told}") from None
    except RecursionError:
        raise InvalidRequest("load parameter 'config' is nested too deep") from None


def _check_path(path: str) -> bool:
    """True if *path* is within the folder of a version.

    Raises ``InvalidRequest`` if it does not stay in the folder of the model.
    """
    parts = path.split("/")
    if "\\" in path or not all(map(is_plain, parts)):
        raise InvalidRequest(
            f"load parameter {f'file:{path}'!r} must be file:<path in the model's folder>, such as "
            "file:1/model.onnx"
        )
    return len(parts) > 1 and is_version(parts[0])
