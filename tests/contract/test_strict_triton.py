"""The statuses of a strict Triton (2.51, measured): its JSON library's are 500, its own are 400."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from workbench import Workbench

INPUT = {"name": "pixels", "shape": [1, 64], "datatype": "FP32", "data": [0.5] * 64}


def of(**changes: object) -> object:
    """A request whose only input differs so from a good one; ``None`` leaves a member out."""
    entry = {key: value for key, value in {**INPUT, **changes}.items() if value is not None}
    return {"inputs": [entry]}


ROWS = [
    ("malformed", "{", 500),
    ("an empty body", "", 400),
    ("no object", [], 500),
    ("nothing", {}, 500),
    ("inputs is no list", {"inputs": 1}, 500),
    ("an input is no object", {"inputs": [1]}, 500),
    ("no name", of(name=None), 500),
    ("no datatype", of(datatype=None), 500),
    ("no shape", of(shape=None), 500),
    ("a negative size", of(shape=[-1, 64]), 500),
    ("too few elements", of(data=[0.5] * 63), 500),
    ("too many elements", of(data=[0.5] * 65), 500),
    ("text for a number", of(data=["a"] * 64), 500),
    ("null for a number", of(datatype="INT32", data=[None] * 64), 500),
    ("an unknown datatype", of(datatype="FP31"), 400),
    ("another datatype", of(datatype="INT32", data=[1] * 64), 400),
    ("another shape", of(shape=[1, 63], data=[0.5] * 63), 400),
    ("another name", of(name="x"), 400),
    ("an input twice", {"inputs": [INPUT, INPUT]}, 400),
    ("an unknown output", {"inputs": [INPUT], "outputs": [{"name": "x"}]}, 400),
    ("what is right", {"inputs": [INPUT]}, 200),
]


@pytest.fixture(scope="module")
def servers(sample_models: Path) -> Iterator[tuple[str, str]]:
    """The addresses of a strict server, and of one that is not."""
    with (
        Workbench(sample_models, strict_triton="on", max_request="1MiB") as strict,
        Workbench(sample_models, max_request="1MiB") as usual,
    ):
        yield strict.url, usual.url


def test_statuses_of_requests_for_no_model(servers: tuple[str, str]) -> None:
    """Malformed JSON is a 500 there too, if the server is strict."""
    told = [httpx.post(f"{url}/v2/repository/index", content="{").status_code for url in servers]
    assert told == [500, 400]


@pytest.mark.parametrize(("body", "status"), [row[1:] for row in ROWS], ids=[r[0] for r in ROWS])
def test_statuses(servers: tuple[str, str], body: object, status: int) -> None:
    """With the setting the status is Triton's; without it, no mistake of a client is a 500."""
    for url, wanted in zip(servers, (status, 400 if status == 500 else status), strict=True):
        path = f"{url}/v2/models/digits/infer"
        if isinstance(body, str):
            reply = httpx.post(path, content=body)
        else:
            reply = httpx.post(path, json=body)
        assert reply.status_code == wanted
        assert wanted == 200 or set(reply.json()) == {"error"}


def test_a_large_body_is_400_in_triton(servers: tuple[str, str]) -> None:
    """A body over the limit is 413, and as Triton's 400 where the setting asks for that."""
    content = b" " * (2**20 + 1)
    replies = [httpx.post(f"{url}/v2/models/digits/infer", content=content) for url in servers]
    assert [reply.status_code for reply in replies] == [400, 413]


def test_an_unknown_coding_is_501_in_triton(servers: tuple[str, str]) -> None:
    """A body in an unknown coding is 415, and as Triton's 501 where the setting asks for that."""
    coded = {"content": b"x", "headers": {"Content-Encoding": "br"}}
    replies = [httpx.post(f"{url}/v2/models/digits/infer", **coded) for url in servers]
    assert [reply.status_code for reply in replies] == [501, 415]
    assert {reply.headers["accept-encoding"] for reply in replies} == {"gzip, deflate"}
