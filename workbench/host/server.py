"""One server on a background thread: it starts, answers, and stops."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn

from workbench.errors import ServerNotRunning
from workbench.host.connection import protocol_class
from workbench.host.forked import release_connections
from workbench.host.sockets import listen
from workbench.socket_files import remove_own
from workbench.tokens import UNIX

if TYPE_CHECKING:
    from workbench.http.short_cut import ShortCut  # importing litestar is slow

App = Callable[..., Awaitable[None]]  # ASGI's scope, receive, send

_log = logging.getLogger("workbench")

_START_S = 10.0
_STOP_S = 2.0  # for the end of the thread after that of the last request
_PAUSE_S = 0.005

# How long an idle connection stays open. After uvicorn's 5 s, a client that asks every 5 s loses
# one request in a hundred: it is sent while the connection closes. Load balancers reuse theirs for
# up to 60 s.
_KEPT_S = 65

# With the default of 5 ms a busy cell makes every request wait that long, more
# than once; with this one the cell loses about a sixth of its speed instead.
_SWITCH_INTERVAL_S = 0.0005


class SwitchInterval:
    """Python's thread switch interval, short while any server of the process runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._before_s = 0.0

    def shorten(self) -> None:
        """Count one more running server."""
        with self._lock:
            if not self._users:
                self._before_s = sys.getswitchinterval()
                sys.setswitchinterval(min(self._before_s, _SWITCH_INTERVAL_S))
            self._users += 1

    def restore(self) -> None:
        """Count one server less; after the last one restore the earlier interval."""
        with self._lock:
            self._users -= 1
            if not self._users:
                sys.setswitchinterval(self._before_s)


_switch_interval = SwitchInterval()  # the setting is the interpreter's, so the count is too


class _UvicornServer(uvicorn.Server):
    """A uvicorn server that reports when it answers, and ends as soon as nothing runs.

    uvicorn's own looks for the wish to end every 0.1 s, and then waits another 0.1 s.
    """

    def __init__(self, config: uvicorn.Config, answers: threading.Event) -> None:
        super().__init__(config)
        self._answers = answers
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ticks: asyncio.Task[None] | None = None
        self.until_s = math.inf  # of ``time.monotonic``: until then running requests may finish
        self.has_ended = False  # or its thread is about to

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._loop = asyncio.get_running_loop()
        self._answers.set()

    async def main_loop(self) -> None:
        self._ticks = asyncio.ensure_future(super().main_loop())
        await asyncio.wait([self._ticks])

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for each in sockets or ():
            each.close()
        await asyncio.sleep(0)  # whom the loop has just accepted becomes a connection in this time
        state = self.server_state
        for connection in list(state.connections):
            connection.shutdown()
        while state.connections or state.tasks:
            if time.monotonic() >= self.until_s:
                break
            await asyncio.sleep(_PAUSE_S)  # uvicorn has no event for it
        await self._abandon_unread()
        for task in state.tasks:
            task.cancel()

    async def _abandon_unread(self) -> None:
        """Close connections whose clients do not read.

        Their tasks wait to write: to cancel these would be logged as an error of the application.
        """
        connections: list[Any] = [*self.server_state.connections]  # of our own protocol
        unread = [each.transport for each in connections if each.flow.write_paused]
        if unread:
            for transport in unread:
                transport.abort()
            await asyncio.sleep(_PAUSE_S)  # their tasks end in this time

    def end(self) -> None:
        """End soon; for any thread."""
        self.should_exit = True
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended by itself
                self._loop.call_soon_threadsafe(self._end_ticks)

    def _end_ticks(self) -> None:
        if self._ticks is not None:
            self._ticks.cancel()


class ServerHost:
    """Serves an ASGI application from a thread and an event loop of its own.

    Requests that *short_cut* takes never reach the application. Signal handlers, the main thread's
    event loop and its policy are not changed.
    """

    def __init__(self, app: App, host: str, port: int, short_cut: ShortCut | None = None) -> None:
        self._app = app
        self._short_cut = short_cut
        self._address = (host, port)
        self._socket: socket.socket | None = None
        self._path = ""  # of a socket in the file system
        self._url = ""
        self._server: _UvicornServer | None = None
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    @property
    def url(self) -> str:
        """The server's address, such as ``http://127.0.0.1:8000``, or ``unix:`` and a path.

        Raises ``ServerNotRunning``.
        """
        if self._socket is None:
            raise ServerNotRunning("the server is not running: start it")
        return self._url

    @property
    def is_running(self) -> bool:
        """True if the server answers.

        Not by ``Thread.is_alive``: interrupted within that, Python takes the thread for ended.
        """
        server = self._server
        return server is not None and not server.has_ended

    def duplicate_socket(self) -> socket.socket | None:
        """A second descriptor of the socket it listens on, for its successor.

        While one descriptor is open, new connections wait instead of being refused. ``None`` if it
        listens no more.
        """
        listening = self._socket
        return listening.dup() if listening is not None and listening.fileno() >= 0 else None

    def start(self, listening: socket.socket | None = None) -> None:
        """Listen, on *listening* if it is given, and return once requests are answered.

        Raises ``PortInUse`` and ``SettingError`` as ``listen`` does.
        """
        self._error = None
        self._socket = listening or listen(*self._address)
        name = self._socket.getsockname()
        self._path = name if isinstance(name, str) else ""
        self._url = _url_of(name)
        answers = threading.Event()
        _switch_interval.shorten()
        self._server = _UvicornServer(_config(self._app, self._short_cut), answers)
        self._thread = threading.Thread(
            target=self._serve,
            args=(self._server, self._socket, answers),
            name="workbench-http",
            daemon=True,
        )
        self._thread.start()
        if not answers.wait(_START_S) or self._error is not None:
            error = self._error
            self.stop()
            raise ServerNotRunning(f"the server did not start: {error or 'it took too long'}")

    def drain(self, grace_s: float) -> None:
        """Take no new requests; those that run have *grace_s* to finish. Returns at once.

        Idle connections are closed, the others after their response. If it is called again, the
        shorter time counts.
        """
        server = self._server
        if server is not None:
            server.until_s = min(server.until_s, time.monotonic() + grace_s)
            server.end()

    def stop(self) -> None:
        """Wait until ``drain`` is over, and free the port; stopping twice does nothing.

        Without a call of ``drain`` before, running requests have no time to finish.
        """
        server = self._server
        if server is None:
            self._close_socket()
            return
        if math.isinf(server.until_s):
            self.drain(0.0)
        if self._thread is not None and self._thread.ident is not None:
            self._thread.join(max(0.0, server.until_s - time.monotonic()) + _STOP_S)
        self._server = None
        try:
            self._close_socket()
        finally:
            _switch_interval.restore()

    def forget_in_child(self) -> None:
        """After a fork: the child has the sockets but not the thread, and must not keep them.

        Otherwise the port stays taken, and clients do not notice that the server closed their
        connections: their next requests would wait forever.
        """
        self._server = None
        listening, self._socket = self._socket, None
        if listening is not None:
            release_connections(listening)
            # close() would wait for the loop, which the child has not
            os.close(listening.detach())

    def _serve(
        self, server: _UvicornServer, listening: socket.socket, answers: threading.Event
    ) -> None:
        try:
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                runner.run(server.serve(sockets=[listening]))
        except BaseException as error:  # ``start`` must get the error
            _log.exception("the server's thread ended")
            self._error = error
        finally:
            server.has_ended = True
            answers.set()

    def _close_socket(self) -> None:
        listening, self._socket = self._socket, None
        if listening is not None:
            listening.close()
            if self._path:
                remove_own(Path(self._path))


def _url_of(name: Any) -> str:
    """The address of a socket of that *name*."""
    if isinstance(name, str):
        return f"{UNIX}{name}"
    host, port = name[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"


def _config(app: App, short_cut: ShortCut | None) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=protocol_class(short_cut),  # type: ignore[arg-type]  # it calls whatever it is
        ws="none",
        lifespan="off",
        log_config=None,  # else it configures the kernel's logging and prints into a cell
        access_log=False,
        proxy_headers=False,
        timeout_keep_alive=_KEPT_S,
    )


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """The factory of the fastest event loop there is."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    factory: Callable[[], Any] = uvloop.new_event_loop
    return factory
