"""Triton's "Model Repository Extension" over HTTP: which models there are, loading, unloading."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from workbench.codecs import v2_json
from workbench.core import ModelStatus, ServerCore
from workbench.errors import InvalidRequest, LoadFailed, ModelNotFound, ModelNotReady
from workbench.http.calls import Call
from workbench.http.reply import Reply, json_reply
from workbench.model import ModelState

_MOST_CHARACTERS = 4000
_DONE = Reply(200, (), ())
_REASONS = {"unloaded by hand": "unloaded"}  # where Triton has a word of its own


def index(core: ServerCore, call: Call) -> Reply:
    """A row a version, loaded or not; of ``{"ready": true}``, only those that are READY.

    A model whose folder is too broken to have versions has "0", since clients
    make a number of it.
    """
    ready = call.message().get("ready", False)
    if not isinstance(ready, bool):
        raise InvalidRequest(f"'ready' is to be true or false, not {v2_json.shown(ready)}")
    wanted = (row for row in core.index() if not ready or row.state is ModelState.READY)
    return json_reply(v2_json.write([_row(status) for status in wanted]))


def _row(status: ModelStatus) -> Mapping[str, str]:
    model = status.id
    row = {"name": model.name, "version": str(model.version), "state": status.state.value}
    reason = _REASONS.get(status.reason, status.reason)
    return {**row, "reason": reason[:_MOST_CHARACTERS]} if reason else row


def load(core: ServerCore, call: Call) -> Reply:
    """Load every served version of the model, the default one last; returns when they are ready.

    A ``config``, and files beside it, are in place of what is in the repository, until an
    unload, or a load without them; a configuration alone lasts, unless ``config.pbtxt`` changes.
    Raises as ``ServerCore.load`` does, with the reason.
    """
    _check_by_hand(core)
    config: str | None = None
    files: dict[str, bytes] = {}
    for parameter, value in _parameters(call).items():
        if parameter == "config":
            config = _text(parameter, value)
        elif parameter.startswith("file:"):
            files[parameter.removeprefix("file:")] = _content(parameter, value)
        else:
            raise _unknown(parameter, "load", "config and file:<version>/<file>")
    core.load_all(call.target.name, config, files)
    return _DONE


def _check_by_hand(core: ServerCore) -> None:
    """Refuse what is the watcher's to do, as Triton does where it polls."""
    if core.settings.load == "watch":
        raise ModelNotReady(
            "explicit model load / unload is not allowed while the repository is watched: start "
            "the server with another load than 'watch'"
        )


def _text(parameter: str, value: object) -> str:
    if not isinstance(value, str):
        told = v2_json.shown(value)
        raise InvalidRequest(f"load parameter {parameter!r} is to be text, not {told}")
    return value


def _content(parameter: str, value: object) -> bytes:
    """The bytes of a file, which is base64 in JSON."""
    try:
        return base64.b64decode(_text(parameter, value), validate=True)
    except ValueError as error:
        raise InvalidRequest(f"load parameter {parameter!r} is not base64: {error}") from None


def unload(core: ServerCore, call: Call) -> Reply:
    """Unload all versions of the model; returns when their memory is back.

    With ``unload_dependents``, also those parts of an ensemble that are there only for it.
    As in Triton, a model that is not loaded, broken or unknown is no error:
    afterwards it is not in memory, which is what was asked.
    """
    _check_by_hand(core)
    dependents = False
    for parameter, value in _parameters(call).items():
        if parameter != "unload_dependents":
            raise _unknown(parameter, "unload", "unload_dependents")
        if not isinstance(value, bool):
            told = v2_json.shown(value)
            raise InvalidRequest(f"'unload_dependents' is to be true or false, not {told}")
        dependents = value
    with suppress(ModelNotFound, LoadFailed):
        core.unload(call.target.name, dependents=dependents)
    return _DONE


def _parameters(call: Call) -> dict[str, Any]:
    parameters = call.message().get("parameters")
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise InvalidRequest("'parameters' is not a JSON object")
    return parameters


def _unknown(parameter: str, verb: str, known: str) -> InvalidRequest:
    return InvalidRequest(f"there is no {verb} parameter {parameter!r}; there is {known}")
