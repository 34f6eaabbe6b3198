"""Notebook cells that start a server, and that are run again."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple, Protocol, TypeVar
from weakref import WeakKeyDictionary

from workbench.settings import Settings, difference, differing


class Cell(NamedTuple):
    """The identity of a notebook's cell, and the number of its run."""

    identity: str
    run: int


class Server(Protocol):
    """A server that a cell starts."""

    @property
    def settings(self) -> Settings: ...

    @property
    def is_running(self) -> bool: ...

    @property
    def link(self) -> str: ...

    @property
    def uptime_s(self) -> float: ...


S = TypeVar("S", bound=Server)

_started: WeakKeyDictionary[Any, Cell] = WeakKeyDictionary()
"""The servers that cells of this notebook started, each with the last run of its cell."""


def remember(server: Server, cell: Cell) -> None:
    """*cell* started *server*, or got it again."""
    _started[server] = cell


def earlier(server: S, cell: Cell) -> S | None:
    """The server that an earlier run of *cell* started and that still runs, if any.

    Of several, the one whose settings differ least from those of *server*.
    """
    servers = [
        each
        for each, started_by in list(_started.items())
        if started_by.identity == cell.identity and started_by.run != cell.run
        and isinstance(each, type(server)) and each.is_running
    ]  # fmt: skip
    return min(
        servers, key=lambda each: len(differing(each.settings, server.settings)), default=None
    )


def told_of(before: Server, now: Server, *, runs: bool = False) -> str:
    """The message to a cell that starts *now* and started *before* earlier: how to stop *before*.

    *runs*: *now* runs beside it.
    """
    differs = difference(before.settings, now.settings) or "functions were registered"
    told = f"this cell started another server before, at {before.link}: {differs}"
    held = names_of(before)
    if runs:
        holds = f" (now: {', '.join(held)})" if held else ""
        return f"{told}; it stops once no variable holds it{holds}"
    return told + (f"; {held[0]}.stop() stops it" if held else "")


def running_cell() -> Cell | None:
    """The cell that runs now; ``None`` outside of IPython.

    Front ends of notebooks tell the identity of a cell; elsewhere it is the text.
    """
    shell = _shell()
    if shell is None:
        return None
    parent = shell.get_parent() if hasattr(shell, "get_parent") else {}
    identity = parent.get("metadata", {}).get("cellId")
    return Cell(str(identity or (shell.user_ns.get("In") or [""])[-1]), shell.execution_count)


def names_of(value: object) -> list[str]:
    """The variables of the notebook that hold *value*."""
    shell = _shell()
    if shell is None:
        return []
    held = shell.user_ns.items()
    return [name for name, each in held if each is value and not name.startswith("_")]


def _shell() -> Any:
    """The shell of this process, if there is one. IPython is not imported for that."""
    if "IPython" not in sys.modules:
        return None
    from IPython.core.getipython import get_ipython

    untyped: Any = get_ipython
    return untyped()
