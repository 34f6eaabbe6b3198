"""What an adapter may know of the core: its verbs and values, and nothing of how they are done."""

import ast
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import workbench.annexes
import workbench.grpc
import workbench.http

_HIDDEN = {"Lease", "Session", "Schedule", "ThreadPool", "Residency", "Thread"}


def _names(tree: ast.AST) -> Iterator[str]:
    """All names that are read, imported, or reached by a dot."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize(
    ("adapter", "count"), [(workbench.http, 20), (workbench.grpc, 8), (workbench.annexes, 20)]
)
def test_no_adapter_sees_how_the_core_works(adapter: ModuleType, count: int) -> None:
    """No module of an adapter or annex names a lease, a session, a schedule or a thread pool."""
    assert adapter.__file__
    modules = list(Path(adapter.__file__).parent.rglob("*.py"))
    assert len(modules) > count
    for module in modules:
        named = set(_names(ast.parse(module.read_text())))
        assert not named & _HIDDEN, module
