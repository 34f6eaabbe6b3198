"""SageMaker's variables for a container."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from workbench.errors import SettingError

_BIND_TO_PORT = "SAGEMAKER_BIND_TO_PORT"
_MIB = 2**20
_MULTI_MODEL = "SAGEMAKER_MULTI_MODEL"
_ACCEPT = "SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT"
_PROGRAM = "SAGEMAKER_PROGRAM"
_SAFE_PORTS = "SAGEMAKER_SAFE_PORT_RANGE"
_ARTIFACTS = "WORKBENCH_ARTIFACTS"
_BASE_FOLDER = "/opt/ml"
_PORT_RANGE = re.compile(r"([0-9]{1,5})-([0-9]{1,5})")
_MEDIA_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+", re.ASCII)
_SCRIPT = re.compile(r"\w[\w-]*(\.py)?")

_VARIABLES: Mapping[str, tuple[str, Callable[[str], object]]] = {
    _BIND_TO_PORT: ("port", str),
    "SAGEMAKER_MAX_REQUEST_SIZE": ("max_request", str),
    "SAGEMAKER_MAX_PAYLOAD_IN_MB": ("max_request", lambda text: int(text) * _MIB),
    "SAGEMAKER_MODEL_JOB_QUEUE_SIZE": ("max_waiting", str),
    "SAGEMAKER_MODEL_SERVER_TIMEOUT": ("wait", str),
    "SAGEMAKER_MODEL_SERVER_TIMEOUT_SECONDS": ("wait", str),
}
"""SageMaker's variables, the option that each is the default of, and how it is read."""


def is_multi_model(environ: Mapping[str, str]) -> bool:
    """True in a container of a multi-model endpoint."""
    return environ.get(_MULTI_MODEL, "").lower() == "true"


def default_accept(environ: Mapping[str, str]) -> str:
    """The media type of answers to requests that accept any; nothing if none is chosen.

    Raises ``SettingError``.
    """
    text = environ.get(_ACCEPT, "").strip()
    if text and not _MEDIA_TYPE.fullmatch(text):
        raise SettingError(f"{_ACCEPT}: {text!r} is not a media type, such as text/csv")
    return text


def script_name(environ: Mapping[str, str]) -> str:
    """The file in an artifact's folder code that has model_fn. Raises ``SettingError``."""
    name = environ.get(_PROGRAM) or "inference.py"
    if not _SCRIPT.fullmatch(name):
        raise SettingError(
            f"{_PROGRAM}: {name!r} is not the name of a Python file, such as inference.py"
        )
    return f"{name.removesuffix('.py')}.py"  # the toolkit takes it without its suffix, too


def defaults(environ: Mapping[str, str]) -> Iterator[tuple[str, object, str]]:
    """The options with another default here: name, value, and the variable that says so.

    On multi-model endpoints the platform alone unloads models. Raises ``SettingError``.
    """
    if is_multi_model(environ):
        yield "evict", "never", _MULTI_MODEL
    for variable, (name, read) in _VARIABLES.items():
        text = environ.get(variable)
        if text:
            try:
                yield name, read(text), variable
            except ValueError:
                raise SettingError(f"{variable}: {text!r} is not a whole number") from None


def check_port(environ: Mapping[str, str], values: Mapping[str, object]) -> None:
    """Ports beside HTTP's must be in the range that SageMaker leaves to a container.

    Raises ``SettingError``.
    """
    allowed, grpc_port = environ.get(_SAFE_PORTS), values.get("grpc_port")
    if not allowed or not isinstance(grpc_port, int):
        return
    ends = _PORT_RANGE.fullmatch(allowed)
    if ends is None:
        raise SettingError(f"{_SAFE_PORTS}: {allowed!r} is not a range of ports, such as 9000-9999")
    if not int(ends[1]) <= grpc_port <= int(ends[2]):
        raise SettingError(f"grpc_port: {grpc_port} is not in {_SAFE_PORTS}, {allowed}")


def serves(given: Mapping[str, Any], environ: Mapping[str, str]) -> Mapping[str, Any] | None:
    """The settings of a process that was started as the container of an endpoint; else ``None``."""
    if not environ.get(_BIND_TO_PORT) and not is_multi_model(environ):
        return None
    return {**given, "artifacts": given["artifacts"] or single_artifacts(environ)}


def single_artifacts(environ: Mapping[str, str]) -> str | None:
    """The folder in which the platform puts the folder ``model`` of an endpoint of one model.

    ``None`` on multi-model endpoints, or if the variable of the setting names another folder.
    Raises as ``find_artifact`` does if there is no model, so that the endpoint does not start;
    ``SettingError``.
    """
    from workbench.annexes.sagemaker.layouts import find_artifact

    if is_multi_model(environ) or environ.get(_ARTIFACTS):
        return None
    folder = environ.get("SAGEMAKER_BASE_DIR") or _BASE_FOLDER
    find_artifact(f"{folder}/model", script_name(environ))
    return folder
