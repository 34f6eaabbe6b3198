"""Outputs in a notebook of somebody else, which JupyterLab does not trust."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from browser.chromium import MARKS, Lab, patient
from workbench import Workbench

pytestmark = MARKS


@pytest.fixture(scope="module")
def outputs(browser: Any, lab: Lab, sample_models: Path) -> Iterator[Any]:
    """The outputs of a page with a notebook: a figure and a dashboard."""
    import nbformat  # which takes its time, as matplotlib does: not while the tests are collected

    from workbench.views.figures import memory_figure

    with Workbench(sample_models, device="cpu", port=0) as server:
        server.infer("wine", np.zeros((1, 13), np.float32))
        dashboard = server.dashboard()._picture()["text/html"]
    cells = []
    for html in (memory_figure([], 2**20, 10.0)._repr_html_(), dashboard):
        output = nbformat.v4.new_output("display_data", {"text/html": html, "text/plain": "plain"})
        cells.append(nbformat.v4.new_code_cell("x", outputs=[output], execution_count=1))
    nbformat.write(nbformat.v4.new_notebook(cells=cells), lab.root / "notebooks/untrusted.ipynb")
    with patient(browser, viewport={"width": 900, "height": 1100}) as context:
        page = context.new_page()
        page.goto(f"{lab.url}/lab/tree/notebooks/untrusted.ipynb?token={lab.token}&reset")
        outputs = page.locator(".jp-OutputArea-output")
        for number in range(2):
            outputs.nth(number).locator("img").first.wait_for(state="visible")
        yield outputs


def test_an_untrusted_figure_is_a_picture(outputs: Any) -> None:
    """The SVG is left out, also its text, and the picture on white is shown in its place."""
    figure = outputs.nth(0)
    assert figure.locator("img").first.evaluate("element => element.naturalWidth") > 400
    assert figure.locator(".wb-picture svg").count() == 0
    assert figure.inner_text().strip() == ""


def test_an_untrusted_dashboard_is_in_order(outputs: Any) -> None:
    """Without our style sheet its figures are apart, and names begin at the left."""
    dashboard = outputs.nth(1)
    assert dashboard.locator("style").count() == 0
    apart = "all => all.map(e => getComputedStyle(e).marginRight)"
    figures = dashboard.locator(".s > span")
    assert set(figures.evaluate_all(apart)) == {"22px"}
    names = dashboard.locator("table tr > :first-child")
    sides = names.evaluate_all("all => all.map(e => getComputedStyle(e).textAlign)")
    assert set(sides) == {"left"}
