"""The life of a server: its core and its listeners start, stop and restart together."""

from __future__ import annotations

import atexit
import os
import socket
import threading
import time
import weakref
from contextlib import closing, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from workbench.core import ServerCore
from workbench.errors import ServerNotRunning
from workbench.events import ServerStarted, ServerStopped
from workbench.host.listeners import (
    Listener,
    adapted,
    check_grpc_port,
    grpc_listeners,
    http_listener,
    listening_socket,
    token_for,
)
from workbench.host.logs import LogRing
from workbench.running import announce, withdraw
from workbench.settings import Folders, Settings
from workbench.threads import shielded
from workbench.tokens import AUTO

_everywhere: weakref.WeakSet[Serving] = weakref.WeakSet()  # for the hook of fork alone


class Serving:
    """A *core* with its *settings* and *token*, and the listeners that answer for it.

    Raises ``SettingError`` and ``RepositoryError`` for settings that cannot work.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = adapted(settings)
        self.token = token_for(self.settings)
        self.core = ServerCore(self.settings)
        self.logs = LogRing()
        self.budget_nbytes = self.core.budget_nbytes or 1
        self._changing = threading.RLock()  # one start, stop or restart at a time
        self._life = threading.RLock()
        self._listeners: list[Listener] = []  # HTTP's is the first
        self._started: list[Listener] = []  # the same, also while it stops
        self._listed: Path | None = None  # the file that tells of it
        self._started_s = 0.0
        _everywhere.add(self)

    def start(self) -> None:
        """Start, unless it runs.

        Raises ``PortInUse``, and ``SettingError`` for a device or an address that is not available.
        """
        with self._changing:
            if self.is_running:
                return
            try:
                self._start_shielded()
            except BaseException:
                shielded(self._stop, "workbench-stop")
                raise

    def _start_shielded(self, listening: socket.socket | None = None) -> None:
        """Start, on the socket *listening* if it is given; an interrupt ends the loads of a start.

        Raises as ``start`` does; what was started then is left for ``_stop``.
        """
        shielded(partial(self._start, listening), "workbench-start", self.core.end_start)

    def _start(self, listening: socket.socket | None) -> None:
        from workbench.http.infer import DataPlane  # litestar takes its time

        with self._life:
            self.core.parts.renew()
            plane = DataPlane(self.core)
            http = http_listener(self.settings, self.token, plane)
            others = grpc_listeners(self.core, self.settings, self.token)
            self.logs.attach()
            atexit.register(self._stop)
            self._listeners = self._started = [http, *others]

            def listen() -> None:
                http.start(listening or listening_socket(self.settings, self.token))
                for other in others:
                    other.start()

            self.core.open(listen)
            self._listed = announce(http.url, self.token)
            self._started_s = time.monotonic()
            self.budget_nbytes = self.core.status.snapshot().budget_nbytes
            self.core.events.append(ServerStarted(http.url))

    def stop(self, timeout_s: float | None = None) -> None:
        """Stop, and free all memory; stopping twice does nothing.

        Running requests have *timeout_s* to finish, by default the setting *exit_timeout*. An
        interrupt ends them, and so does another call with less time.
        """
        # without the lock: an earlier stop may wait for requests, or a start for loads
        shielded(partial(self._drain, timeout_s), "workbench-stop")
        with self._changing:
            shielded(partial(self._stop, timeout_s), "workbench-stop", partial(self._drain, 0.0))

    def _stop(self, timeout_s: float | None = None) -> None:
        self._drain(timeout_s)
        with self._life:
            listeners, self._listeners = self._listeners, []
            if not listeners:
                return
            atexit.unregister(self._stop)
            self.core.drain()
            for listener in listeners:
                listener.stop()
            listed, self._listed = self._listed, None
            if listed is not None:
                withdraw(listed, self.token)
            self.core.close()
            self.core.events.append(ServerStopped())
            self.logs.detach()

    def _drain(self, timeout_s: float | None) -> None:
        timeout_s = self.settings.exit_timeout if timeout_s is None else timeout_s
        for listener in self._started:
            listener.drain(timeout_s)
        self.core.end_start()

    def restart(self, repository: Folders, **given: object) -> None:
        """Restart with changed settings, at the same address if they do not change it.

        Raises as the constructor and ``start`` do; then the server runs on as before.
        """
        with self._changing:
            self._restart(repository, **given)

    def _restart(self, repository: Folders, **given: object) -> None:
        changed = adapted(self.settings.changed(repository, **given))
        if changed.grpc_port == 0 == self.settings.grpc_port and self._listeners[1:]:
            changed = changed.changed(grpc_port=self.grpc_url.rpartition(":")[2])
        token = token_for(changed, self.made_token)
        core = ServerCore(changed, records=self.core.records)
        for model, function in self.core.status.functions().items():
            core.models.register(model, function)
        core.choose_devices()
        check_grpc_port(changed, {each.url.rpartition(":")[2] for each in self._listeners[1:]})
        kept = self._listeners[0].duplicate_socket() if self._listeners else None
        before = self.settings, self.core, self.token
        with closing(kept) if kept else nullcontext():
            stays = (changed.host, changed.port) == (self.settings.host, self.settings.port)
            listening = kept.dup() if kept and stays else listening_socket(changed, token)
            try:
                self._change(changed, core, token)
                self._start_shielded(listening)
            except BaseException:
                listening.close()
                self._change(*before)
                if kept:
                    self._start_shielded(kept.dup())
                raise

    def _change(self, settings: Settings, core: ServerCore, token: str) -> None:
        """Stop the server, if it runs, and take over *settings*, *core* and *token*."""
        self.core.hand_over(core)
        try:
            self.stop()
        finally:  # after an interrupt too, it has stopped
            self.settings, self.core, self.token = settings, core, token

    def adjust(self, **given: Any) -> None:
        """Change *budget*, *evict* or *keep_alive*, also while the server runs.

        Raises ``SettingError``.
        """
        shielded(partial(self._adjust, given), "workbench-adjust")

    def _adjust(self, given: dict[str, Any]) -> None:
        with self._life:
            changed = self.settings.changed(**given)
            self.core.adjust(changed)
            self.settings = changed
            self.budget_nbytes = self.core.budget_nbytes or self.budget_nbytes
            if self.is_running:
                self.budget_nbytes = self.core.status.snapshot().budget_nbytes

    @property
    def is_running(self) -> bool:
        """True if all listeners answer."""
        listeners = self._listeners
        running = bool(listeners) and all(listener.is_running for listener in listeners)
        return running and self.core.is_open

    @property
    def uptime_s(self) -> float:
        """Seconds since the start; 0.0 while it does not run."""
        return time.monotonic() - self._started_s if self.is_running else 0.0

    @property
    def url(self) -> str:
        """The address of HTTP. Raises ``ServerNotRunning``."""
        for listener in self._listeners:
            return listener.url
        raise ServerNotRunning("the workbench is not running: start() it")

    @property
    def grpc_url(self) -> str:
        """The address of gRPC. Raises ``ServerNotRunning``."""
        for url in self.grpc_urls:
            return url
        raise ServerNotRunning(
            "there is no gRPC: start() the workbench with grpc_port=0, or another port"
        )

    @property
    def grpc_urls(self) -> tuple[str, ...]:
        """All addresses of gRPC; none while it does not run."""
        return tuple(listener.url for listener in self._listeners[1:])

    @property
    def made_token(self) -> str:
        """The token, unless it is the user's own."""
        return self.token if self.settings.token in (None, AUTO) else ""

    def forget_in_child(self) -> None:
        """After a fork, in the child: release what the parent still uses."""
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener.forget_in_child()
        self.core.forget_in_child()


def _forget_all_in_child() -> None:
    for serving in list(_everywhere):
        serving.forget_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all_in_child)
