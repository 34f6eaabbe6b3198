"""Makes the picture in README: the card of a server, and its memory over time.

python docs/make_pictures.py (with Chromium: on Debian, apt install chromium)
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
from playwright.sync_api import sync_playwright

from workbench import Workbench
from workbench.samples import write_models

HERE = Path(__file__).parent
HEAVY_NBYTES = 12 * 2**20


def page() -> str:
    """The card and the figure of a server after some requests, as HTML."""
    with tempfile.TemporaryDirectory() as heavy:
        write_models(Path(heavy), 4, HEAVY_NBYTES)
        with Workbench([HERE.parent / "sample_models", heavy], budget="48MiB") as wb:
            names = [name for name in wb.names if name.startswith("heavy")]
            for name in (*names, names[0], *names[2:]):
                wb.infer("digits", np.zeros((1, 64), np.float32))
                wb.infer("wine", np.zeros((1, 13), np.float32))
                wb.load(name)
            card = wb._repr_html_()
            picture = wb.plot_memory()._repr_html_()  # type: ignore[attr-defined]
    body = f'{card}<div style="margin-top:16px">{picture}</div>'
    return f'<body style="font-family:sans-serif;margin:16px;background:#fff">{body}</body>'


def main() -> None:
    """Write docs/pictures/card.png."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"))
        tab = browser.new_page(viewport={"width": 900, "height": 600})
        tab.set_content(page())
        tab.screenshot(path=HERE / "pictures" / "card.png", full_page=True)
        browser.close()


if __name__ == "__main__":
    main()
