"""The shared-memory extension's JSON, as tritonclient writes and reads it."""

import json
import os
from collections.abc import Iterator
from types import SimpleNamespace

import httpx
import pytest
from tritonclient.utils import shared_memory as shm

from workbench import Workbench
from workbench.errors import InvalidRequest, RegionNotFound
from workbench.http import shared_memory as http
from workbench.http import v2
from workbench.http.calls import HttpCall
from workbench.http.reply import Reply
from workbench.http.route import Handler
from workbench.shared_memory.regions import Regions

KEY = f"/workbench_test_http_{os.getpid()}"


@pytest.fixture
def regions() -> Iterator[Regions]:
    regions = Regions()
    handle = shm.create_shared_memory_region("x", KEY, 64, create_only=True)
    yield regions
    regions.close()
    shm.destroy_shared_memory_region(handle)


HANDLERS = {route.name: route.handler for route in http.SHARED_MEMORY.routes}
FORGET = HANDLERS["unregister_system_region"]


def ask(handler: Handler, regions: Regions, name: str | None = None, body: object = None) -> Reply:
    """What the handler says of the region *name*, or of all."""
    core = SimpleNamespace(regions=regions)
    parameters = {} if name is None else {"region": name}
    return v2.reply_of(handler(core, HttpCall(json.dumps(body).encode(), parameters=parameters)))


def rows(reply: Reply) -> list[dict[str, object]]:
    assert reply.status == 200
    assert reply.headers == ((b"content-type", b"application/json"),)
    told: list[dict[str, object]] = json.loads(b"".join(reply.parts))
    return told


def refusal(handler: Handler, regions: Regions, message: object) -> str:
    with pytest.raises(InvalidRequest) as caught:
        ask(handler, regions, "x", message)
    return str(caught.value)


def test_system_regions(regions: Regions) -> None:
    """A region is registered, told and forgotten; what succeeds has an empty body."""
    done = Reply(200, (), ())
    assert rows(ask(HANDLERS["system_region"], regions, None)) == []
    part = {"key": KEY, "offset": 16, "byte_size": 48}
    assert ask(http._register, regions, "b", part) == done
    assert ask(http._register, regions, "a", {"key": KEY, "byte_size": 8}) == done
    a = {"name": "a", "key": KEY, "offset": 0, "byte_size": 8}
    b = {"name": "b", "key": KEY, "offset": 16, "byte_size": 48}
    assert rows(ask(HANDLERS["system_region"], regions, None)) == [a, b]
    assert [list(row) for row in rows(ask(HANDLERS["system_region"], regions, "b"))] == [list(b)]
    assert ask(FORGET, regions, "b") == done
    assert ask(FORGET, regions, "b") == done
    assert rows(ask(HANDLERS["system_region"], regions, None)) == [a]
    assert ask(FORGET, regions, None) == done
    with pytest.raises(RegionNotFound):
        ask(HANDLERS["system_region"], regions, "a")


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ([], "the body is not a JSON object"),
        ({"byte_size": 8}, "'key' must be a string, not missing"),
        ({"key": KEY, "byte_size": 8, "more": 1},
         "there is no member 'more' in this request; available: key, offset, byte_size"),
        ({"key": 7, "byte_size": 8}, "'key' must be a string, not 7"),
        ({"key": {}, "byte_size": 8}, "'key' must be a string, not an object"),
        ({"key": KEY}, "'byte_size' must be a whole number, not missing"),
        ({"key": KEY, "byte_size": None}, "'byte_size' must be a whole number, not missing"),
        ({"key": KEY, "byte_size": "8"}, "'byte_size' must be a whole number, not \"8\""),
        ({"key": KEY, "byte_size": 8.0}, "'byte_size' must be a whole number, not 8.0"),
        ({"key": KEY, "byte_size": True}, "'byte_size' must be a whole number, not true"),
        ({"key": KEY, "byte_size": 8, "offset": [0]},
         "'offset' must be a whole number, not an array"),
        ({"key": KEY, "byte_size": 2**70},
         f"the byte size is a whole number in 1..{2**63 - 1}, not one of 71 bits"),
        ({"key": KEY, "byte_size": -1},
         f"the byte size is a whole number in 1..{2**63 - 1}, not -1"),
    ],
)  # fmt: skip
def test_bad_system_requests(regions: Regions, message: object, told: str) -> None:
    """What is missing, or of another type, is named, and what it is to be."""
    assert refusal(http._register, regions, message) == told
    assert rows(ask(HANDLERS["system_region"], regions, None)) == []


@pytest.mark.parametrize(("allowed", "told"), [("on", ["system_shared_memory"]), ("off", [])])
def test_the_server_says_which_memory_may_be_shared(allowed: str, told: list[str]) -> None:
    """The metadata name the extension only where it is allowed."""
    with Workbench(shared_memory=allowed, device="cpu") as workbench:
        extensions = httpx.get(f"{workbench.url}/v2").json()["extensions"]
    assert [each for each in extensions if "shared_memory" in each] == told
