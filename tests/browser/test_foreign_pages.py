"""Pages of other sites in a real Chromium: none acts on the server; our own pages do."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from browser.chromium import MARKS, Lab, patient
from browser.test_schema_page import try_out
from workbench import Workbench
from workbench.model import ModelState

pytestmark = MARKS

TOKEN = "a-token-of-my-own-0123"
INFER = json.dumps({"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [2]}]})
ACTS = {
    "/v2/repository/models/wine/load": "{}",
    "/v2/repository/models/digits/unload": "{}",
    "/v2/models/called/infer": INFER,
}
"""What a page might do, by the path and the body that do it."""

WAYS = {
    "fetch": """async (asked) => { for (const [url, body] of asked) {
        await fetch(url, {method: "POST", mode: "no-cors", body}).catch(() => {}) } }""",
    "fetch of the same page": """async (asked) => { for (const [url, body] of asked) {
        await fetch(url, {method: "POST", body}).catch(() => {}) } }""",
    "beacon": """async (asked) => { for (const [url, body] of asked) {
        navigator.sendBeacon(url, body) } }""",
    "form": """async (asked) => { for (const [url, body] of asked) {
        const form = document.createElement("form");
        const frame = document.createElement("iframe");
        frame.name = form.target = url;
        form.method = "POST"; form.enctype = "text/plain"; form.action = url;
        const field = document.createElement("input");
        field.name = body.slice(0, -1) + ', "a'; field.value = '": 1}';
        form.append(field); document.body.append(frame, form);
        const loaded = new Promise(resolve => { frame.onload = resolve });
        form.submit(); await loaded } }""",
}


class _Page(BaseHTTPRequestHandler):
    """An empty page at any path."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>foreign</title>")

    def log_message(self, *args: object) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def foreign_port() -> Iterator[int]:
    """Another server of this machine, on which anybody may put pages."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    with patient(browser) as context:
        yield context.new_page()


class Served:
    """A server with a function that remembers its calls, and digits loaded."""

    def __init__(self, sample_models: Path, **settings: Any) -> None:
        self.calls: list[float] = []
        self.workbench = Workbench(sample_models, device="cpu", **settings)
        self.workbench.register(
            self._called, name="called", inputs={"x": ("FP32", [-1])}, outputs={"y": ("FP32", [-1])}
        )

    def _called(self, x: Any) -> Any:
        self.calls.append(float(x[0]))
        return x

    @property
    def done(self) -> set[str]:
        """The paths of ``ACTS`` that were acted on."""
        states = {model.id.name: model.state for model in self.workbench.models}
        found = {"/v2/models/called/infer"} if self.calls else set()
        if states["wine"] is ModelState.READY:
            found.add("/v2/repository/models/wine/load")
        if states["digits"] is not ModelState.READY:
            found.add("/v2/repository/models/digits/unload")
        return found


@pytest.fixture
def served(sample_models: Path) -> Iterator[Served]:
    served = Served(sample_models)
    with served.workbench as workbench:
        workbench.load("digits")
        yield served


def send(page: Any, way: str, url: str) -> None:
    """Have the page do all of ``ACTS``, and wait until the server has answered each."""
    page.evaluate(WAYS[way], [[url + path, body] for path, body in ACTS.items()])
    # a beacon has no answer: one that came after it was answered last
    page.evaluate("async url => { await fetch(url, {mode: 'no-cors'}).catch(() => {}) }", url)


@pytest.mark.parametrize(
    "site", ["http://evil.test:{}", "http://127.0.0.1:{}", "http://localhost:{}"]
)
def test_a_foreign_page_acts_on_nothing(
    page: Any, served: Served, foreign_port: int, site: str
) -> None:
    """Neither another site nor another port of this machine loads, unloads, changes or calls."""
    page.goto(site.format(foreign_port))
    refused: list[int] = []
    page.on("response", lambda response: refused.append(response.status))
    for way in ("fetch", "beacon", "form"):
        send(page, way, served.workbench.url)
        assert served.done == set(), way
        assert set(refused) <= {403}, way


def test_the_same_page_acts_where_its_origin_is_allowed(
    page: Any, sample_models: Path, foreign_port: int
) -> None:
    """The attack of the tests above works where it is let in: they would see it."""
    site = f"http://evil.test:{foreign_port}"
    served = Served(sample_models, allow_origins=site)
    with served.workbench as workbench:
        workbench.load("digits")
        page.goto(site)
        send(page, "fetch", workbench.url)
        assert served.done == set(ACTS)
        asks = "async url => (await (await fetch(url, {headers: {'x-a': '1'}})).json()).name"
        assert page.evaluate(asks, f"{workbench.url}/v2") == "workbench"  # with a preflight


def test_a_foreign_page_shows_ours_in_no_frame(
    page: Any, served: Served, foreign_port: int
) -> None:
    """A page of another site cannot have the buttons of ours clicked."""
    page.goto(f"http://evil.test:{foreign_port}")
    source = f"{served.workbench.url}/schema"
    with page.expect_response(source) as response:
        page.evaluate(
            "url => { const f = document.createElement('iframe'); f.src = url; "
            "document.body.append(f) }",
            source,
        )
    assert response.value.status == 403


def test_a_name_that_was_rebound_reads_and_does_nothing(page: Any, served: Served) -> None:
    """A page whose own name leads here is not answered, though it is its own site."""
    port = served.workbench.url.rpartition(":")[2]
    site = f"http://evil.test:{port}"
    response = page.goto(f"{site}/v2/models")
    assert response.status == 421
    # its scripts came from the attacker's server, before the name was pointed here
    read = page.evaluate("async () => (await (await fetch('/v2/models')).json())")
    assert list(read) == ["error"]
    send(page, "fetch of the same page", site)
    assert served.done == set()


def test_a_link_in_a_foreign_page_opens(page: Any, served: Served, foreign_port: int) -> None:
    """A link that is clicked in a notebook, or anywhere, shows our page, and it works."""
    page.goto(f"http://localhost:{foreign_port}")
    url = served.workbench.url
    page.evaluate(
        "url => { document.body.innerHTML = `<a href='${url}'>our page</a>` }",
        f"{url}/v2/models/wine/docs",
    )
    page.get_by_text("our page").click()
    page.wait_for_url(f"{url}/v2/models/wine/docs")
    assert try_out(page, "What a model takes and gives")[1] == "200"


def test_the_link_with_the_token_signs_in(
    page: Any, sample_models: Path, foreign_port: int
) -> None:
    """Clicked in a page of another site it signs the browser in, and is not in the address bar."""
    with Workbench(sample_models, device="cpu", token=TOKEN) as workbench:
        url = workbench.url
        page.goto(f"{url}/v2/models/wine/docs")
        assert "Authorization: Bearer TOKEN" in page.content()
        page.goto(f"http://localhost:{foreign_port}")
        link = f"{url}/v2/models/wine/docs?token={TOKEN}"
        page.evaluate("url => { document.body.innerHTML = `<a href='${url}'>our page</a>` }", link)
        page.get_by_text("our page").click()
        page.wait_for_url(f"{url}/v2/models/wine/docs")
        assert try_out(page, "Run a model on tensors")[1] == "200"


@pytest.mark.parametrize("token", ["off", TOKEN])
def test_behind_jupyter_server_proxy(page: Any, lab: Lab, sample_models: Path, token: str) -> None:
    """Behind the real proxy of Jupyter our page works, with a token and without."""
    with Workbench(sample_models, device="cpu", token=token) as workbench:
        page.goto(f"{lab.url}/api/status?token={lab.token}")  # signs in to Jupyter
        proxied = f"{lab.url}/proxy/{workbench.url.rpartition(':')[2]}"
        page.goto(f"{proxied}/v2/models/wine/docs" + ("" if token == "off" else f"?token={token}"))
        page.wait_for_url(f"{proxied}/v2/models/wine/docs")
        asked, status = try_out(page, "Run a model on tensors")
        assert asked.startswith(f"{proxied}/v2/models/")
        assert status == "200"
