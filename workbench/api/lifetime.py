"""The server that a workbench holds: its start and end, its address and its settings."""

from __future__ import annotations

import os
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from workbench.annex import annexes
from workbench.api import cells
from workbench.core import ServerCore
from workbench.engines import overwritten
from workbench.errors import AttributeUnknown, PortInUse, SettingError, UsageError
from workbench.host.serving import Serving
from workbench.removed import no_more, no_more_verb
from workbench.repository import hidden_files, too_deep
from workbench.settings import Folders, Settings, declared
from workbench.spelling import meant
from workbench.views.times import show_age

# Names that others have for an attribute of the workbench
_ELSEWHERE = {
    "host": "url",
    "memory": "budget",
    "metrics": "models",
    "port": "url",
    "predict": "infer",
    "show": "dashboard",
    "status": "models",
}


class Lifetime:
    """Starts, changes and stops one server."""

    def __init__(self, repository: Folders = None, **settings: Any) -> None:
        self._serving = Serving(Settings.of(repository, **settings))
        self._stops: list[Callable[[], None]] = [self._serving.stop]
        self._finalizer: weakref.finalize[..., Lifetime] | None = None

    @property
    def _core(self) -> ServerCore:
        return self._serving.core

    def __setattr__(self, name: str, value: object) -> None:
        if not hasattr(type(self), name) and not name.startswith("_"):
            hint = meant(name, dir(type(self)))
            if any(option.name == name for option in declared()):
                hint = f": wb.restart({name}=...) changes it"
            if gone := no_more(f"setting {name!r}", name):
                hint = f": {gone}"
            raise AttributeUnknown(f"a workbench has no attribute {name!r} to set{hint}")
        super().__setattr__(name, value)

    if not TYPE_CHECKING:  # else every attribute would exist

        def __getattr__(self, name: str) -> Any:
            if hasattr(type(self), name) or name.startswith("_"):
                return object.__getattribute__(self, name)  # raises what it raised before
            if name in self._core.names():
                cure = f": write wb[{name!r}]"
            elif gone := no_more_verb(f"wb.{name}", name):
                cure = f": {gone}"
            elif name in _ELSEWHERE:
                cure = f"; did you mean {_ELSEWHERE[name]!r}?"
            else:
                cure = meant(name, dir(self))
            raise AttributeUnknown(f"a workbench has no attribute {name!r}{cure}")

    def start(self) -> Self:
        """Start the server and return; a running server is left as it is.

        It stops by itself once nothing holds this object any more. A notebook's cell that is run
        again gets the server that it started before, if no setting has changed; else it says so.

        Raises ``PortInUse``, and ``SettingError`` for a device or an address that is not available.
        """
        cell = None if self.is_running else cells.running_cell()
        if cell is None:
            self._start()
            return self
        before = cells.earlier(self, cell)
        if before is not None and before.settings == self.settings and not self._core.functions():
            age = show_age(before.uptime_s)
            print(f"already running at {before.link} for {age}")  # noqa: T201
            cells.remember(before, cell)
            return before
        if before is None:
            self._start()
        else:
            self._start_beside(before)
        cells.remember(self, cell)
        return self

    def _start(self) -> None:
        if self.is_running:
            return
        folders = self.settings.repository
        found = [overwritten(), too_deep(folders, self.settings.name), hidden_files(folders)]
        found += [each.warns(self.settings) for each in annexes() if each.warns is not None]
        for problem in filter(None, found):
            warnings.warn(problem, stacklevel=3)
        self._serving.start()
        if self._finalizer is None:
            self._finalizer = weakref.finalize(self, _stop_unheld, self._stops)
            self._finalizer.atexit = False  # the serving stops itself at the exit

    def _start_beside(self, before: Self) -> None:
        """Start, and say that the server of the same cell runs on, and how it is stopped."""
        try:
            self._start()
        except PortInUse as error:
            raise PortInUse(f"{error}; {cells.told_of(before, self)}") from None
        print(cells.told_of(before, self, runs=True))  # noqa: T201

    def stop(self, timeout_s: float | None = None) -> None:
        if timeout_s is not None and not (isinstance(timeout_s, int | float) and timeout_s >= 0):
            raise UsageError(f"timeout_s is {timeout_s!r}: it must be seconds, 0 or more")
        self._serving.stop(timeout_s)
        _stop_all(self._stops[1:])

    def restart(self, repository: Folders = None, **settings: Any) -> Self:
        """Restart with changed options; options that are not given stay as they are.

        The address, functions, pins, files given with loads, statistics, events, and registered
        shared memory stay. Clients that connect meanwhile wait. Models are loaded again. Raises as
        the constructor and ``start`` do; then the server runs on as before.
        """
        self._serving.restart(repository, **settings)
        return self

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def is_running(self) -> bool:
        """Whether the server answers requests."""
        return self._serving.is_running

    @property
    def uptime_s(self) -> float:
        """Seconds since the server started; 0.0 while it does not run."""
        return self._serving.uptime_s

    @property
    def url(self) -> str:
        """The address, such as ``http://127.0.0.1:8000``. Raises ``ServerNotRunning``."""
        return self._serving.url

    @property
    def grpc_url(self) -> str:
        """Where it answers over gRPC, such as ``127.0.0.1:8001``, or ``unix:`` and a path.

        Raises ``ServerNotRunning``, also if the settings ask for no gRPC.
        """
        return self._serving.grpc_url

    @property
    def grpc_urls(self) -> tuple[str, ...]:
        """All addresses for gRPC, that of ``grpc_url`` first; none while it does not run."""
        return self._serving.grpc_urls

    @property
    def link(self) -> str:
        """The address for a browser: ``url``, with the token if it was made for this server.

        A token of your own is left out, since what a notebook shows is saved with it. Raises
        ``ServerNotRunning``.
        """
        made = self._serving.made_token
        return f"{self.url}/?token={made}" if made else self.url

    @property
    def page(self) -> str:
        """Where links in a notebook lead: ``link``; on a JupyterHub, its jupyter-server-proxy.

        That one is the path of an address: the browser knows the hub's name. Raises
        ``ServerNotRunning``.
        """
        prefix, port = os.environ.get("JUPYTERHUB_SERVICE_PREFIX", ""), urlsplit(self.url).port
        if not prefix or port is None:
            return self.link
        return f"{prefix}proxy/{port}/{self.link.removeprefix(self.url).removeprefix('/')}"

    @property
    def token(self) -> str:
        """The token that requests must carry (``Authorization: Bearer ...``); ``""`` if none."""
        return self._serving.token

    @property
    def settings(self) -> Settings:
        """The settings in use."""
        return self._serving.settings

    @property
    def budget(self) -> int | None:
        """The bytes that models may take of each device, at most.

        Set it to a number of bytes or a text such as ``"64MiB"`` or ``"90%"``, also while it runs:
        models that no longer fit are evicted once they are idle. A restart keeps it. ``None``
        before the start, unless it was set: then it depends on the devices. Raises
        ``SettingError``.
        """
        return self._core.budget_nbytes

    @budget.setter
    def budget(self, amount: str | int) -> None:
        if amount is None:
            raise SettingError("budget: None is not an amount of memory, such as 64MiB")
        self._serving.adjust(budget=amount)

    @property
    def evict(self) -> str:
        """Which model is unloaded when room is needed: ``lru``, ``lfu``, ``largest``, ``cost``.

        ``never`` unloads none. Set it also while the server runs: the next eviction follows it,
        and it knows how the models were used before. A restart keeps it. Raises ``SettingError``.
        """
        return self.settings.evict

    @evict.setter
    def evict(self, policy: str) -> None:
        if policy is None:
            raise SettingError("evict: None is not a policy; 'never' evicts nobody")
        self._serving.adjust(evict=policy)

    @property
    def keep_alive(self) -> float | None:
        """The seconds that a model stays loaded after its last request; ``None``: no limit.

        Set it to seconds, a text such as ``"5min"``, or ``None`` or ``"off"``, also while the
        server runs. Pinned models stay in any case. A restart keeps it. Raises ``SettingError``.
        """
        return self.settings.keep_alive

    @keep_alive.setter
    def keep_alive(self, span: str | float | None) -> None:
        self._serving.adjust(keep_alive="off" if span is None else span)

    @property
    def logs(self) -> str:
        """What the server's threads logged, oldest first."""
        return self._serving.logs.text()


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
