"""What README and the pages of docs/ say is true."""

import json
import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from importlib.machinery import PathFinder
from inspect import getdoc
from pathlib import Path
from typing import Any

import click
import pytest
from msgspec import Struct
from msgspec.structs import fields
from other_process import ran

from workbench import errors, events
from workbench.commands.cli import main
from workbench.grpc import status as grpc_status
from workbench.http import status as http_status
from workbench.settings import declared, variable_name

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

# the tests may run from make themselves
OUTSIDE_MAKE = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


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


def first_line(described: type) -> str:
    return (getdoc(described) or "").partition("\n")[0].replace("``", "`")


def events_table() -> str:
    """The rows of docs/events.md: each kind of event, in the order of workbench/events.py."""
    found = [each for each in vars(events).values() if isinstance(each, type(Struct))]
    told = [each for each in found if each not in (Struct, events.Event, events.ToldEvent)]
    rows = [
        f"| `{each.kind}` | `{each.__name__}` | {first_line(each)} | "
        f"{', '.join(f'`{one.name}`' for one in fields(each)) or ''} |"
        for each in told
    ]
    return "\n".join(["| kind | class | what it means | fields |", "|---|---|---|---|", *rows])


def errors_table() -> str:
    """The rows of docs/errors.md: the tree of errors, with the statuses of both protocols."""
    rows = [
        f"| {'&emsp;' * depth}`{error.__name__}` | {first_line(error)} | "
        f"{status_of(http_status.STATUS, error)} | `{status_of(grpc_status.STATUS, error).name}` |"
        for error, depth in _tree(errors.WorkbenchError, 0)
    ]
    return "\n".join(["| error | what it means | HTTP | gRPC |", "|---|---|---|---|", *rows])


def status_of(table: Mapping[type, Any], error: type) -> Any:
    """That of *error*, or of the nearest class above it that has one."""
    return next(table[each] for each in error.__mro__ if each in table)


def _tree(error: type[errors.WorkbenchError], depth: int) -> Iterator[tuple[type, int]]:
    yield error, depth
    for child in error.__subclasses__():
        if child.__module__ == errors.__name__ and child.__bases__[0] is error:
            yield from _tree(child, depth + 1)


def test_every_event_and_error_is_in_its_table() -> None:
    """The tables of events and errors are those of the code."""
    assert events_table() in (ROOT / "docs" / "events.md").read_text("utf-8")
    assert errors_table() in (ROOT / "docs" / "errors.md").read_text("utf-8")


COMMANDS = [
    (page.stem, line.partition("#")[0].removesuffix("&").rstrip(" &"))
    for page in PAGES
    for block in blocks("bash", page.read_text("utf-8"))
    for line in block.splitlines()
    if line.startswith("workbench ")
]


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_commands_have_these_options(page: str, command: str) -> None:
    """Each command of a page exists, with the options that are shown."""
    _, verb, *arguments = shlex.split(command)
    found = main.commands[verb]
    found.make_parser(click.Context(found)).parse_args(arguments)


ELSEWHERE = (
    "grpc",
    "serve",
)  # in tests/grpc/test_grpc_page.py and tests/objects/test_serve_page.py
CLIENTS = [str(found) for found in (ROOT / ".venv-clients").glob("lib/python*/site-packages")]
ONE_STORY = ("tutorial_", "from_mlflow")  # pages whose blocks use what earlier ones made
LIBRARIES = ("boto3", "mlflow", "torch")  # which the environment of most tests lacks
WITH_PYTHON = [
    page
    for page in PAGES
    if page.stem not in ELSEWHERE and blocks("python", page.read_text("utf-8"))
]


def spec_of(library: str) -> object:
    return PathFinder.find_spec(library, [*sys.path, *CLIENTS])


def missing(page: Path) -> str:
    """A library that *page* needs and that is not installed, if there is one."""
    text = page.read_text("utf-8")
    absent = (each for each in LIBRARIES if f"import {each}\n" in text and not spec_of(each))
    return next(absent, "")


RUN_PAGES = """
import json, os, sys, traceback
sys.path += sys.argv[1:]
failures = {}
for page, (folder, blocks, together) in json.load(open("pages.json")).items():
    os.chdir(folder)
    try:
        names = {}
        for block in blocks:
            own = {"__name__": block}
            exec(compile(block, block, "exec"), names if together else own)
    except BaseException:
        failures[page] = traceback.format_exc()
    os.chdir("..")
json.dump(failures, open("failures.json", "w"))
"""


@pytest.fixture(scope="module")
def failures(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """Of each page whose Python fails, the traceback; one process runs them all, to save time."""
    root = tmp_path_factory.mktemp("pages")
    pages = {}
    chosen = {item.name for item in request.session.items}
    for page in WITH_PYTHON:
        if f"test_python_blocks_run[{page.stem}]" not in chosen:
            continue
        folder = root / page.stem
        (folder / "models").mkdir(parents=True)
        (folder / "sample_models").symlink_to(ROOT / "sample_models")
        shown = blocks("python", page.read_text("utf-8"))
        python = [block for block in shown if not block.startswith("%")]
        if not missing(page):
            pages[page.stem] = [page.stem, python, page.stem.startswith(ONE_STORY)]
    (root / "pages.json").write_text(json.dumps(pages), "utf-8")
    ran(sys.executable, "-c", RUN_PAGES, *CLIENTS, cwd=root)
    found: dict[str, str] = json.loads((root / "failures.json").read_text("utf-8"))
    return found


@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda page: page.stem)
def test_python_blocks_run(page: Path, failures: dict[str, str]) -> None:
    """The Python of a page runs as it is written, in order or each block by itself."""
    if missing(page):
        pytest.skip(f"{missing(page)} is not in this environment")
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
        command = "make", "-B", "setup", f"PYTHON={python}", "VENV=build/no-venv"
        done = ran(*command, check=False, cwd=ROOT, env=OUTSIDE_MAKE)
        assert done.returncode != 0
        assert message in done.stdout
        assert len(done.stdout.splitlines()) == 1
        python.unlink(missing_ok=True)


def test_make_installs_once() -> None:
    """When everything is set up, make setup does nothing."""
    stamp = ROOT / ".venv" / "installed"
    if not stamp.exists():
        pytest.skip("this environment was not made by make")
    told = ran("make", "-n", "setup", cwd=ROOT, env=OUTSIDE_MAKE).stdout
    assert "pip install" not in told


def test_the_site_builds(tmp_path: Path) -> None:
    """The pages make a site, without a warning: no page or link is missing."""
    build = sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", tmp_path
    ran(*build, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})
    assert (tmp_path / "index.html").exists()
    api = (tmp_path / "api.html").read_text("utf-8")
    assert all(f"workbench.Workbench.{verb}" in api for verb in ("start", "ainfer"))
    assert "https://fonts" not in (tmp_path / "index.html").read_text("utf-8")
