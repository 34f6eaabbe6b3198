"""A real Chromium and a real JupyterLab."""

import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import matplotlib as mpl
import pytest

ROOT = Path(__file__).parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
# Chromium must neither ask for a sandbox, which root has not, nor look for hosts outside. Names
# under .test lead to this machine, as those of a page that rebinds its name do.
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--host-resolver-rules=MAP *.test 127.0.0.1",
)  # fmt: skip
FONTS = {"wide": "DejaVu Sans", "narrow": "STIXGeneral"}
"""The widest and the narrowest of those that matplotlib brings, by which the views are tried."""

_FONTS_CONF = f"""<fontconfig>
  <dir>{mpl.get_data_path()}/fonts/ttf</dir>
  <cachedir>CACHE</cachedir>
  <alias><family>sans-serif</family><prefer><family>{FONTS["wide"]}</family></prefer></alias>
  <alias><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>
</fontconfig>"""
TIMEOUT_MS = 60_000  # on a machine with much else to do; a test makes several such waits
PROXY = "/user/ada/proxy/8888"

MARKS = [
    pytest.mark.browser,
    pytest.mark.timeout(600),
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]


class Lab(NamedTuple):
    """A JupyterLab: its address, the token that lets one in, and its folder of notebooks."""

    url: str
    token: str
    root: Path


@contextmanager
def jupyter(home: Path) -> Iterator[Lab]:
    """JupyterLab on a copy of the notebooks, with settings of its own."""
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
        yield Lab(f"http://127.0.0.1:{port}", token, root)
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:  # anyio's worker thread may wait on after its loop ended
            process.kill()
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


def with_own_fonts(home: Path) -> dict[str, str]:
    """An environment in which Chromium sees matplotlib's fonts, and none of the machine's."""
    (home / "fonts.conf").write_text(_FONTS_CONF.replace("CACHE", str(home / "cache")))
    return {**os.environ, "FONTCONFIG_FILE": str(home / "fonts.conf")}


@contextmanager
def patient(browser: Any, **options: Any) -> Iterator[Any]:
    """A context of *browser* with these *options*, whose pages are given ``TIMEOUT_MS``."""
    with browser.new_context(**options) as context:
        context.set_default_timeout(TIMEOUT_MS)
        yield context


def is_stream(request: Any) -> bool:
    """Whether the page asks for its changes."""
    accept: str = request.headers["accept"]
    return accept == "text/event-stream"


@contextmanager
def secluded(browser: Any, url: str, outside: list[str], width: int, height: int) -> Iterator[Any]:
    """An empty page that reaches no host but *url*, and that one also behind the proxy PROXY.

    What it wants from other hosts, and its complaints, are added to *outside*.
    """

    def pass_on(route: Any) -> None:
        asked = route.request.url
        if urlsplit(asked).netloc != urlsplit(url).netloc:
            outside.append(asked)
            route.abort()
        elif not urlsplit(asked).path.startswith(PROXY):
            route.continue_()
        elif is_stream(route.request):
            route.abort()  # this proxy passes on whole answers only
        else:
            route.fulfill(response=route.fetch(url=asked.replace(PROXY, "", 1)))

    with patient(browser, viewport={"width": width, "height": height}) as context:
        context.route("**/*", pass_on)
        page = context.new_page()
        page.on("console", lambda message: outside.append(message.text))
        page.on("pageerror", lambda error: outside.append(str(error)))
        yield page
