"""What an adapter may know of the core: its verbs and values, and nothing of how they are done."""

import ast
from collections.abc import Iterator
from pathlib import Path

import workbench.http

_HIDDEN = {"Lease", "Session", "Schedule", "ThreadPool", "SharedPool", "Residency", "Thread"}


def _names(tree: ast.AST) -> Iterator[str]:
    """All names that are read, imported, or reached by a dot."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names)


def test_no_adapter_sees_how_the_core_works() -> None:
    """No module of workbench.http names a lease, a session, a schedule or threads."""
    modules = list(Path(workbench.http.__file__).parent.rglob("*.py"))
    assert len(modules) > 20
    for module in modules:
        named = set(_names(ast.parse(module.read_text())))
        assert not named & _HIDDEN, module
