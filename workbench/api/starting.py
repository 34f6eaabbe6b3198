"""The start of a workbench's server, also from a notebook's cell that is run again, and its end."""

from __future__ import annotations

import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from workbench.annex import annexes
from workbench.api import cells
from workbench.engines import overwritten
from workbench.errors import PortInUse
from workbench.host.serving import Serving
from workbench.repository import hidden_files, too_deep
from workbench.settings import Folders
from workbench.views.times import show_age

S = TypeVar("S", bound=cells.Server)


class Starter:
    """Starts *serving* for its owner, and stops it once nothing holds that any more."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self.stops: list[Callable[[], None]] = [serving.stop]
        self._finalizer: weakref.finalize[..., cells.Server] | None = None

    def start(self, owner: cells.Server) -> None:
        """Start, unless it runs; what is odd in the settings is a warning."""
        if self._serving.is_running:
            return
        self._warn()
        self._serving.start()
        if self._finalizer is None:
            self._finalizer = weakref.finalize(owner, _stop_unheld, self.stops)
            self._finalizer.atexit = False  # the serving stops itself at the exit

    def restart(self, repository: Folders, **settings: Any) -> None:
        """Restart with changed *settings*; what is odd in them is a warning, as at a start."""
        before = self._oddities()
        self._serving.restart(repository, **settings)
        self._warn(before)

    def _warn(self, told: Iterable[str] = ()) -> None:
        for problem in self._oddities():
            if problem not in told:
                warnings.warn(problem, stacklevel=5)  # of whoever called the workbench

    def _oddities(self) -> list[str]:
        settings = self._serving.settings
        folders = settings.repository
        found = [overwritten(), too_deep(folders, settings.name), hidden_files(folders)]
        found += [each.warns(settings) for each in annexes() if each.warns is not None]
        return [*filter(None, found)]

    def start_in_cell(self, owner: S) -> S:
        """Start; a cell that is run again gets the server that it started before, if it is alike.

        Else it is said that the earlier one runs on, and how it is stopped.
        """
        cell = None if owner.is_running else cells.running_cell()
        if cell is None:
            self.start(owner)
            return owner
        before = cells.earlier(owner, cell)
        settings, functions = self._serving.settings, self._serving.core.status.functions()
        if before is not None and before.settings == settings and not functions:
            age = show_age(before.uptime_s)
            print(f"already running at {before.link} for {age}")  # noqa: T201
            cells.remember(before, cell)
            return before
        try:
            self.start(owner)
        except PortInUse as error:
            if before is None:
                raise
            raise PortInUse(f"{error}; {cells.told_of(before, owner)}") from None
        if before is not None:
            print(cells.told_of(before, owner, runs=True))  # noqa: T201
        cells.remember(owner, cell)
        return owner

    def stop(self, timeout_s: float | None = None) -> None:
        """Stop the server, and what runs beside it."""
        self._serving.stop(timeout_s)
        _stop_all(self.stops[1:])


def _stop_all(stops: Iterable[Callable[[], None]]) -> None:
    for stop in stops:
        stop()


def _stop_unheld(stops: Iterable[Callable[[], None]]) -> None:
    """Stop a server that nothing holds; in a thread, as the garbage may be collected in any.

    When the process ends there are no new threads, and servers were stopped at its exit.
    """
    if sys.is_finalizing():
        return
    threading.Thread(target=_stop_all, args=(stops,), name="workbench-unheld", daemon=True).start()
