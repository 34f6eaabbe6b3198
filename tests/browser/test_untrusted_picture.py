"""A figure in a notebook of somebody else, which JupyterLab does not trust."""

from __future__ import annotations

from typing import Any

from browser.chromium import MARKS, TIMEOUT_MS, Lab

pytestmark = MARKS


def test_an_untrusted_figure_is_a_picture(browser: Any, lab: Lab) -> None:
    """The SVG is left out, and the picture on white is shown in its place."""
    import nbformat  # both take their time: not while the tests are collected

    from workbench.views.figures import memory_figure

    html = memory_figure([], 2**20, 10.0)._repr_html_()
    output = nbformat.v4.new_output("display_data", {"text/html": html, "text/plain": "a figure"})
    cell = nbformat.v4.new_code_cell("wb.plot_memory()", outputs=[output], execution_count=1)
    path = lab.root / "notebooks" / "untrusted_figure.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), path)
    page = browser.new_page()
    page.set_default_timeout(TIMEOUT_MS)
    page.goto(f"{lab.url}/lab/tree/notebooks/{path.name}?token={lab.token}&reset")
    image = page.locator(".jp-OutputArea-output img").first
    image.wait_for(state="visible")
    assert image.evaluate("element => element.naturalWidth") > 400
    assert page.locator(".wb-picture svg").count() == 0
    page.close()
