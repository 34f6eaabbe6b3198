"""The words of the code."""

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "workbench"
PRONOUNS = {"It", "Its", "That", "These", "Those", "What", "Where", "Whether", "Which", "Who"}


def first_lines() -> Iterator[tuple[str, str]]:
    """The first line of each docstring, with its module."""
    for module in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(module.read_text("utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node) or ""
                yield str(module.relative_to(PACKAGE)), text.partition("\n")[0]


def test_docstrings_begin_with_a_noun() -> None:
    """No docstring begins with a pronoun, which a reader cannot search for."""
    assert [(at, line) for at, line in first_lines() if line.partition(" ")[0] in PRONOUNS] == []
