"""SageMaker's contract for the containers of multi-model endpoints."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from heapq import nsmallest
from typing import Any

from workbench.annexes.sagemaker.container import SINGLE
from workbench.annexes.sagemaker.endpoint import Endpoint
from workbench.annexes.sagemaker.endpoint_http import (
    ANSWER,
    PAYLOAD,
    brought,
    invoke_target,
    target_of,
)
from workbench.annexes.sagemaker.invocations import (
    INVOCATIONS,
    INVOKE,
    MODEL,
    NAME,
    PARAMETERS,
    invoked,
)
from workbench.annexes.sagemaker.names import core_name
from workbench.annexes.sagemaker.refusals import Refusal, refused
from workbench.codecs import v2_json
from workbench.errors import InvalidRequest, ModelNotFound, ServerNotRunning
from workbench.events import OptionIgnored
from workbench.http import v2
from workbench.http.calls import HttpCall, authorize_run, in_thread
from workbench.http.infer import unless
from workbench.http.reply import Reply
from workbench.http.route import ErrorEncoder, Group, Route, RunsOn
from workbench.http.shapes import TEXT, WHOLE, Schema, listed, obj, ref
from workbench.model import ModelId

_TRAILING_COMMA = re.compile(rb",\s*\}\s*$")  # as AWS' own page prints the body of a load
_NOT_IN_QUERY = (  # where multi-model-server takes it too
    ' SageMaker sends it in the body, not in the query: {"model_name": "NAME", "url": "FOLDER"}'
)
_SHOWN_CHARS = 40
_PAGE = 100  # models, unless the platform asks for fewer
_UNKNOWN = "a load has url and model_name"


def _ping(endpoint: Endpoint, _: HttpCall) -> Reply:
    if not endpoint.core.is_open:
        raise ServerNotRunning("the server is not running")
    return v2.json({"status": "Healthy"})


def _list(endpoint: Endpoint, call: HttpCall) -> Reply:
    limit = call.argument("limit") or str(_PAGE)
    if not limit.isascii() or not limit.isdigit() or not 1 <= int(limit[:9]) <= _PAGE:
        raise InvalidRequest(f"'limit' is a number from 1 to {_PAGE}, not {limit[:_SHOWN_CHARS]!r}")
    models = endpoint.container.models()
    # the platform may begin with a token "without a value"
    names, token = page_of(models, call.argument("next_page_token") or "", int(limit))
    told: Schema = {"models": [_row(name, models[name]) for name in names]}
    return v2.json({**told, "nextPageToken": token} if token else told)


def page_of(models: Iterable[str], token: str, limit: int) -> tuple[list[str], str]:
    """The *limit* names that follow *token*, and the token of the next page, "" after the last.

    A token is the last name of the page before. So pages stay right while models are loaded and
    unloaded: none is listed twice, and none that stays is missing. Raises ``InvalidRequest``.
    """
    try:
        after = base64.b64decode(token + "=" * (-len(token) % 4), b"-_", validate=True).decode()
    except ValueError:
        after = ""
    if token and not after:
        raise InvalidRequest("next_page_token is not a token of this list")
    names = nsmallest(limit + 1, (name for name in models if name > after))
    if len(names) <= limit:
        return names, ""
    return names[:limit], base64.urlsafe_b64encode(names[limit - 1].encode()).decode().rstrip("=")


def _row(model_name: str, url: str) -> Schema:
    return {"modelName": model_name, "modelUrl": url}


def _load(endpoint: Endpoint, call: HttpCall) -> Reply:
    """Answers once the model can be invoked."""
    text = _TRAILING_COMMA.sub(b"}", call.inflated())
    message = replace(call, body=text, headers=()).message()
    elsewhere = _NOT_IN_QUERY if call.query else ""
    url, model_name = (_text(message, key, elsewhere) for key in ("url", "model_name"))
    endpoint.container.load(model_name, url, target_of(call))
    for member in message.keys() - {"url", "model_name"}:  # the platform may send more one day
        ignored = OptionIgnored(ModelId(core_name(model_name), 1), f"member {member!r}", _UNKNOWN)
        endpoint.core.events.append(ignored)
    return v2.json({"status": "Workers scaled"})


def _text(message: Mapping[str, Any], key: str, elsewhere: str) -> str:
    value = message.get(key)
    if value is None or value == "":
        raise InvalidRequest(f"Parameter {key} is required.{elsewhere}")
    if not isinstance(value, str):
        raise InvalidRequest(f"{key!r} must be text, not {v2_json.shown(value)}")
    return value


def _get(endpoint: Endpoint, call: HttpCall) -> Reply:
    return v2.json(_row(call.parameters[NAME], endpoint.container.url(call.parameters[NAME])))


def _unload(endpoint: Endpoint, call: HttpCall) -> Reply:
    """Answers once the model's memory is back."""
    endpoint.container.unload(call.parameters[NAME])
    return v2.json({"status": f'Model "{call.parameters[NAME]}" unregistered'})


async def _invoke(endpoint: Endpoint, call: HttpCall) -> Reply:
    return await _invoked(endpoint, call, core_name(call.parameters[NAME]))


async def _invocations(endpoint: Endpoint, call: HttpCall) -> Reply:
    """Of the model that a header or the query names, or of the only one.

    A model below the setting ``artifacts`` is loaded if need be, as the platform would.
    """
    container, target = endpoint.container, target_of(call) or call.argument("model_name")
    if not target:
        name = await in_thread(container.core, container.only)
        if name is None:
            name = (await unless(call.gone, brought(endpoint, SINGLE))).name
        return await _invoked(endpoint, call, name)
    if container.core.models.is_added(core_name(target)):
        return await _invoked(endpoint, call, core_name(target))
    if not endpoint.is_multi_model:
        raise ModelNotFound(f"Model not found: {target}")
    return await invoke_target(endpoint, call, target)


async def _invoked(endpoint: Endpoint, call: HttpCall, name: str) -> Reply:
    await authorize_run(endpoint.core, call, name)
    return await invoked(endpoint.container, call, name)


def _told(status: int, message: str) -> Reply:
    return v2.json(Refusal(status, message).body, status)


# ── the group ──

_RUNS = (*v2.READS, 406, 413, 415, 500, 507)
_SCHEMAS: Schema = {
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
            ANSWER, _RUNS, PAYLOAD),
        Route(f"POST {INVOCATIONS}", _invocations, "invocations",
            "Run the model that X-Amzn-SageMaker-Target-Model names, or the only one",
            ANSWER, _RUNS, PAYLOAD),
    ),
    ErrorEncoder(lambda error, given: refused(error, given.get(NAME)), _told, "container_error"),
    service=lambda plane: plane.core.parts["sagemaker"],
    parameters=PARAMETERS,
    schemas=_SCHEMAS,
)  # fmt: skip
