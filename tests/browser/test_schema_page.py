"""The interactive page of the OpenAPI document in a real Chromium that reaches nothing outside."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browser.chromium import MARKS, PROXY, secluded
from workbench import Workbench

pytestmark = MARKS

NAME, QUOTED = "naïve {x}", "na%C3%AFve%20%7Bx%7D"


@pytest.fixture(scope="module")
def url(sample_models: Path) -> Iterator[str]:
    """A server of the sample models, and of one whose name is not plain."""
    with Workbench(sample_models, device="cpu") as workbench:
        inputs = {"x": ("FP32", [2])}
        workbench.register(lambda x: x, name=NAME, inputs=inputs, outputs=inputs)
        yield workbench.url


@pytest.fixture
def page(browser: Any, url: str, outside: list[str]) -> Iterator[Any]:
    """An empty page."""
    with secluded(browser, url, outside, 1280, 1100) as page:
        yield page
        shot = os.environ.get("SCHEMA_SCREENSHOT")
        if shot:
            page.screenshot(path=shot, full_page=True)


def try_out(page: Any, summary: str) -> tuple[str, str]:
    """Ask as the page proposes; the address that was asked, and the status that it shows."""
    block = page.locator(".opblock", has=page.get_by_text(summary, exact=True)).first
    block.locator(".opblock-summary").click()
    block.get_by_role("button", name="Try it out").click()
    block.get_by_role("button", name="Execute").click()
    answer = block.locator(".live-responses-table .response-col_status").last
    answer.wait_for()
    return block.locator(".request-url pre").inner_text().strip(), answer.inner_text().strip()


def test_the_page(page: Any, url: str, outside: list[str]) -> None:
    """The page shows the document and asks what it says, with no host but the server's."""
    page.goto(f"{url}/schema")
    asked = try_out(page, "What a model takes and gives")
    assert asked == (f"{url}/v2/models/{QUOTED}", "200")
    assert try_out(page, "Run a model on tensors")[1] == "200"
    assert page.title() == "workbench"
    assert page.locator(".opblock-tag").all_inner_texts()[:3] == ["Health", "Models", "Inference"]
    assert outside == []


@pytest.mark.parametrize("model", ["digits/versions/1", QUOTED])
def test_the_page_of_a_model(page: Any, url: str, outside: list[str], model: str) -> None:
    """The page of a model asks that model, with data of its shape."""
    page.goto(f"{url}/v2/models/{model}/docs")
    assert try_out(page, "Run a model on tensors") == (f"{url}/v2/models/{model}/infer", "200")
    assert outside == []


@pytest.mark.parametrize("path", ["/v2/docs", "/v2/models/wine/docs/"])
def test_behind_a_proxy(page: Any, url: str, outside: list[str], path: str) -> None:
    """Behind a proxy that gives the server a path of its own, the page finds everything there."""
    page.goto(url + PROXY + path)
    asked, status = try_out(page, "Run a model on tensors")
    assert asked.startswith(f"{url}{PROXY}/v2/models/")
    assert status == "200"
    assert outside == []


def test_the_page_of_a_model_that_is_gone(page: Any, url: str) -> None:
    """Where the document cannot be had, the page says why."""
    page.route("**/dataplane.json", lambda route: route.fulfill(status=404, json={"error": "gone"}))
    page.goto(f"{url}/v2/models/digits/docs")
    page.get_by_text("gone", exact=True).wait_for()
