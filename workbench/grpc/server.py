"""A gRPC server on one address: it listens, answers from threads, and stops."""

from __future__ import annotations

import math
import os
import socket
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Lock
from typing import Any
from urllib.parse import quote

import grpc

from workbench.auth import Auth
from workbench.errors import (
    AccessDenied,
    PortInUse,
    ServerNotRunning,
    SettingError,
    ThreadsExhausted,
)
from workbench.grpc.service import Service, carries, refusing
from workbench.socket_files import remove_left_behind, remove_own
from workbench.threads import start_thread
from workbench.tokens import UNIX

_MOST_CALLS = 1024  # calls at once; each takes a thread, also while it waits
_FEW = 4  # threads that are always there
_PATIENCE_S = 0.02  # so long a call may wait for one of them
_STOP_S = 2.0  # for the end of the server after that of the last call
_PATH_NBYTES = 107  # of a socket's path, in the system
_INT32 = 2**31 - 1  # the most that an option of grpc holds
_PLAIN = "/ !$&'()*+:;=@[]"  # besides letters and digits, what addresses may have as it is


class _Router(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc is not typed
    """Finds the handler of a method, for calls that *auth* lets in."""

    def __init__(self, services: Iterable[Service], auth: Auth) -> None:
        self._auth = auth
        self._routes = {
            f"/{each.name}/{name}": (handler, each.groups.get(name, ""))
            for each in services
            for name, handler in each.methods.items()
        }

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """As grpc asks: the handler of a method, ``None`` if it is unknown."""
        handler, group = self._routes.get(details.method, (None, ""))
        carrying = partial(carries, details.invocation_metadata)
        try:
            self._auth.authorize(carrying, group)
        except AccessDenied as error:
            return refusing(error)
        return handler


class _Threads:
    """The threads of a server, as the executor that grpc asks for.

    A few, since many wait for each other's turn in the interpreter: with one for each of 16 clients
    a call takes a seventh more CPU time (benchmarks/grpc_rate.py). If calls wait for a thread, as
    those in the few wait for models, more are added for as long as there is work. grpc's own thread
    hands out the calls and must hear of no error, so one of ours starts the others.
    """

    def __init__(self) -> None:
        self._jobs: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._since_s: deque[float] = deque()  # when the jobs that wait were submitted
        self._count = 0
        self._lock = Lock()
        self._crowded = Event()
        self._closed = Event()

    def start(self) -> None:
        """Start those that are always there; ``close`` ends them. Raises ``ThreadsExhausted``."""
        self._add(_FEW)
        start_thread(self._watch, "workbench-grpc-watch")

    def submit(self, work: Callable[..., Any], *args: object) -> Future[Any]:
        future: Future[Any] = Future()
        self._since_s.append(time.monotonic())
        self._jobs.put((future, partial(work, *args)))
        if not self._crowded.is_set():
            self._crowded.set()
        return future

    def close(self) -> None:
        """End the threads once they are idle."""
        self._closed.set()
        self._crowded.set()
        for _ in range(_MOST_CALLS):
            self._jobs.put(None)

    def _add(self, count: int) -> None:
        for _ in range(min(count, _MOST_CALLS - self._count)):
            start_thread(self._work, f"workbench-grpc-{self._count + 1}")
            with self._lock:
                self._count += 1

    def _watch(self) -> None:
        """Add threads while the job that has waited longest waits too long."""
        while self._crowded.wait() and not self._closed.is_set():
            self._crowded.clear()
            while self._since_s and not self._closed.wait(_PATIENCE_S):
                with suppress(IndexError, ThreadsExhausted):  # it began, or the threads are enough
                    if time.monotonic() - self._since_s[0] > _PATIENCE_S:
                        self._add(min(self._jobs.qsize(), self._count))

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._since_s.popleft()
            future, work = job
            try:
                future.set_result(work())
            except BaseException as error:  # of grpc's own, which only wants to know that it ended
                future.set_exception(error)
            del future, work, job  # so that an idle thread keeps no tensors
            with self._lock:
                if self._count > _FEW and self._jobs.empty():
                    self._count -= 1
                    return


class GrpcServer:
    """Serves *services* at *host* and *port* (0: a free one), or at ``unix:PATH``.

    A message may have *max_nbytes*; *auth* says which calls are allowed. A connection on which
    several pings come less than *ping_s* after each other, without data in between, is closed.
    """

    def __init__(
        self,
        services: Iterable[Service],
        auth: Auth,
        host: str,
        port: int,
        max_nbytes: int,
        *,
        ping_s: float = 0.0,
    ) -> None:
        self._router = _Router(services, auth)
        self._host, self._port = host, port
        self._options = [
            ("grpc.so_reuseport", 0),  # otherwise two servers may share a port unintentionally
            ("grpc.max_receive_message_length", max_nbytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.http2.min_ping_interval_without_data_ms", min(round(ping_s * 1e3), _INT32)),
            ("grpc.keepalive_permit_without_calls", 1),  # else a ping in two hours, between calls
        ]
        self._server: grpc.Server | None = None
        self._threads: _Threads | None = None
        self._url = ""
        self._path: Path | None = None  # of its socket in the file system
        self._until_s = math.inf  # of ``time.monotonic``: until then running calls may finish

    @property
    def url(self) -> str:
        """The server's address as clients take it: ``127.0.0.1:8001``, or ``unix:`` and a path.

        Raises ``ServerNotRunning``.
        """
        if self._server is None:
            raise ServerNotRunning("the gRPC server is not running: start it")
        return self._url

    @property
    def is_running(self) -> bool:
        return self._server is not None

    def duplicate_socket(self) -> None:
        """Always ``None``: grpc does not give its socket away."""

    def start(self) -> None:
        """Listen, and return once calls are answered.

        Raises ``PortInUse``, and ``SettingError`` for an address that cannot be listened on.
        """
        self._threads = _Threads()
        try:
            self._threads.start()
            server = grpc.server(
                self._threads, options=self._options, maximum_concurrent_rpcs=_MOST_CALLS
            )
            server.add_generic_rpc_handlers((self._router,))
            if self._host.startswith(UNIX):
                self._path = Path(self._host.removeprefix(UNIX)).expanduser().absolute()
                self._url = _listen_at(server, self._path)
            else:
                self._url = _listen(server, self._host, self._port)
            server.start()
        except BaseException:
            self._threads.close()
            raise
        self._server = server

    def drain(self, grace_s: float) -> None:
        """As ``ServerHost.drain``: new calls get UNAVAILABLE."""
        server = self._server
        if server is not None:
            self._until_s = min(self._until_s, time.monotonic() + grace_s)
            server.stop(grace_s)

    def stop(self) -> None:
        """As ``ServerHost.stop``."""
        server = self._server
        if server is None or self._threads is None:
            return
        if math.isinf(self._until_s):
            self.drain(0.0)
        left_s = max(0.0, self._until_s - time.monotonic())
        server.wait_for_termination(left_s + _STOP_S)
        self._server = None
        self._threads.close()
        if self._path is not None:
            remove_own(self._path)

    def forget_in_child(self) -> None:
        """After a fork: the child has neither the threads nor the right to end the calls."""
        self._server = None


def _listen(server: grpc.Server, host: str, port: int) -> str:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise SettingError(f"host={host!r} is not an address: {error}") from None
    address = str(found[0][4][0])
    shown = f"[{address}]" if ":" in address else address
    try:
        with socket.socket(found[0][0]) as probe:  # since grpc prints what it cannot have
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(found[0][4])
        bound = server.add_insecure_port(f"{shown}:{port}")
    except (OSError, RuntimeError):
        raise PortInUse(
            f"gRPC cannot listen on port {port} of {address}: another program has it, or this one "
            "may not; choose another grpc_port, or 0 for a free one"
        ) from None
    here = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(shown, shown)
    return f"{here}:{bound}"


def _listen_at(server: grpc.Server, path: Path) -> str:
    """Listen on a socket that only this user can open; one that a server left behind is removed.

    It is made in a folder of this user's, and moved once no one else can open it.
    """
    try:
        if "," in str(path):
            raise ValueError("clients take no path with ','")
        remove_left_behind(path)
        if path.exists():
            raise ValueError("it is another file")
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".") as private:
            made = f"{private}/s"
            if max(len(os.fsencode(each)) for each in (path, made)) > _PATH_NBYTES:
                raise ValueError("the path is too long")
            server.add_insecure_port(_address(made))
            os.chmod(made, 0o600)  # noqa: PTH101
            Path(made).rename(path)
    except (OSError, RuntimeError, ValueError) as error:
        raise SettingError(f"gRPC cannot listen on '{UNIX}{path}': {error}") from None
    return _address(path)


def _address(path: str | Path) -> str:
    """The address of the socket at *path*: '%', '?' and '#', special to gRPC, are quoted."""
    return UNIX + quote(os.fsencode(path), _PLAIN)
