"""The body of a cell below ``%%workbench infer``: Python whose last expression is the input."""

from __future__ import annotations

import ast
import linecache
from typing import Any

from IPython.core.error import UsageError

_NAME = "<%%workbench infer>"


def value_of(shell: Any, source: str) -> object:
    """Run *source* in the notebook's namespace; the value of the expression at its end.

    Raises ``UsageError`` if it is no Python or does not end with an expression, and what it raises.
    """
    try:
        tree = ast.parse(source, _NAME)
    except SyntaxError as error:
        raise UsageError(f"%%workbench infer: line {error.lineno}: {error.msg}") from None
    if not tree.body or not isinstance(tree.body[-1], ast.Expr):
        raise UsageError(
            "%%workbench infer: the cell ends with the input, such as [[0.0, 1.0]] or {'x': x}"
        )
    last = tree.body.pop()
    assert isinstance(last, ast.Expr)
    names = shell.user_ns
    __tracebackhide__ = True  # IPython shows the lines of the cell, and not ours
    linecache.cache[_NAME] = len(source), None, source.splitlines(keepends=True), _NAME
    exec(compile(tree, _NAME, "exec"), names)  # noqa: S102  # the user's own cell
    return eval(compile(ast.Expression(last.value), _NAME, "eval"), names)  # noqa: S307
