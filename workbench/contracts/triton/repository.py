"""The "Model Repository Extension": the rows of the index, and what a load and an unload take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TypeVar

from workbench.codecs import v2_json
from workbench.core import ModelStatus, ServerCore
from workbench.errors import (
    InvalidRequest,
    LoadFailed,
    ModelNotFound,
    ModelNotReady,
    ModelNotSupported,
)
from workbench.model import ModelState

T = TypeVar("T", str, bytes)

Parameters = Iterable[tuple[str, object]]  # names and values: bool, int, float, str or bytes

_MOST_CHARACTERS = 4000
_REASONS = {"unloaded by hand": "unloaded"}  # Triton's own words for these


def index(core: ServerCore, *, ready: bool) -> list[Mapping[str, str]]:
    """A row for each version, loaded or not; only those that are READY if *ready*.

    As in Triton, a model whose versions cannot be read has a row without a version.
    """
    rows = core.status.index()
    return [_row(status) for status in rows if not ready or status.state is ModelState.READY]


def _row(status: ModelStatus) -> Mapping[str, str]:
    """The state of a version, and the reason for it, if there is one."""
    name, version, _ = status.id
    row = {"name": name, **({"version": str(version)} if version else {})}
    row["state"] = status.state.value
    reason = writable(_REASONS.get(status.reason, status.reason)[:_MOST_CHARACTERS])
    return {**row, "reason": reason} if reason else row


def load(core: ServerCore, name: str, parameters: Parameters) -> None:
    """Load every served version of the model, the default one last; returns when they are ready.

    ``config`` is text, and the content of ``file:<path in the model's folder>`` bytes. They
    replace the repository's until an unload, or a load without them; a configuration alone lasts
    until ``config.pbtxt`` changes. *parameters* are not read if loads are not allowed. Raises
    ``InvalidRequest``, ``ModelNotReady``, and as ``CoreModels.load_all`` does.
    """
    _check_allowed(core)
    if not name.strip():
        raise InvalidRequest("the name of the model to load is empty")
    config: str | None = None
    files: dict[str, bytes] = {}
    for parameter, value in parameters:
        if parameter == "config":
            config = _checked(parameter, value, str)
        elif parameter.startswith("file:"):
            files[parameter.removeprefix("file:")] = _checked(parameter, value, bytes)
        else:
            raise _unknown(parameter, "load", "config and file:<path in the model's folder>")
    try:
        core.models.load_all(name, config, files)
    except ModelNotSupported:
        raise
    except (ModelNotFound, InvalidRequest, LoadFailed) as error:
        # this request asked for the load, so what fails is the request's mistake
        kind = InvalidRequest if isinstance(error, LoadFailed) else type(error)
        raise kind(f"failed to load {name!r}: {error}") from error


def unload(core: ServerCore, name: str, parameters: Parameters) -> None:
    """Unload all versions of the model; returns when their memory is back.

    With ``unload_dependents``, also those parts of an ensemble that only it uses. As in Triton, a
    model that is not loaded, broken or unknown is no error: it is not in memory. Raises
    ``InvalidRequest``, ``ModelNotReady``.
    """
    _check_allowed(core)
    dependents = False
    for parameter, value in parameters:
        if parameter != "unload_dependents":
            raise _unknown(parameter, "unload", "unload_dependents")
        if not isinstance(value, bool):
            raise InvalidRequest(f"'unload_dependents' must be true or false, not {_shown(value)}")
        dependents = value
    with suppress(ModelNotFound, LoadFailed):
        core.models.unload(name, dependents=dependents)


def _check_allowed(core: ServerCore) -> None:
    """Refuse if the server watches the repository, as Triton does if it polls."""
    if core.settings.load == "watch":
        raise ModelNotReady(
            "no model is loaded or unloaded by hand if polling is enabled: start the server with "
            "another load than 'watch'"
        )


def _checked(parameter: str, value: object, kind: type[T]) -> T:
    if not isinstance(value, kind):
        wanted = "text" if kind is str else "bytes"
        raise InvalidRequest(f"load parameter {parameter!r} must be {wanted}, not {_shown(value)}")
    return value


def _shown(value: object) -> str:
    return f"{len(value)} bytes" if isinstance(value, bytes) else v2_json.shown(value)


def _unknown(parameter: str, verb: str, known: str) -> InvalidRequest:
    return InvalidRequest(f"there is no {verb} parameter {parameter!r}; available: {known}")


def writable(text: str) -> str:
    """The *text* of a path as wires can send it: bytes of names that are not UTF-8 as escapes."""
    return text.encode("utf-8", "backslashreplace").decode()
