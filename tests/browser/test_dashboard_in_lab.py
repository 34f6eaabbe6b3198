"""The dashboard as a person sees it: a real JupyterLab in a real Chromium."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browser.chromium import MARKS, Lab

TIMEOUT_MS = 30_000

pytestmark = MARKS

START = """%load_ext workbench
wb = %workbench start sample_models --port 0 --budget 16MiB
for name in wb.names:
    wb.load(name)"""
BUSY = """import pathlib, time
for _ in range(600):
    if pathlib.Path("go").exists():
        break
    time.sleep(0.1)
print("cell ended")"""
CELLS = (START, "%workbench dashboard", BUSY, "%workbench stop")


@pytest.fixture(scope="module")
def opened(browser: Any, lab: Lab) -> Iterator[tuple[Any, Path]]:
    """A notebook whose third cell is busy until there is a file ``go``, and its folder."""
    (lab.root / "board.ipynb").write_text(json.dumps(_notebook()))
    with browser.new_context(viewport={"width": 900, "height": 1100}) as context:
        page = context.new_page()
        page.goto(
            f"{lab.url}/doc/tree/board.ipynb?token={lab.token}", wait_until="domcontentloaded"
        )
        page.wait_for_selector(".jp-NotebookPanel .jp-CodeCell", timeout=TIMEOUT_MS)
        page.wait_for_function(
            "() => window.jupyterapp.shell.currentWidget?.context?.sessionContext?.isReady",
            timeout=TIMEOUT_MS,
        )
        page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells'); }")
        yield page, lab.root
        shots = os.environ.get("LAB_SCREENSHOT")
        if shots:
            page.screenshot(path=shots, full_page=True)


def _notebook() -> dict[str, Any]:
    cells = [
        {
            "cell_type": "code", "execution_count": None, "id": f"cell-{number}",
            "metadata": {}, "outputs": [], "source": source,
        }
        for number, source in enumerate(CELLS)
    ]  # fmt: skip
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def test_the_dashboard_in_lab(opened: tuple[Any, Path]) -> None:
    """It is drawn, obeys while a cell is busy, evicts by its slider, and ends as a picture."""
    page, folder = opened
    output = page.locator(".jp-OutputArea-output")
    board = page.locator(".wbd")
    board.filter(has_text="7 of 7 models ready").wait_for(timeout=TIMEOUT_MS)
    too_wide = "es => es.filter(e => e.scrollWidth > e.clientWidth + 1).length"
    assert board.evaluate_all(too_wide) == 0

    chooser = page.locator(".widget-dropdown select")
    chooser.select_option("wine")
    page.get_by_role("button", name="Unload", exact=True).click()
    board.filter(has_text="unload wine: done").wait_for(timeout=TIMEOUT_MS)
    board.filter(has_text="6 of 7 models ready").wait_for(timeout=TIMEOUT_MS)
    page.get_by_role("button", name="Load", exact=True).click()
    board.filter(has_text="7 of 7 models ready").wait_for(timeout=TIMEOUT_MS)

    page.locator(".widget-slider .noUi-handle").focus()
    page.keyboard.press("Home")  # 1 MiB
    board.filter(has_text="evicted digits").wait_for(timeout=TIMEOUT_MS)
    assert output.filter(has_text="cell ended").count() == 0  # all that while a cell was busy

    (folder / "go").touch()
    output.filter(has_text="stopped").last.wait_for(timeout=TIMEOUT_MS)
    page.locator("img[src^='data:image/svg+xml']").wait_for(timeout=TIMEOUT_MS)
    assert page.get_by_role("button", name="Unload", exact=True).count() == 0
    assert page.locator("[data-mime-type='application/vnd.jupyter.error']").count() == 0
