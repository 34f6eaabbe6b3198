"""What is left of a dashboard when its kernel, its server or its author is gone."""

import json
from typing import Any

from browser.chromium import MARKS, Lab
from browser.notebooks import RUN_ALL, opened, write

pytestmark = MARKS

START = """%load_ext workbench
wb = %workbench start sample_models --port 0 --budget 16MiB
wb.load("wine")"""
RESTART = """() => window.jupyterapp.shell.currentWidget.context.sessionContext.restartKernel()"""
STOP = "%workbench stop"
PICTURE = "img[src^='data:image/svg+xml']"
# The time after which a view without news says so goes by a hundred times as fast.
HASTEN = """() => document.querySelector('.wbd .stale').getAnimations().forEach(
    animation => animation.updatePlaybackRate(100))"""
STYLES = "(all, name) => all.map(each => getComputedStyle(each)[name])"
SAVE = "() => window.jupyterapp.commands.execute('docmanager:save')"


def test_a_dashboard_without_its_kernel_says_so(context: Any, lab: Lab) -> None:
    """After a page is reloaded it is live again; after a restart of the kernel, a badge appears."""
    write(lab.root / "restarted.ipynb", (START, "%workbench dashboard"))
    with opened(context, lab, "restarted.ipynb") as page:
        page.evaluate(RUN_ALL)
        board = page.locator(".wbd:visible")
        board.filter(has_text="1 of 7 models ready").wait_for()
        page.evaluate(SAVE)
        page.reload(wait_until="domcontentloaded")
        board.filter(has_text="1 of 7 models ready").wait_for()
        page.get_by_label("Model", exact=True).select_option("digits")
        page.get_by_role("button", name="Load", exact=True).click()
        board.filter(has_text="2 of 7 models ready").wait_for()
        stale = page.locator(".wbd-head .stale")
        assert stale.evaluate("e => getComputedStyle(e).opacity") == "0"
        page.evaluate(RESTART)
        page.evaluate(HASTEN)
        page.wait_for_function(
            "() => getComputedStyle(document.querySelector('.wbd .stale')).opacity === '1'"
        )
        assert "stopped at " in stale.inner_text()


def test_the_picture_is_there_for_readers(context: Any, lab: Lab) -> None:
    """Whoever opens the saved notebook, whom nothing makes trust it, sees the last state.

    It is that of a snapshot, or that of the stop. Without our style sheet its figures are apart,
    and names begin at the left. Of a figure only the picture on white is shown, and no SVG.
    """
    import nbformat  # which takes its time, as matplotlib does: not while the tests are collected

    from workbench.views.figures import memory_figure

    write(
        lab.root / "shown.ipynb",
        (START, "%workbench dashboard", "%workbench snapshot", "%workbench dashboard", STOP),
    )
    with opened(context, lab, "shown.ipynb") as page:
        page.evaluate(RUN_ALL)
        page.locator(PICTURE).nth(1).wait_for()
        page.evaluate(SAVE)
    saved = json.loads((lab.root / "shown.ipynb").read_text())
    saved["metadata"]["copied"] = True  # so that the author's signature does not count
    html = {"text/html": memory_figure([], 2**20, 10.0)._repr_html_(), "text/plain": "plain"}
    figure = nbformat.v4.new_output("display_data", html)
    saved["cells"].append(nbformat.v4.new_code_cell("x", outputs=[figure], execution_count=1))
    (lab.root / "copy.ipynb").write_text(json.dumps(saved))
    with opened(context, lab, "copy.ipynb") as page:
        for cell in (1, 3):
            assert not page.evaluate(
                "cell => window.jupyterapp.shell.currentWidget.model.cells.get(cell).trusted", cell
            )
            output = page.locator(".jp-OutputArea").nth(cell)
            image = output.locator(f".jp-RenderedHTML {PICTURE}")
            assert image.evaluate("e => e.naturalWidth") > 400
            shown = output.inner_text()
            for words in ("1 of 7 models ready", "wine", "loaded wine:1", " at "):
                assert words in shown
            assert output.locator("style").count() == 0
            figures = output.locator(".s > span")
            assert set(figures.evaluate_all(STYLES, "marginRight")) == {"22px"}
            names = output.locator("table tr > :first-child")
            assert set(names.evaluate_all(STYLES, "textAlign")) == {"left"}
        drawn = page.locator(".jp-OutputArea-output").last
        drawn.locator("img").first.wait_for(state="visible")
        assert drawn.locator("img").first.evaluate("element => element.naturalWidth") > 400
        assert drawn.locator(".wb-picture svg").count() == 0
        assert drawn.inner_text().strip() == ""
    from nbconvert import HTMLExporter  # which takes its time: not while tests are collected

    page_html, _ = HTMLExporter().from_filename(str(lab.root / "shown.ipynb"))
    assert page_html.count('src="data:image/svg+xml;base64,') == 2
    assert "widget-view+json" not in page_html
