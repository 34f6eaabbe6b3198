"""Each view in the colours of JupyterLab and VS Code: readable and whole at each width and font."""

import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from browser.chromium import FONTS, MARKS, patient
from browser.looks import CONTRAST, CUT, take_picture
from workbench import Workbench
from workbench.annexes.bench.client import Point
from workbench.annexes.bench.report import Bench
from workbench.core.status.snapshot import DeviceStatus, Snapshot
from workbench.errors import WorkbenchError
from workbench.memory.device import Device, GpuReading, MemoryReading
from workbench.samples import write_models
from workbench.statistics import FailureReason
from workbench.views import board
from workbench.views.chart import legend, memory_charts
from workbench.views.history import History
from workbench.views.page import page_parts, status_page

pytestmark = MARKS

_THEMES = Path(sysconfig.get_path("data"), "share/jupyter/lab/themes/@jupyterlab")
_LAB = "background:var(--jp-layout-color0);color:var(--jp-content-font-color1)"
_VS_CODE = "background:var(--vscode-editor-background);color:var(--vscode-foreground)"
HEADS = {
    "lab-light": (_LAB, "theme-light-extension"),
    "lab-dark": (_LAB, "theme-dark-extension"),
    # what VS Code's themes Light Modern and Dark Modern set for notebooks
    "code-light": (_VS_CODE, "--vscode-editor-background:#ffffff;--vscode-foreground:#3b3b3b"),
    "code-dark": (_VS_CODE, "--vscode-editor-background:#1f1f1f;--vscode-foreground:#cccccc"),
}
VIEWS = ("card", "models", "model", "events", "memory", "dashboard", "gpus", "plan", "bench")

# The tables whose rows differ by more than a pixel, but for those with two rows a model.
UNEQUAL = """() => [...document.querySelectorAll("table:not(:has(td[colspan]))")]
  .map(table => [...table.rows].slice(1).map(row => row.getBoundingClientRect().height))
  .filter(heights => Math.max(...heights) - Math.min(...heights) > 1)"""

# The heads of columns that need more room than they have, so that words are broken or cut.
BROKEN = """() => [...document.querySelectorAll("th")].filter(head => {
    head.style.overflowWrap = "normal"
    const wide = head.scrollWidth > head.clientWidth + 1
    head.style.overflowWrap = ""
    return wide
  }).map(head => head.outerHTML)"""


@pytest.fixture(scope="module")
def views(tmp_path_factory: pytest.TempPathFactory, sample_models: Path) -> Mapping[str, str]:
    """The HTML of each view, of a server with models in each state."""
    heavy = tmp_path_factory.mktemp("heavy")
    write_models(heavy, 4, 12 * 2**20)
    broken = heavy / "a_sentence_encoder_that_does_not_load" / "1" / "model.onnx"
    broken.parent.mkdir(parents=True)
    broken.write_bytes(b"no model")
    history = History()
    with Workbench([sample_models, heavy], budget="48MiB", device="cpu") as wb:
        for name in ("heavy_0", "heavy_1", "heavy_2", "heavy_3", "heavy_0"):
            wb.infer("digits", np.zeros((3, 64), np.float32))
            wb.infer("wine", np.zeros((3, 13), np.float32))
            wb.infer(name, np.zeros((1, wb[name].inputs["x"].shape[-1]), np.float32))
            history.add(wb._core.status.counted())
        with pytest.raises(WorkbenchError):
            wb.load(broken.parent.parent.name)
        now = wb._core.status.counted()
        history.add(now)
        events = list(wb.events)

        def dashboard(now: Snapshot, history: History) -> str:
            charts = memory_charts(history, now, events)
            names, traffic = len(wb.names), history.all_traffic
            return "".join(
                (
                    board.STYLE,
                    board.head(now, traffic, names=names, link=wb.url, title=wb.url),
                    f'<div class="wbd">{"".join(charts)}{legend(history, now)}</div>',
                    board.models_table(now, history, "digits"),
                    board.events_list(events),
                )
            )

        return {
            "card": wb._repr_html_(),
            "models": wb.models._repr_html_(),
            "model": wb["digits"]._repr_mimebundle_()["text/html"],
            "events": board.STYLE + wb.events._repr_html_(),
            "memory": wb.plot_memory()._repr_html_(),  # type: ignore[attr-defined]
            "dashboard": dashboard(now, history),
            "gpus": dashboard(*on_gpus(now)),
            "page": status_page(page_parts(now, wb.names, events, history)),
            "plan": wb.plan()._repr_mimebundle_()["text/html"],
            "bench": Bench("digits", wb.url, points())._repr_mimebundle_()["text/html"],
        }


def points() -> tuple[Point, ...]:
    """What a benchmark may measure."""
    figures = {
        "answers": 12_345, "rate": 12_345.0, "failure": "503: too many wait",
        "p50_s": 0.0123, "p90_s": 0.0234, "p99_s": 0.0345,
    }  # fmt: skip
    return tuple(
        Point(batch, clients, failed=500 * (batch > 1), **figures)
        for batch in (1, 64)
        for clients in (1, 64)
    )


def on_gpus(now: Snapshot) -> tuple[Snapshot, History]:
    """The same models on two busy GPUs, a second later and after many requests."""
    gpus = [Device("cuda", n, "NVIDIA H100 80GB HBM3", 80 * 2**30) for n in range(2)]
    reading = GpuReading(0.34, 412.0, 700.0, temperature_celsius=61.0)
    reason = "NVIDIA H100 80GB HBM3, driver 580.65, CUDA 13.0"
    devices = tuple(
        DeviceStatus(
            gpu, reason, 64 * 2**30, system=MemoryReading(gpu.total_nbytes, 2**34), gpu=reading
        )
        for gpu in gpus
    )
    models = tuple(replace(m, device=gpus[n % 2]) for n, m in enumerate(now.models))
    history = History()
    history.add(replace(now, devices=devices, models=models))
    many = {FailureReason.OTHER: 12_345}
    busy = tuple(
        replace(m, requests=replace(r, succeeded=12_345, failures=f, last_at_s=now.at_s + 1))
        for n, m in enumerate(models)
        for r, f in [(m.requests, many if n % 2 else {})]
    )
    later = replace(now, at_s=now.at_s + 1, devices=devices, models=busy)
    history.add(later)
    return later, history


def document(theme: str, html: str, font: str = "wide") -> str:
    """*html* as the output of a cell in a front end with *theme* and *font*."""
    body, colours = HEADS[theme]
    folder = _THEMES / colours
    style = (folder / "index.css").read_text() if folder.is_dir() else f":root {{{colours}}}"
    return (
        f"<!doctype html><style>{style}{in_font(font)}</style><body style='margin:16px;"
        f"font:13px sans-serif;{body}'>{html}</body>"
    )


def in_font(font: str) -> str:
    """A style by which all text but that of fixed width is in *font*."""
    return f":not(pre, code, pre *) {{font-family:'{FONTS[font]}' !important}}"


@pytest.fixture(scope="module")
def one_tab(browser: Any) -> Iterator[Any]:
    """A tab for all views, each of which replaces the document of the one before."""
    with patient(browser) as context:
        yield context.new_page()


@pytest.fixture
def tab(one_tab: Any) -> Any:
    """The tab as a new one is."""
    one_tab.set_viewport_size({"width": 900, "height": 700})
    one_tab.emulate_media(color_scheme="light")
    return one_tab


@pytest.fixture(
    params=[*product(VIEWS, HEADS, ["wide"]), *product(VIEWS, ["lab-light"], ["narrow"])],
    ids="-".join,
)
def page(request: Any, tab: Any, views: Mapping[str, str]) -> Any:
    """A view in a theme and a font."""
    view, theme, font = request.param
    tab.set_content(document(theme, views[view], font))
    return tab


def assert_readable_and_whole(page: Any, name: str, *widths: int) -> None:
    """All text has a contrast of 4.5 at least, and nothing is cut off in narrow and wide windows.

    JupyterLab leaves 730 of 900 pixels to the output of a cell. The rows of a table are of equal
    height, however long the names, and no head is broken within a word. Pictures are taken.
    """
    texts = page.locator("body").evaluate(CONTRAST)
    assert len(texts) >= 8
    assert [text for text in texts if text[0] < 4.5] == []
    for width in widths:
        page.set_viewport_size({"width": width, "height": 700})
        assert page.evaluate(BROKEN) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.locator("body").evaluate(CUT) == []
        assert page.evaluate(UNEQUAL) == []
        take_picture(page, f"{name}-{width}")


def test_a_view_is_readable_and_whole(page: Any, request: Any) -> None:
    """Each view is, in each theme, and with a wide and a narrow font."""
    assert_readable_and_whole(page, request.node.callspec.id, 730, 900, 1400)


def test_the_fonts_are_those_of_the_tests(tab: Any) -> None:
    """The wide font is what sans-serif means, and the narrow one takes less."""
    words = "<span style='font:50px {};display:table;white-space:nowrap'>all models at once</span>"
    tab.set_content("".join(map(words.format, ("sans-serif", *FONTS.values()))))
    widths = "[...document.querySelectorAll('span')].map(each => each.offsetWidth)"
    default, wide, narrow = tab.evaluate(widths)
    assert default == wide
    assert narrow < 0.8 * wide


@pytest.mark.parametrize("font", FONTS)
@pytest.mark.parametrize("view", ["dashboard", "gpus"])
def test_a_narrow_output_is_scrolled(
    tab: Any, views: Mapping[str, str], view: str, font: str
) -> None:
    """JupyterLab's list of files leaves 440 of 900 pixels: no word or number is cut for that."""
    tab.set_viewport_size({"width": 440, "height": 700})
    tab.set_content(document("lab-light", views[view], font))
    for unwanted in (BROKEN, UNEQUAL):
        assert tab.evaluate(unwanted) == []
    assert tab.locator("body").evaluate(CUT) == []
    assert tab.evaluate("document.documentElement.scrollWidth") < 730


@pytest.mark.parametrize(("scheme", "font"), [("light", "wide"), ("dark", "narrow")])
def test_the_status_page_is_readable_and_whole(
    tab: Any, views: Mapping[str, str], scheme: str, font: str
) -> None:
    """The page of a browser is, in both colour schemes and fonts."""
    tab.emulate_media(color_scheme=scheme)
    tab.set_content(views["page"])
    tab.add_style_tag(content=in_font(font))
    assert tab.evaluate("matchMedia('(prefers-color-scheme: dark)').matches") == (scheme == "dark")
    assert_readable_and_whole(tab, f"page-{scheme}", 900, 1400)
