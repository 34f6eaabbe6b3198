"""What is left of a dashboard when its kernel, its server or its author is gone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from browser.chromium import MARKS, Lab
from browser.notebooks import RUN_ALL, TIMEOUT_MS, opened, write

pytestmark = MARKS

START = """%load_ext workbench
wb = %workbench start sample_models --port 0 --budget 16MiB
wb.load("wine")"""
RESTART = """() => window.jupyterapp.shell.currentWidget.context.sessionContext.restartKernel()"""
SAVE = "() => window.jupyterapp.commands.execute('docmanager:save')"


def test_a_dashboard_without_its_kernel_says_so(context: Any, lab: Lab) -> None:
    """After a page is reloaded it is live again; after a restart of the kernel, a badge appears."""
    write(lab.root / "restarted.ipynb", (START, "%workbench dashboard"))
    with opened(context, lab, "restarted.ipynb") as page:
        page.evaluate(RUN_ALL)
        board = page.locator(".wbd")
        board.filter(has_text="1 of 7 models ready").wait_for(timeout=TIMEOUT_MS)
        page.evaluate(SAVE)
        page.reload(wait_until="domcontentloaded")
        board.filter(has_text="1 of 7 models ready").wait_for(timeout=TIMEOUT_MS)
        page.get_by_label("Model", exact=True).select_option("digits")
        page.get_by_role("button", name="Load", exact=True).click()
        board.filter(has_text="2 of 7 models ready").wait_for(timeout=TIMEOUT_MS)
        stale = page.locator(".wbd .stale")
        assert stale.evaluate("e => getComputedStyle(e).opacity") == "0"
        page.evaluate(RESTART)
        page.wait_for_function(
            "() => getComputedStyle(document.querySelector('.wbd .stale')).opacity === '1'",
            timeout=TIMEOUT_MS,
        )
        assert "stopped at " in stale.inner_text()


@pytest.mark.parametrize("last", ["%workbench stop", "%workbench snapshot"])
def test_the_picture_is_there_for_readers(context: Any, lab: Lab, last: str) -> None:
    """Whoever opens the saved notebook, whom nothing makes trust it, sees the last state."""
    name = f"{last.split()[1]}.ipynb"
    write(lab.root / name, (START, "%workbench dashboard", last))
    with opened(context, lab, name) as page:
        page.evaluate(RUN_ALL)
        page.locator("img[src^='data:image/svg+xml']").wait_for(timeout=TIMEOUT_MS)
        page.evaluate(SAVE)
    saved = json.loads((lab.root / name).read_text())
    saved["metadata"]["copied"] = True  # so that the author's signature does not count
    (lab.root / f"copy-of-{name}").write_text(json.dumps(saved))
    with opened(context, lab, f"copy-of-{name}") as page:
        assert not page.evaluate(
            "() => window.jupyterapp.shell.currentWidget.model.cells.get(1).trusted"
        )
        image = page.locator(".jp-RenderedHTML img[src^='data:image/svg+xml']")
        assert image.evaluate("e => e.naturalWidth") > 400
        shown = page.locator(".jp-OutputArea").nth(1).inner_text()
        for words in ("1 of 7 models ready", "wine", "loaded wine:1", " at "):
            assert words in shown
    from nbconvert import HTMLExporter  # which takes its time: not while tests are collected

    page_html, _ = HTMLExporter().from_filename(str(lab.root / name))
    assert "data:image/svg+xml;base64," in page_html
    assert "widget-view+json" not in page_html
