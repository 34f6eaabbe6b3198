"""SageMaker's contract for the containers of multi-model endpoints."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from workbench.codecs import v2_json
from workbench.contracts.sagemaker.names import core_name
from workbench.contracts.sagemaker.paging import PAGE, page_of
from workbench.contracts.sagemaker.refusals import Refusal
from workbench.errors import InvalidRequest, ModelNotFound, ServerNotRunning
from workbench.events import OptionIgnored
from workbench.http import v2
from workbench.http.calls import HttpCall, authorize_run, in_thread
from workbench.http.endpoint import PAYLOAD, invoke_target, target_of
from workbench.http.infer import unless
from workbench.http.invocations import (
    INVOCATIONS,
    INVOKE,
    MODEL,
    NAME,
    PARAMETERS,
    invoked,
    payload_reply,
    refused,
)
from workbench.http.platform import Platform
from workbench.http.reply import Reply
from workbench.http.route import ErrorEncoder, Group, Route, RunsOn
from workbench.http.shapes import TEXT, WHOLE, Json, answer, body, listed, obj, ref
from workbench.model import ModelId

_TRAILING_COMMA = re.compile(rb",\s*\}\s*$")  # as AWS' own page prints the body of a load
_NOT_IN_QUERY = (  # where multi-model-server takes it too
    ' SageMaker sends it in the body, not in the query: {"model_name": "NAME", "url": "FOLDER"}'
)
_LONG = 40
_UNKNOWN = "a load has url and model_name"


def _ping(plane: Platform, call: HttpCall) -> Reply:
    if not plane.core.is_open:
        raise ServerNotRunning("the server is not running")
    return v2.json({"status": "Healthy"})


def _list(plane: Platform, call: HttpCall) -> Reply:
    limit = call.argument("limit") or str(PAGE)
    if not limit.isascii() or not limit.isdigit() or not 1 <= int(limit[:9]) <= PAGE:
        raise InvalidRequest(f"'limit' is a number from 1 to {PAGE}, not {limit[:_LONG]!r}")
    token = call.argument("next_page_token") or None  # the platform may begin "without a value"
    page = page_of(plane.container.models(), token, int(limit))
    told: Json = {"models": [_row(*each) for each in page.models.items()]}
    return v2.json(told if page.next_token is None else {**told, "nextPageToken": page.next_token})


def _row(model_name: str, url: str) -> Json:
    return {"modelName": model_name, "modelUrl": url}


def _load(plane: Platform, call: HttpCall) -> Reply:
    """Answers once the model can be invoked."""
    text = _TRAILING_COMMA.sub(b"}", call.inflated())
    message = replace(call, body=text, headers=()).message()
    elsewhere = _NOT_IN_QUERY if call.query else ""
    url, model_name = (_text(message, key, elsewhere) for key in ("url", "model_name"))
    plane.container.load(model_name, url, target_of(call))
    for member in message.keys() - {"url", "model_name"}:  # the platform may send more one day
        ignored = OptionIgnored(ModelId(core_name(model_name), 1), f"member {member!r}", _UNKNOWN)
        plane.core.events.append(ignored)
    return v2.json({"status": "Workers scaled"})


def _text(message: Mapping[str, Any], key: str, elsewhere: str) -> str:
    value = message.get(key)
    if value is None or value == "":
        raise InvalidRequest(f"Parameter {key} is required.{elsewhere}")
    if not isinstance(value, str):
        raise InvalidRequest(f"{key!r} must be text, not {v2_json.shown(value)}")
    return value


def _get(plane: Platform, call: HttpCall) -> Reply:
    return v2.json(_row(call.parameters[NAME], plane.container.url(call.parameters[NAME])))


def _unload(plane: Platform, call: HttpCall) -> Reply:
    """Answers once the model's memory is back."""
    plane.container.unload(call.parameters[NAME])
    return v2.json({"status": f'Model "{call.parameters[NAME]}" unregistered'})


def _named(call: HttpCall) -> str:
    """The core's name of the model that the path names. Raises ``InvalidRequest``."""
    return core_name(call.parameters[NAME])


async def _invoke(plane: Platform, call: HttpCall) -> Reply:
    return await _invoked(plane, call, _named(call))


async def _invocations(plane: Platform, call: HttpCall) -> Reply:
    """Of the model that a header or the query names, or of the only one.

    A model below the setting ``artifacts`` is loaded if need be, as the platform would.
    """
    container, target = plane.container, target_of(call) or call.argument("model_name")
    if target:
        name = core_name(target)
    else:  # it may wait for a load
        name = await unless(call.gone, in_thread(container.core, container.only, waits=True))
    if target and not container.core.models.is_added(name):
        if not plane.endpoint.is_multi_model:
            raise ModelNotFound(f"Model not found: {target}")
        return await invoke_target(plane, call, target)
    return await _invoked(plane, call, name)


async def _invoked(plane: Platform, call: HttpCall, name: str) -> Reply:
    await authorize_run(plane.core, call, name)
    return payload_reply(await invoked(plane.container, call, name))


# ── errors ──


def _told(status: int, message: str) -> Reply:
    return v2.json(Refusal(status, message).body, status)


# ── the group ──

_RUNS = (*v2.READS, 406, 413, 415, 500, 507)
_SCHEMAS: Json = {
    "container_error": obj({"code": WHOLE, "type": TEXT, "message": TEXT, "error": TEXT}),
    "container_status": obj({"status": TEXT}),
    "container_model": obj({"modelName": TEXT, "modelUrl": TEXT}),
    "container_models": obj({"models": listed(ref("container_model"))}, {"nextPageToken": TEXT}),
    "container_load": obj({"model_name": TEXT, "url": TEXT}),
}

SAGEMAKER = Group(
    "SageMaker",
    (
        Route("GET /ping", _ping, "ping", "Whether the container serves", "container_status",
            v2.STOPS, runs=RunsOn.LOOP),
        Route("GET /models", _list, "container_models", "The loaded models, by pages",
            "container_models", (400, 503), runs=RunsOn.LOOP),
        Route("POST /models", _load, "container_load", "Load a model from a folder",
            "container_status", (*v2.BODY, 404, 409, 503, 507), "container_load",
            RunsOn.WAITING_THREAD, "model-repository"),
        Route(f"GET {MODEL}", _get, "container_model", "Where a loaded model came from",
            "container_model", (404, 503), runs=RunsOn.LOOP),
        Route(f"DELETE {MODEL}", _unload, "container_unload", "Unload a model",
            "container_status", (404, 503), runs=RunsOn.WAITING_THREAD,
            restrict="model-repository"),
        Route(f"POST {INVOKE}", _invoke, "container_invoke", "Run a model",
            "container_payload", _RUNS, "container_payload"),
        Route(f"POST {INVOCATIONS}", _invocations, "invocations",
            "Run the model that X-Amzn-SageMaker-Target-Model names, or the only one",
            "container_payload", _RUNS, "container_payload"),
    ),
    ErrorEncoder(refused, _told, "container_error"),
    service=lambda plane: plane.core.parts["sagemaker"],
    parameters=PARAMETERS,
    responses={
        "container_status": answer("What became of it.", ref("container_status")),
        "container_models": answer("Name and url of each.", ref("container_models")),
        "container_model": answer("Its name and its url.", ref("container_model")),
        "container_payload": {"description": "The outputs, as Accept says.", **PAYLOAD},
    },
    bodies={
        "container_load": body(
            ref("container_load"),
            {"model_name": "my_model", "url": "/opt/ml/models/my_model/model"},
        ),
        "container_payload": {"required": True, **PAYLOAD},
    },
    schemas=_SCHEMAS,
)  # fmt: skip
