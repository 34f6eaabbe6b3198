"""The dashboard as a person sees it: a real JupyterLab in a real Chromium."""

import fcntl
from collections.abc import Iterator
from typing import IO, Any

import ipykernel
import pytest

from browser.chromium import MARKS, Lab
from browser.looks import CONTRAST, CUT, take_picture
from browser.notebooks import opened, write

pytestmark = MARKS

START = """%load_ext workbench
wb = %workbench start sample_models --port 0 --budget 16MiB
for name in wb.names:
    wb.load(name)"""
BUSY = """import fcntl
with open("gate") as gate:
    fcntl.flock(gate, fcntl.LOCK_SH)
print("cell ended")"""
WAITS = ipykernel.version_info[0] < 7
RUN_ABOVE = "() => { window.jupyterapp.commands.execute('notebook:run-all-above'); }"
THEME = "theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme})"
# The controls that have a part of their area in common.
COVERED = """root => {
  const shown = [...root.querySelectorAll(".widget-inline-hbox, .jupyter-button, textarea")]
    .filter(each => each.checkVisibility() && !each.querySelector("textarea"))
    .map(each => [each, each.getBoundingClientRect()])
  return shown.flatMap(([one, a], at) => shown.slice(at + 1)
    .filter(([, b]) => a.left < b.right - 1 && b.left < a.right - 1
      && a.top < b.bottom - 1 && b.top < a.bottom - 1)
    .map(([other]) => [one.innerText, other.innerText]))
}"""
CELLS = (START, "%workbench dashboard", BUSY, "%workbench stop")


@pytest.fixture(scope="module")
def board(context: Any, lab: Lab) -> Iterator[tuple[Any, IO[str]]]:
    """A notebook whose third cell is busy while a file is open, and that file."""
    write(lab.root / "board.ipynb", CELLS)
    with (lab.root / "gate").open("w") as gate, opened(context, lab, "board.ipynb") as page:
        if not WAITS:
            fcntl.flock(gate, fcntl.LOCK_EX)
        page.locator(".jp-CodeCell .cm-content").last.click()
        page.evaluate(RUN_ABOVE)
        yield page, gate


def assert_in_order(page: Any, look: str) -> None:
    """In 900 and in 1400 pixels no control covers another, nothing is cut, all words are seen."""
    view = page.locator(".jp-OutputArea-output", has=page.locator(".wbd-head")).last
    for width in (900, 1400):
        page.set_viewport_size({"width": width, "height": 1700})
        assert view.evaluate(COVERED) == [], width
        assert view.evaluate(CUT) == [], width
        texts = view.evaluate(CONTRAST)
        assert len(texts) > 40
        assert [text for text in texts if text[0] < 4.5] == []
        view.evaluate("view => view.scrollIntoView()")
        take_picture(page, f"lab-{look}-{width}")


def test_the_dashboard_in_lab(board: tuple[Any, IO[str]]) -> None:
    """It is drawn, obeys while a cell is busy, evicts by its slider, and ends as a picture.

    Its controls are in order in both themes, and a request can be sent to a model.

    With ipykernel 6 it says that it obeys only when the cell has ended.
    """
    page, gate = board
    output = page.locator(".jp-OutputArea-output")
    shown = page.locator(".wbd:visible")  # the head and the models are two views of one widget
    shown.filter(has_text="7 of 7 models ready").wait_for()

    page.get_by_label("Model", exact=True).select_option("wine")
    page.get_by_role("button", name="Unload", exact=True).click()
    shown.filter(has_text="unload wine: done").wait_for()
    shown.filter(has_text="6 of 7 models ready").wait_for()
    assert page.get_by_text("takes effect when the running cell has ended").count() == WAITS
    page.get_by_role("button", name="Load", exact=True).click()
    shown.filter(has_text="7 of 7 models ready").wait_for()

    page.get_by_label("Evict first").select_option("largest")
    shown.filter(has_text="evict first: largest: done").wait_for()
    page.get_by_label("Keep idle models").select_option("15 min")
    shown.filter(has_text="keep idle models: 15 min: done").wait_for()

    page.get_by_text("Send a request to the chosen model").click()
    page.get_by_role("button", name="Send", exact=True).click()
    answer = page.locator(".wbd pre").first
    answer.filter(has_text="200 in ").wait_for()
    assert '"model_name":"wine"' in answer.inner_text()
    for client in ("Python", "tritonclient", "curl", "boto3"):
        page.get_by_text(f"the same with {client}").wait_for()
    shown.filter(has_text="p99 of the last minute").wait_for()  # the counters move
    for theme in ("Dark", "Light"):
        page.evaluate(THEME, f"JupyterLab {theme}")
        is_light = str(theme == "Light").lower()
        page.locator(f"body[data-jp-theme-light={is_light}]").wait_for(state="attached")
        assert_in_order(page, theme.lower())

    page.locator(".widget-slider .noUi-handle").focus()
    page.keyboard.press("Home")  # 1 MiB
    shown.filter(has_text="largest, to fit the budget of 1.0 MiB").last.wait_for()
    why = page.get_by_label("Why")
    why.select_option(index=1)  # the newest
    page.locator(".wbd.e", has_text="largest, to fit the budget of 1.0 MiB").first.wait_for()
    assert output.filter(has_text="cell ended").count() == WAITS  # all that while a cell was busy

    gate.close()
    page.locator(".jp-CodeCell .cm-content").last.click()
    page.keyboard.press("Shift+Enter")
    output.filter(has_text="stopped").last.wait_for()
    page.locator("img[src^='data:image/svg+xml']").first.wait_for()
    assert page.get_by_role("button", name="Unload", exact=True).count() == 0
    assert page.locator("[data-mime-type='application/vnd.jupyter.error']").count() == 0
