"""SageMaker's contract for the containers of multi-model endpoints, over HTTP."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from urllib.parse import parse_qs, unquote_to_bytes

from litestar import asgi
from litestar.handlers import ASGIRouteHandler
from litestar.types import Receive, Scope, Send

from workbench.codecs import v2_json
from workbench.codecs.payloads import Received
from workbench.contracts.sagemaker import (
    PAGE,
    Container,
    Invocation,
    Refusal,
    core_name,
    refusal_of,
)
from workbench.errors import InvalidRequest, ModelNotFound, ServerNotRunning
from workbench.http.access import Access, Asked
from workbench.http.calls import Call, read_call
from workbench.http.infer import unless
from workbench.http.reply import Reply, json_reply, numbered, send_reply
from workbench.http.status import error_reply

_MODEL_PATH = re.compile(rb"/models(?:/(?P<name>[^/]+)(?P<invoke>/invoke)?)?/?")
_TRAILING_COMMA = re.compile(rb",\s*\}\s*$")  # as AWS' own page prints the body of a load
_TARGET = b"x-amzn-sagemaker-target-model"


@dataclass(frozen=True, slots=True)
class Asking:
    """A *call* to *container*: of the model that its path names, if it names one."""

    container: Container
    access: Access
    scope: Any
    receive: Receive
    call: Call
    model_name: str | None = None

    def header(self, name: bytes) -> str:
        """The header of that *name*, or nothing."""
        value: bytes = dict(self.scope["headers"]).get(name, b"")
        return value.decode("utf-8", "replace")

    def query(self, name: str) -> str | None:
        """The first parameter of that *name* in the query."""
        text = self.scope["query_string"].decode("latin-1")
        values = parse_qs(text, keep_blank_values=True).get(name)
        return values[0] if values else None

    @property
    def named(self) -> str:
        """The model that the path names; only where it names one."""
        assert self.model_name is not None
        return self.model_name

    async def waited(self, work: Callable[[], Any]) -> Any:
        """Do *work*, which waits for a load or an unload, in a thread."""
        done = asyncio.wrap_future(self.container.core.soon(work, waits=True))
        return await unless(self.receive, _result(done))

    def check_repository(self) -> None:
        """Let nobody change what is loaded whom the settings keep from it."""
        self.access.authorize(Asked.of(self.scope), "model-repository")


async def _result(future: asyncio.Future[Any]) -> Any:
    return await future


Answer = Callable[[Asking], Coroutine[Any, Any, Reply]]
Answers = Mapping[str, Answer]  # by method


async def ping(asking: Asking) -> Reply:
    """Whether it serves: never behind a load or a run."""
    if not asking.container.core.is_open:
        raise ServerNotRunning("the server is not running")
    return _json({"status": "Healthy"})


async def list_models(asking: Asking) -> Reply:
    """The loaded models, by pages."""
    limit = asking.query("limit") or str(PAGE)
    if not limit.isascii() or not limit.isdigit() or not 1 <= int(limit[:9]) <= PAGE:
        raise InvalidRequest(f"'limit' is a number from 1 to {PAGE}, not {limit[:40]!r}")
    page = asking.container.page(asking.query("next_page_token"), int(limit))
    told: dict[str, object] = {"models": [_row(*each) for each in page.models.items()]}
    if page.next_token is not None:
        told["nextPageToken"] = page.next_token
    return _json(told)


async def load_model(asking: Asking) -> Reply:
    """Load a model; answers when it can be invoked."""
    asking.check_repository()
    call = asking.call
    message = replace(call, body=_TRAILING_COMMA.sub(b"}", call.inflated()), coding=b"").message()
    url, model_name = (_text(message, key) for key in ("url", "model_name"))
    await asking.waited(partial(asking.container.load, model_name, url))
    return _json({"status": "Workers scaled"})


def _text(message: Mapping[str, Any], key: str) -> str:
    value = message.get(key)
    if value is None or value == "":
        raise InvalidRequest(f"Parameter {key} is required.")
    if not isinstance(value, str):
        raise InvalidRequest(f"{key!r} is to be text, not {v2_json.shown(value)}")
    return value


async def get_model(asking: Asking) -> Reply:
    """Where a loaded model came from."""
    return _json(_row(asking.named, asking.container.url(asking.named)))


async def unload_model(asking: Asking) -> Reply:
    """Unload a model; answers when its memory is back."""
    asking.check_repository()
    await asking.waited(partial(asking.container.unload, asking.named))
    return _json({"status": f'Model "{asking.named}" unregistered'})


async def invoke_model(asking: Asking) -> Reply:
    """Run the model that the path names."""
    return await _invoked(asking, core_name(asking.named))


async def invocations(asking: Asking) -> Reply:
    """Run the model that a header or the query names, or the only one."""
    container = asking.container
    target = asking.header(_TARGET) or asking.query("model_name")
    if not target:
        return await _invoked(asking, await asking.waited(container.only))
    name = core_name(target)
    if name not in container.core.added():
        asking.check_repository()
        await asking.waited(partial(container.bring, target))
    return await _invoked(asking, name)


async def _invoked(asking: Asking, name: str) -> Reply:
    container, call = asking.container, asking.call
    coded = bool(call.coding)
    body = await asking.waited(call.inflated) if coded else call.body
    received = Received(body, asking.header(b"content-type"), asking.header(b"accept"))
    functions = asking.access.opens("functions", Asked.of(asking.scope))
    invocation = Invocation(name, received, container.limits, functions=functions)
    payload = container.invoke_now(invocation)
    if payload is None:
        answering = asyncio.wrap_future(container.invoke(invocation))
        payload = await unless(asking.receive, _result(answering))
    assert payload is not None
    return Reply(200, ((b"content-type", payload.content_type.encode()),), payload.parts)


def _row(model_name: str, url: str) -> dict[str, str]:
    return {"modelName": model_name, "modelUrl": url}


def _json(value: object, status: int = 200) -> Reply:
    return json_reply(v2_json.write(value), status)


# ── paths ──

_ALL: Answers = {"GET": list_models, "POST": load_model}
_ONE: Answers = {"GET": get_model, "DELETE": unload_model}
_INVOKE: Answers = {"POST": invoke_model}


def sagemaker_routes(container: Container, access: Access) -> list[ASGIRouteHandler]:
    """The routes of the contract."""
    return [
        _route(container, access, "/ping", lambda _: ({"GET": ping}, None)),
        _route(container, access, "/invocations", lambda _: ({"POST": invocations}, None)),
        _route(container, access, "/models", _of_models, is_mount=True),
    ]


def _of_models(raw_path: bytes) -> tuple[Answers, str | None]:
    """What answers at a path, and the model that it names. Raises ``ModelNotFound``."""
    match = _MODEL_PATH.fullmatch(raw_path)
    if match is None:
        raise ModelNotFound("there is nothing at this path")
    if match["name"] is None:
        return _ALL, None
    try:
        name = unquote_to_bytes(match["name"]).decode()
    except UnicodeDecodeError:
        raise ModelNotFound("the name of the model in the path is not UTF-8") from None
    return _INVOKE if match["invoke"] else _ONE, name


def _route(
    container: Container,
    access: Access,
    path: str,
    answers_at: Callable[[bytes], tuple[Answers, str | None]],
    *,
    is_mount: bool = False,
) -> ASGIRouteHandler:
    settings = container.core.settings

    @asgi(path, is_mount=is_mount, copy_scope=False)
    async def handler(scope: Scope, receive: Receive, send: Send) -> None:
        head: Any = scope
        name: str | None = None
        try:
            asked = Asked.of(scope)
            access.check_known(asked)
            access.authorize(asked)
            answers, name = answers_at(head["raw_path"])
            method = "GET" if head["method"] == "HEAD" else head["method"]
            if method in answers:
                call = await read_call(scope, receive, settings, None, settings.max_request)
                asking = Asking(container, access, scope, receive, call, name)
                reply = await answers[method](asking)
            else:
                reply = _not_allowed(answers)
        except asyncio.CancelledError:  # by the stop of the server, after its moment of grace
            reply = _refused(ServerNotRunning("the server is stopping"))
        except Exception as error:  # the client must hear of it, whatever it is
            reply = _refused(error, name)
        reply = numbered(reply, dict(head["headers"]).get(b"x-request-id", b""))
        await send_reply(reply, send, body=head["method"] != "HEAD")

    return handler


def _not_allowed(answers: Answers) -> Reply:
    allowed = ", ".join([*answers, "HEAD"] if "GET" in answers else answers)
    body = Refusal(405, f"this path does not take that method; it takes {allowed}").body
    return json_reply(v2_json.write(body), 405, ((b"allow", allowed.encode()),))


def _refused(error: Exception, model_name: str | None = None) -> Reply:
    refusal = refusal_of(error, model_name)
    reply = error_reply(error)  # with the headers that belong to it
    return replace(reply, status=refusal.status, parts=(v2_json.write(refusal.body),))
