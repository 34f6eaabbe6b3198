"""Outputs in a notebook of somebody else, which JupyterLab does not trust."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from browser.chromium import MARKS, TIMEOUT_MS, Lab
from workbench import Workbench

pytestmark = MARKS


@contextmanager
def untrusted(browser: Any, lab: Lab, name: str, html: str) -> Iterator[Any]:
    """A page with a notebook whose one output is *html*."""
    import nbformat  # which takes its time: not while the tests are collected

    output = nbformat.v4.new_output("display_data", {"text/html": html, "text/plain": name})
    cell = nbformat.v4.new_code_cell(name, outputs=[output], execution_count=1)
    path = lab.root / "notebooks" / f"untrusted_{name}.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), path)
    with browser.new_page(viewport={"width": 900, "height": 1100}) as page:
        page.set_default_timeout(TIMEOUT_MS)
        page.goto(f"{lab.url}/lab/tree/notebooks/{path.name}?token={lab.token}&reset")
        page.locator(".jp-OutputArea-output img").first.wait_for(state="visible")
        yield page


def test_an_untrusted_figure_is_a_picture(browser: Any, lab: Lab) -> None:
    """The SVG is left out, also its text, and the picture on white is shown in its place."""
    from workbench.views.figures import memory_figure  # matplotlib takes its time

    html = memory_figure([], 2**20, 10.0)._repr_html_()
    with untrusted(browser, lab, "figure", html) as page:
        output = page.locator(".jp-OutputArea-output")
        image = output.locator("img").first
        assert image.evaluate("element => element.naturalWidth") > 400
        assert page.locator(".wb-picture svg").count() == 0
        assert output.first.inner_text().strip() == ""


def test_an_untrusted_dashboard_is_in_order(browser: Any, lab: Lab, sample_models: Path) -> None:
    """Without our style sheet its figures are apart, and names begin at the left."""
    with Workbench(sample_models, device="cpu", port=0) as server:
        server.infer("wine", np.zeros((1, 13), np.float32))
        html = server.dashboard()._picture()["text/html"]
    with untrusted(browser, lab, "dashboard", html) as page:
        assert page.locator(".jp-OutputArea-output style").count() == 0
        apart = "all => all.map(e => getComputedStyle(e).marginRight)"
        figures = page.locator(".jp-OutputArea-output .s > span")
        assert set(figures.evaluate_all(apart)) == {"22px"}
        names = page.locator(".jp-OutputArea-output table tr > :first-child")
        sides = names.evaluate_all("all => all.map(e => getComputedStyle(e).textAlign)")
        assert set(sides) == {"left"}
