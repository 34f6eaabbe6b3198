"""The status page in a real Chromium that reaches nothing outside."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browser.chromium import MARKS, PROXY, is_stream, secluded
from workbench import Workbench

pytestmark = MARKS

TOKEN = "a-token-of-this-test"
HIDE = "Object.defineProperty(document, 'hidden', {get: () => window.away === true})"


@pytest.fixture(scope="module")
def server(sample_models: Path) -> Iterator[Workbench]:
    with Workbench(sample_models, device="cpu", token=TOKEN) as workbench:
        yield workbench


@pytest.fixture
def page(browser: Any, server: Workbench, outside: list[str]) -> Iterator[Any]:
    """An empty page, whose clock is the test's."""
    with secluded(browser, server.url, outside, 900, 900) as page:
        page.clock.install()
        page.add_init_script(HIDE)
        yield page


@pytest.mark.parametrize("prefix", ["", PROXY])
def test_the_page_follows_the_server(
    page: Any, server: Workbench, outside: list[str], prefix: str
) -> None:
    """It shows a load and an unload without a click, signed in by the link, behind a proxy too."""
    server.unload("wine")
    page.goto(f"{server.url}/?token={TOKEN}")
    assert TOKEN not in page.url
    if prefix:
        with page.expect_console_message():  # of the stream that the proxy refused
            page.goto(f"{server.url}{prefix}/")
        outside.clear()
    else:
        page.goto(f"{server.url}/")
    row = page.locator("#models tr", has=page.get_by_role("link", name="wine", exact=True))
    row.get_by_text("not loaded", exact=True).wait_for()
    server.load("wine")
    if prefix:
        page.clock.run_for(2_100)
    row.get_by_text("ready", exact=True).wait_for()
    page.locator("#events .e").filter(has_text="loaded wine:1", visible=True).first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 900
    assert row.get_by_role("link").get_attribute("href") == "v2/models/wine/docs"
    assert outside == []


def test_a_hidden_page_asks_nothing(page: Any, server: Workbench, outside: list[str]) -> None:
    """A page that nobody looks at sends no request, and asks at once when it is seen again."""
    with page.expect_request(is_stream):
        page.goto(f"{server.url}/?token={TOKEN}")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.evaluate("window.away = true")
    page.clock.run_for(60_000)
    assert asked == []
    with page.expect_request(f"{server.url}/"):
        page.evaluate("window.away = false; document.dispatchEvent(new Event('visibilitychange'))")
    assert outside == []


def test_the_page_says_when_there_is_no_news(page: Any, server: Workbench) -> None:
    """Where the server does not answer any more, the page says so beside the last time."""
    page.goto(f"{server.url}/?token={TOKEN}")
    page.evaluate("void (window.fetch = () => Promise.reject(new Error('nobody is there')))")
    page.evaluate("source.onerror()")
    page.clock.run_for(2_100)
    page.get_by_text("no news since: nobody is there").wait_for()


@pytest.mark.parametrize("width", [390, 768, 1280])
def test_every_word_can_be_read_however_narrow_the_page(
    browser: Any, server: Workbench, outside: list[str], width: int
) -> None:
    """Letters of the chart are 10 px high or more and within the window; no state is cut off."""
    letters = """() => [...document.querySelectorAll("#memory text")].map(each => [
      parseFloat(getComputedStyle(each).fontSize) * each.getScreenCTM().d,
      each.getBoundingClientRect().left,
      innerWidth - each.getBoundingClientRect().right,
    ])"""
    with secluded(browser, server.url, outside, width, 900) as page:
        page.goto(f"{server.url}/?token={TOKEN}")
        sizes, *sides = zip(*page.evaluate(letters), strict=True)
        assert min(sizes) >= 10
        assert min(map(min, sides)) >= 0
        pill = page.locator("#models td", has_text="not loaded").first
        assert pill.evaluate("each => each.scrollWidth <= each.clientWidth")
