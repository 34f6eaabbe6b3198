"""The quickstart as a person sees it: a real JupyterLab in a real Chromium."""

from collections.abc import Iterator
from typing import Any

import pytest

from browser.chromium import MARKS, Lab
from browser.looks import take_picture
from browser.notebooks import RUN_ALL, opened

pytestmark = MARKS

IMAGE = "img[src^='data:image/svg+xml']"
CLEAR = "() => window.jupyterapp.commands.execute('notebook:clear-all-cell-outputs')"


@pytest.fixture(scope="module")
def page(context: Any, lab: Lab) -> Iterator[Any]:
    """The quickstart, opened and run to its end."""
    with opened(context, lab, "notebooks/quickstart.ipynb", width=1280) as page:
        page.evaluate(CLEAR)
        page.evaluate(RUN_ALL)
        page.locator(".jp-OutputArea-output pre").get_by_text("stopped", exact=True).wait_for()
        page.locator(IMAGE).first.wait_for()
        yield page
        take_picture(page, "lab-quickstart")


def test_status_is_drawn(page: Any) -> None:
    """The server shows its address and how full the budget is, as HTML."""
    shown = page.locator(".jp-RenderedHTML", has_text="workbench http://127.0.0.1:").first
    assert "0 in memory" in shown.inner_text()
    assert shown.locator("div[style*='border-radius:6px']").first.bounding_box()["width"] > 300


def test_models_are_a_table(page: Any) -> None:
    """The models are a table with a name in bold for each."""
    table = page.locator(".jp-RenderedHTML table", has_text="digits_conv").first
    assert table.locator("tbody tr b").count() == 7


def test_evictions_are_told(page: Any) -> None:
    """The events are a list in which an eviction says why."""
    told = page.locator(".jp-RenderedHTML .e", has_text="evicted").all_text_contents()
    assert any("least recently used, to make room for ink:1" in line for line in told)


def test_the_picture_is_drawn(page: Any) -> None:
    """The memory over time is drawn on the page itself, in the colour of its text."""
    picture = page.locator(".wb-picture svg").first
    assert picture.evaluate("element => element.getBoundingClientRect().width") > 400
    text = picture.locator("text", has_text="Memory over time")
    page_colour = page.locator(".jp-RenderedHTML").first.evaluate("e => getComputedStyle(e).color")
    assert text.evaluate("element => getComputedStyle(element).fill") == page_colour
    assert not page.locator(".wb-picture img").first.is_visible()


def test_the_dashboard_is_a_picture_in_the_end(page: Any) -> None:
    """What the cells did while it was live is in it: the eviction, and memory over time."""
    told = page.locator(".jp-RenderedHTML", has=page.locator(IMAGE))
    assert "evicted ink:1" in told.inner_text()
    assert told.locator("img").first.evaluate("image => image.naturalWidth") > 400
    assert page.get_by_role("button", name="Unload", exact=True).count() == 0


def test_no_cell_failed(page: Any) -> None:
    """No output is an error."""
    assert page.locator("[data-mime-type='application/vnd.jupyter.error']").count() == 0
    assert page.locator("[data-mime-type='application/vnd.jupyter.stderr']").count() == 0
