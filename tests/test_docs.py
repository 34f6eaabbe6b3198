"""What README and the pages of docs/ say is true."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from workbench.cli import main
from workbench.settings import declared, variable_name

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

# the tests may run from make themselves
OUTSIDE_MAKE = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def without_numbers(line: str) -> str:
    """The line with its numbers and bars taken out, which differ from run to run."""
    return re.sub(r"[\d.:#]+|[µm]s", "_", line).strip()


def test_first_screen_shows_the_commands() -> None:
    """The first screen has make demo, make lab, make test and conda."""
    screen = "\n".join(README.splitlines()[:32])
    for command in ("make demo", "make lab", "make test", "conda env create -f environment.yml"):
        assert command in screen


def test_readme_is_short() -> None:
    """README has at most 900 words: the rest has a page of its own."""
    assert len(README.split()) <= 900


def test_every_setting_is_in_the_table() -> None:
    """The table of settings has each of them."""
    page = (ROOT / "docs" / "settings.md").read_text("utf-8")
    table = page[page.index("| setting |") :].split("\n\n")[0]
    for option in declared():
        assert f"`{option.name}`" in table
    assert variable_name("budget") == "WORKBENCH_BUDGET"
    assert "`WORKBENCH_<NAME>`" in page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    """Each link of a page to another file leads to one that is there."""
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)[^)]*\)", page.read_text("utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_every_page_is_in_the_menu() -> None:
    """mkdocs.yml names each page of docs/."""
    menu = (ROOT / "mkdocs.yml").read_text("utf-8")
    assert [page.name for page in PAGES[1:] if f" {page.name}\n" not in menu] == []


def test_demo_prints_what_is_shown(tmp_path: Path) -> None:
    """Each line that README shows of the demo is one that the demo prints, numbers aside."""
    (shown,) = [block for block in blocks("text") if "450 handwritten" in block]
    told = CliRunner().invoke(main, ["demo", str(ROOT / "sample_models"), "--out", str(tmp_path)])
    printed = {without_numbers(line) for line in told.output.splitlines()}
    assert [line for line in shown.splitlines() if without_numbers(line) not in printed] == []


ELSEWHERE = (
    "grpc",
    "serve",
)  # in tests/grpc/test_grpc_page.py and tests/conversion/test_serve_page.py
WITH_PYTHON = [
    page
    for page in PAGES
    if page.stem not in ELSEWHERE and blocks("python", page.read_text("utf-8"))
]


RUN_PAGES = """
import json, os, sys, traceback
failures = {}
for page, (folder, blocks) in json.load(open("pages.json")).items():
    os.chdir(folder)
    try:
        for block in blocks:
            exec(compile(block, block, "exec"), {"__name__": block})
    except BaseException:
        failures[page] = traceback.format_exc()
    os.chdir("..")
json.dump(failures, open("failures.json", "w"))
"""


@pytest.fixture(scope="module")
def failures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Of each page whose Python fails, the traceback; one process runs them all, to save time."""
    root = tmp_path_factory.mktemp("pages")
    pages = {}
    for page in WITH_PYTHON:
        folder = root / page.stem
        (folder / "models").mkdir(parents=True)
        (folder / "sample_models").symlink_to(ROOT / "sample_models")
        shown = blocks("python", page.read_text("utf-8"))
        pages[page.stem] = [page.stem, [block for block in shown if not block.startswith("%")]]
    (root / "pages.json").write_text(json.dumps(pages), "utf-8")
    done = subprocess.run(
        [sys.executable, "-c", RUN_PAGES],
        cwd=root, capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads((root / "failures.json").read_text("utf-8"))
    return found


@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda page: page.stem)
def test_python_blocks_run(page: Path, failures: dict[str, str]) -> None:
    """The Python of a page runs as it is written, each block by itself."""
    assert page.stem not in failures, failures[page.stem]


def test_make_says_what_is_missing() -> None:
    """With an interpreter that is too old or does not run, make says so in one line."""
    old = "#!/bin/sh\ncase $2 in '') exit 0;; *version_info*) exit 1;; *) echo 3.8.1;; esac\n"
    for script, message in ((old, "Python 3.11 or newer is needed"), (None, "does not run here")):
        python = ROOT / "build" / "python-of-the-test"
        python.parent.mkdir(exist_ok=True)
        python.unlink(missing_ok=True)
        if script:
            python.write_text(script)
            python.chmod(0o755)
        done = subprocess.run(
            ["make", "-B", "setup", f"PYTHON={python}", "VENV=build/no-venv"],
            cwd=ROOT, capture_output=True, text=True, check=False, env=OUTSIDE_MAKE,
        )  # fmt: skip
        assert done.returncode != 0
        assert message in done.stdout
        assert len(done.stdout.splitlines()) == 1
        python.unlink(missing_ok=True)


def test_make_installs_once() -> None:
    """When everything is set up, make setup does nothing."""
    stamp = ROOT / ".venv" / "installed"
    if not stamp.exists():
        pytest.skip("this environment was not made by make")
    done = subprocess.run(
        ["make", "-n", "setup"], cwd=ROOT, env=OUTSIDE_MAKE, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert "pip install" not in done.stdout


def test_the_site_builds(tmp_path: Path) -> None:
    """The pages make a site, without a warning: no page or link is missing."""
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path)],
        cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "index.html").exists()
    assert "https://fonts" not in (tmp_path / "index.html").read_text("utf-8")
