"""A group of routes as one file would have it: application and document follow from it."""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import pytest
from inside import opened

from workbench.core import ServerCore
from workbench.errors import InvalidRequest, ModelNotFound
from workbench.http.access import Access
from workbench.http.app import create_app
from workbench.http.calls import HttpCall
from workbench.http.infer import DataPlane
from workbench.http.openapi.document import document
from workbench.http.reply import Reply
from workbench.http.route import ErrorEncoder, Group, PathParameter, Route, RunsOn
from workbench.http.routes import GROUPS
from workbench.http.shapes import TEXT, obj, ref
from workbench.http.v2 import json
from workbench.settings import Settings


def plain(status: int, message: str) -> Reply:
    return Reply(status, ((b"content-type", b"text/plain"),), (message.encode(),))


def error(error: Exception, parameters: Mapping[str, str]) -> Reply:
    return plain(418, f"{type(error).__name__} for {dict(parameters)}: {error}")


def show(service: str, call: HttpCall) -> Reply:
    return json([service, call.parameters["thing"], call.argument("q")])


def change(service: str, call: HttpCall) -> Reply:
    raise InvalidRequest("it cannot be changed")


async def watch(service: str, call: HttpCall) -> Reply:
    return json(call.message())


THINGS = Group(
    "Things",
    (
        Route("GET /things/{thing}", show, "thing", "Show it", "thing", runs=RunsOn.LOOP),
        Route("POST /things/{thing}", change, "change", "Change it", "thing", (400, 409)),
        Route("POST /things/{thing}/watch", watch, "watch", "Watch it", "thing"),
        Route("GET /things", lambda service, call: json([]), "things", "Show all", "thing"),
        Route("PUT /things", change, "put", "Put one", "thing", restrict="shared-memory"),
    ),
    ErrorEncoder(error, plain, schema="refusal"),
    service=lambda plane: "shop",
    parameters={"thing": PathParameter(b"[^/]+", "thing", ModelNotFound, TEXT, "hat")},
    schemas={"thing": {"type": "array", "items": TEXT}, "refusal": obj({})},
)


@pytest.fixture
def core() -> Iterator[ServerCore]:
    with opened(
        ServerCore(Settings.of(None, environ={}, device="cpu", restrict={"shared-memory": "off"}))
    ) as core:
        yield core


def ask(
    core: ServerCore, method: str, path: str, token: str = "", **options: Any
) -> httpx.Response:
    app: Any = create_app(DataPlane(core), Access(core.settings, token), (*GROUPS, THINGS))

    async def asking() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.request(method, path, **options)

    return asyncio.run(asking())


@pytest.mark.parametrize(
    ("path", "thing"), [("hat", "hat"), ("a%2Fb", "a/b"), ("gr%C3%B6%20%F0%9F%8E%A9", "grö 🎩")]
)
def test_a_handler_is_given_its_service_and_the_path(
    core: ServerCore, path: str, thing: str
) -> None:
    """A parameter of a path is decoded once, slashes and any unicode included."""
    assert ask(core, "GET", f"/things/{path}?q=1").json() == ["shop", thing, "1"]


def test_a_coroutine_answers(core: ServerCore) -> None:
    """A handler may be a coroutine function, and reads the whole body."""
    assert ask(core, "POST", "/things/hat/watch", json={"a": 1}).json() == {"a": 1}
    assert ask(core, "GET", "/things").json() == []


@pytest.mark.parametrize(
    ("method", "path", "status", "text"),
    [
        ("POST", "/things/a%2Fb", 418, "InvalidRequest for {'thing': 'a/b'}: it cannot be changed"),
        ("PUT", "/things", 418, "AccessDenied for {}: shared-memory is closed: "),
        ("GET", "/things/%ff", 418, "ModelNotFound for {}: the name of the thing in the path is"),
        ("GET", "/things/a/b/c", 404, "there is nothing at this path"),
        ("DELETE", "/things/a", 405,
         "this path does not support that method; it supports GET, POST, H"),
    ],
)  # fmt: skip
def test_errors_are_the_groups_own(
    core: ServerCore, method: str, path: str, status: int, text: str
) -> None:
    """Every error at a path of the group is told by its encoder."""
    response = ask(core, method, path)
    assert (response.status_code, response.headers["content-type"]) == (status, "text/plain")
    assert response.text.startswith(text)
    assert (response.headers.get("allow") == "GET, POST, HEAD") == (status == 405)


def test_the_door_is_the_same(core: ServerCore) -> None:
    """Without the token no route of the group answers, not even that it has none."""
    for path in ("/things/hat", "/things", "/things/a/b/c"):
        assert ask(core, "GET", path, token="secret").text.startswith("TokenRequired for {}")
        carried = {"authorization": "Bearer secret"}
        assert ask(core, "GET", path, token="secret", headers=carried).status_code in {200, 404}


def test_the_document_has_the_group() -> None:
    """The group is a section of the document, with its own errors."""
    told = document((*GROUPS, THINGS), None)
    assert told["tags"][-1] == {"name": "Things"}
    operation = told["paths"]["/things/{thing}"]["post"]
    assert operation["responses"].keys() == {"200", "400", "409"}
    conflict = operation["responses"]["409"]
    assert conflict["description"] == "Conflict"
    assert conflict["content"]["application/json"]["schema"] == ref("refusal")
    assert told["components"]["parameters"]["thing"]["example"] == "hat"
