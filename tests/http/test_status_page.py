"""The page at `/`: HTML for browsers, JSON for all others."""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import numpy as np
import pytest

from workbench import Workbench
from workbench.http.status_page import StatusPage

BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}


@pytest.fixture(scope="module")
def server(sample_models: Path) -> Iterator[Workbench]:
    with Workbench(sample_models, device="cpu") as workbench:
        yield workbench


def test_a_browser_gets_a_page(server: Workbench) -> None:
    """It has models with their states, memory, events and links, all without another host."""
    server.load("wine")
    answer = httpx.get(server.url, headers=BROWSER)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["vary"] == "accept"
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    text = answer.text
    shown = (
        'href="v2/models/wine/docs"',
        ">ready<",
        "loaded wine:1",
        "budget in use",
        "requests/s",
    )
    for part in (*shown, "<svg", "the rest of this process", "wine:1, now"):
        assert part in text
    assert 'href="schema"' in text
    assert "http://" not in text.replace(server.url, "").replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in text


@pytest.mark.parametrize("accept", ["*/*", "application/json", "application/json, text/html", ""])
def test_others_get_json(server: Workbench, accept: str) -> None:
    """A client that does not ask for HTML first gets the server's metadata, as at /v2."""
    answer = httpx.get(server.url, headers={"Accept": accept})
    assert answer.json() == httpx.get(f"{server.url}/v2").json()
    assert answer.headers["content-type"] == "application/json"


def parts_of(line: str) -> dict[str, str]:
    """The parts of the page in a *line* of the stream."""
    parts: dict[str, str] = json.loads(line.removeprefix("data: "))
    return parts


def test_changes_are_streamed(sample_models: Path) -> None:
    """First come all parts, then those that a load changed; the stream ends with the server."""
    headers = {"Accept": "text/event-stream"}
    with (
        Workbench(sample_models, device="cpu") as server,
        httpx.stream("GET", server.url, headers=headers, timeout=30) as answer,
    ):
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        lines = filter(None, answer.iter_lines())
        first = parts_of(next(lines))
        assert set(first) == {"head", "memory", "models", "events"}
        assert "loaded wine:1" not in first["events"]
        server.load("wine")
        while "loaded wine:1" not in (changed := parts_of(next(lines))).get("events", ""):
            assert set(changed) <= set(first)
        server.stop()
        with suppress(httpx.RemoteProtocolError):  # the server may cut it off
            assert all(parts_of(line) for line in lines)


def test_requests_change_what_tells_of_them(server: Workbench) -> None:
    """For requests alone neither names nor events are read again; the head and the table are."""
    page = StatusPage(server._core)
    server.load("wine")
    before = page._draw()
    page._read_names = None  # type: ignore[assignment, method-assign]  # is not called
    server.infer("wine", np.zeros((1, 13), np.float32))
    now = page._draw(whole=False)
    assert now["models"] != before["models"]
    assert (now["events"], now["memory"]) == (before["events"], before["memory"])


def test_a_head_request_for_the_stream_ends(server: Workbench) -> None:
    """HEAD is answered by headers alone."""
    answer = httpx.head(server.url, headers={"Accept": "text/event-stream"})
    assert answer.headers["content-type"].startswith("text/event-stream")


def test_names_and_reasons_are_escaped(server: Workbench) -> None:
    """A name that a client chose is text, also in the page's links."""
    inputs = {"x": ("FP32", [2])}
    server.register(lambda x: x, name='<b>"&', inputs=inputs, outputs=inputs)
    text = httpx.get(server.url, headers=BROWSER).text
    assert '<b>"&' not in text
    assert "&lt;b&gt;&quot;&amp;" in text
    assert 'href="v2/models/%3Cb%3E%22%26/docs"' in text


def test_why_models_are_not_there(tmp_path: Path) -> None:
    """A model that cannot be loaded is broken, one that nobody asked for is not loaded."""
    for name in ("bad", "unused"):
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "1" / "model.onnx").write_bytes(b"no model")
    with Workbench(tmp_path, load="explicit", device="cpu") as workbench:
        httpx.post(f"{workbench.url}/v2/repository/models/bad/load")
        text = httpx.get(workbench.url, headers=BROWSER).text
    assert text.index("bad</a>") < text.index(">broken<") < text.index("unused</a>")
    assert text.index("unused</a>") < text.index(">not loaded<")
    assert "Triton&#x27;s state: UNAVAILABLE" in text
