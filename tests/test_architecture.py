"""What ARCHITECTURE.md says is where the code says it is."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "workbench"
TEXT = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
TREE = TEXT[TEXT.index("```text\n") : TEXT.index("```\n\n## The floors")]
LAYERS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"][
    "contracts"
][0]["layers"]


def entries() -> dict[str, str]:
    """What the tree says of each module and package at its margin."""
    parts = re.split(r"^    (\w+(?:\.py|/))", TREE, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("entry", entries())
def test_the_tree_names_what_is_there(entry: str) -> None:
    """Each module and folder that is named beside a package is in it, or beside it."""
    place = PACKAGE / entry
    assert place.exists()
    told = re.findall(r"(?<![\w/.])(\w+(?:\.py|/))(?=[\s,;:.)]|$)", entries()[entry])
    assert [
        name
        for name in told
        if not (PACKAGE / name).exists() and not [*place.rglob(name.strip("/"))]
    ] == []


def test_the_tree_has_all() -> None:
    """Each module and package of the top is in the tree."""
    there = {path.name for path in PACKAGE.glob("[a-z]*.py")} - {"version.py"}
    there |= {f"{path.parent.name}/" for path in PACKAGE.glob("*/__init__.py")}
    told = set(re.findall(r"(?<![\w/.])\w+(?:\.py|/)", TREE))
    assert there - told == set()


def test_paths_lead_somewhere() -> None:
    """Each path in the text is one of the repository, or of the package."""
    paths = re.findall(r"`([\w.-]+(?:/[\w.-]+)*(?:/|\.py))`", TEXT)
    paths += re.findall(r"`((?:tests|workbench|benchmarks|docs)/[\w/.-]+)`", TEXT)
    missing = [
        path
        for path in paths
        if not (ROOT / path).exists() and not [*PACKAGE.rglob(path.rstrip("/"))]
    ]
    assert missing == []


def test_the_floors() -> None:
    """The floors are those that import-linter checks."""
    floors = TEXT[TEXT.index("## The floors") : TEXT.index("Nothing reaches up")]
    told = [set(re.findall(r"\w+", floor)) for floor in re.findall(r"`([^`]+)`", floors)]
    assert told == [set(re.findall(r"\w+", layer)) for layer in LAYERS]
