"""The quickstart as a person sees it: a real JupyterLab in a real Chromium."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
# Chromium must neither ask for a sandbox, which root has not, nor look for hosts outside.
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
TIMEOUT_MS = 60_000

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The quickstart in JupyterLab: its address, with the token."""
    with jupyter(tmp_path_factory.mktemp("lab")) as (url, token):
        yield f"{url}/doc/tree/notebooks/quickstart.ipynb?token={token}"


@contextmanager
def jupyter(home: Path) -> Iterator[tuple[str, str]]:
    """JupyterLab on a copy of the notebooks, with settings of its own: its address and token."""
    root = home / "root"
    for folder in ("notebooks", "sample_models"):
        shutil.copytree(ROOT / folder, root / folder)
    token = secrets.token_hex(12)
    environ = {
        **os.environ,
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(_settings(home)),
        "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
        "IPYTHONDIR": str(home / "ipython"),
    }
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1",
        "--port=0", f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={root}",
        "--LabApp.expose_app_in_browser=True", "--LabApp.news_url=None",
        "--ServerApp.terminals_enabled=False",
    ]  # fmt: skip
    with subprocess.Popen(
        command, cwd=root, env=environ, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stderr is not None
        line = next(line for line in process.stderr if "http://127.0.0.1:" in line)
        port = line.split("127.0.0.1:")[-1].split("/")[0]
        drain = subprocess.Popen(["cat"], stdin=process.stderr, stdout=subprocess.DEVNULL)
        yield f"http://127.0.0.1:{port}", token
        process.terminate()
        process.wait(30)
        drain.wait(30)


def _settings(home: Path) -> Path:
    """All cells stay in the page, whether one sees them or not; no questions about news."""
    folder = home / "settings" / "@jupyterlab"
    for plugin, name, value in (
        ("notebook-extension", "tracker", {"windowingMode": "none"}),
        ("apputils-extension", "notification", {"fetchNews": "false", "checkForUpdates": False}),
    ):
        (folder / plugin).mkdir(parents=True, exist_ok=True)
        (folder / plugin / f"{name}.jupyterlab-settings").write_text(json.dumps(value))
    return home / "settings"


@pytest.fixture(scope="module")
def page(lab: str) -> Iterator[Any]:
    """The quickstart, opened and run to its end."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        page = browser.new_page(viewport={"width": 1280, "height": 1100})
        page.goto(lab, wait_until="domcontentloaded")
        page.wait_for_selector(".jp-NotebookPanel .jp-CodeCell", timeout=TIMEOUT_MS)
        page.wait_for_function(
            "() => window.jupyterapp.shell.currentWidget?.context?.sessionContext?.isReady",
            timeout=TIMEOUT_MS,
        )
        page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells'); }")
        outputs = page.locator(".jp-OutputArea-output")
        outputs.filter(has_text="stopped").wait_for(timeout=TIMEOUT_MS)
        yield page
        shot = os.environ.get("LAB_SCREENSHOT")
        if shot:
            page.screenshot(path=shot, full_page=True)
        browser.close()


def test_status_is_drawn(page: Any) -> None:
    """The server shows its address and how full the budget is, as HTML."""
    shown = page.locator(".jp-RenderedHTML", has_text="workbench http://127.0.0.1:").first
    assert "0 in memory" in shown.inner_text()
    assert shown.locator("div[style*='320px']").count() == 1


def test_models_are_a_table(page: Any) -> None:
    """The models are a table with a row each."""
    table = page.locator(".jp-RenderedHTML table", has_text="digits_conv").first
    assert table.locator("tbody tr").count() == 7


def test_evictions_are_told(page: Any) -> None:
    """The events are a table in which an eviction says why."""
    row = page.locator(".jp-RenderedHTML tr", has_text="evict").first
    assert "least recently used, to make room for ink:1" in row.inner_text()


def test_the_picture_is_drawn(page: Any) -> None:
    """The memory over time is a picture with something in it."""
    image = page.locator(".jp-RenderedImage img").first
    assert image.evaluate("element => element.naturalWidth") > 400


def test_no_cell_failed(page: Any) -> None:
    """No output is an error."""
    assert page.locator("[data-mime-type='application/vnd.jupyter.error']").count() == 0
    assert page.locator("[data-mime-type='application/vnd.jupyter.stderr']").count() == 0
