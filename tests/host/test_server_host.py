"""The background thread and its sockets."""

import asyncio
import contextlib
import errno
import http.client
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from workbench.errors import PortInUse, ServerNotRunning, SettingError
from workbench.host.logs import LogRing
from workbench.host.server import ServerHost, _UvicornServer
from workbench.host.sockets import listen


async def hello(scope: Any, receive: Any, send: Any) -> None:
    """Answer every request with the path."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": scope["path"].encode()})


@contextmanager
def running(application: Any = hello, address: str = "127.0.0.1") -> Iterator[ServerHost]:
    host = ServerHost(application, address, 0)
    host.start()
    yield host
    host.stop()


@pytest.fixture
def host() -> Iterator[ServerHost]:
    with running() as host:
        yield host


def connected(url: str) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)


def get(url: str) -> bytes:
    with closing(connected(url)) as connection:
        connection.request("GET", "/x")
        return connection.getresponse().read()


def test_answers_once_start_returns(host: ServerHost) -> None:
    """When start returns, requests are answered at url."""
    assert get(host.url) == b"/x"


def test_an_interrupt_does_not_end_it(host: ServerHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it runs is asked without ``is_alive``, which an interrupt makes false for good."""

    def interrupted(_: threading.Thread) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "is_alive", interrupted)
        assert host.is_running
    host.stop()
    assert not host.is_running


def test_stop_frees_the_port(host: ServerHost) -> None:
    """After stop, the port can be taken again at once, and the url is no more."""
    port = int(host.url.rpartition(":")[2])
    host.stop()
    listen("127.0.0.1", port).close()
    with pytest.raises(ServerNotRunning):
        _ = host.url


def test_stops_with_a_client_that_just_came(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A connection that is accepted in the very moment of the stop is closed like the others."""
    connected: list[socket.socket] = []
    main_loop = _UvicornServer.main_loop

    async def and_one_more(server: _UvicornServer) -> None:
        await main_loop(server)
        connected.append(socket.create_connection(listening.getsockname()))
        await asyncio.sleep(0)  # accepted, but its protocol does not know yet

    monkeypatch.setattr(_UvicornServer, "main_loop", and_one_more)
    listening = listen("127.0.0.1", 0)
    host = ServerHost(hello, "127.0.0.1", 0)
    host.start(listening)
    host.stop()
    [client] = connected
    with client:
        client.settimeout(30)
        assert client.recv(1) == b""
    assert not caplog.records


def http_threads() -> set[threading.Thread]:
    """Those of all servers: other threads of earlier tests come and go."""
    return {each for each in threading.enumerate() if each.name == "workbench-http"}


def test_stops_with_an_idle_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that keeps its connection open does not keep the server from stopping."""
    monkeypatch.setattr("workbench.host.server._STOP_S", 30.0)
    before = http_threads()
    with running() as host, closing(connected(host.url)) as connection:
        [own] = http_threads() - before
        connection.request("GET", "/x")
        connection.getresponse().read()
        host.stop()
        assert not own.is_alive()


def test_stop_waits_for_no_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop does not wait until uvicorn looks again whether it should end."""

    async def tick(server: uvicorn.Server, counter: int) -> bool:
        await asyncio.get_running_loop().create_future()
        return False

    monkeypatch.setattr(uvicorn.Server, "on_tick", tick)
    monkeypatch.setattr("workbench.host.server._STOP_S", 30.0)
    before = http_threads()
    with running():
        pass
    assert http_threads() <= before


def test_starts_again_after_a_stop(host: ServerHost) -> None:
    """A stopped host can be started again; a second stop does nothing."""
    host.stop()
    host.stop()
    host.start()
    assert get(host.url) == b"/x"


def test_runs_in_a_thread_of_its_own() -> None:
    """The server has a daemon thread, and the main thread's signal handlers are untouched."""
    before = http_threads()
    with running():
        (thread,) = http_threads() - before
    assert thread.daemon
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_listening_sockets_are_without_delay() -> None:
    """The socket says IPPROTO_TCP, without which asyncio leaves Nagle's algorithm on."""
    listening = listen("127.0.0.1", 0)
    assert listening.proto == socket.IPPROTO_TCP
    listening.close()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs Linux's /proc")
def test_accepted_sockets_have_nodelay() -> None:
    """A connection that the server accepted has TCP_NODELAY set."""
    seen: list[int] = []

    def look_at(fd: int) -> None:
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fd)) as accepted:
            if accepted.getsockname()[1:2] == (port,) and accepted.getpeername():
                seen.append(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    def look_at_all() -> None:
        for entry in list(Path("/proc/self/fd").iterdir()):
            look_at(int(entry.name))

    async def look(scope: Any, receive: Any, send: Any) -> None:
        look_at_all()
        await hello(scope, receive, send)

    with running(look) as host:
        port = int(host.url.rpartition(":")[2])
        get(host.url)
    assert 1 in seen


def test_busy_port_is_an_error_of_the_caller() -> None:
    """A port in use is said in the caller's thread, with who has it."""
    taken = listen("127.0.0.1", 0)
    port = taken.getsockname()[1]
    with pytest.raises(PortInUse, match=rf"port {port} is taken by this very process: choose"):
        ServerHost(hello, "127.0.0.1", port).start()
    taken.close()


def test_busy_port_names_the_other_process() -> None:
    """A port that another process has is said with its number and name."""
    code = (
        "import socket, sys\n"
        "s = socket.create_server(('127.0.0.1', 0))\n"
        "print(s.getsockname()[1], flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        port = int(other.stdout.readline())
        with pytest.raises(PortInUse, match=rf"port {port} is taken by process {other.pid} \("):
            listen("127.0.0.1", port)
        other.communicate()


def test_foreign_address() -> None:
    """An address that is not this machine's, or none at all, is a setting's error."""
    with pytest.raises(SettingError, match="cannot be listened on"):
        listen("192.0.2.1", 0)
    with pytest.raises(SettingError, match="is not an address"):
        listen("no such host.invalid", 0)


def test_a_port_that_needs_rights(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port that only the administrator may have is a setting's error, which says so."""

    class Refused(socket.socket):
        def bind(self, address: Any) -> None:
            raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(socket, "socket", Refused)
    with pytest.raises(SettingError, match="port 80 needs rights that this process lacks"):
        listen("127.0.0.1", 80)


@pytest.mark.skipif(not socket.has_ipv6, reason="this machine has no IPv6")
def test_ipv6() -> None:
    """An IPv6 address is listened on, and its url has brackets."""
    try:
        with running(address="::1") as host:
            assert host.url.startswith("http://[::1]:")
    except SettingError as error:
        pytest.skip(str(error))


def test_switch_interval_is_short_while_any_server_runs() -> None:
    """The first start shortens the interpreter's switch interval, the last stop restores it."""
    before_s = sys.getswitchinterval()
    first, second = (ServerHost(hello, "127.0.0.1", 0) for _ in range(2))
    first.start()
    second.start()
    first.stop()
    assert sys.getswitchinterval() == pytest.approx(0.0005)
    second.stop()
    assert sys.getswitchinterval() == before_s


@contextmanager
def forgetful_child(host: ServerHost) -> Iterator[None]:
    """Meanwhile there is a forked child, which has forgotten the server."""
    forgotten, alive = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover
        os.close(alive[1])
        host.forget_in_child()
        os.write(forgotten[1], b"x")
        os.read(alive[0], 1)
        os._exit(0)
    os.read(forgotten[0], 1)
    yield
    for fd in (*forgotten, *alive):
        os.close(fd)
    os.waitpid(child, 0)


def test_child_of_a_fork_does_not_keep_the_port(host: ServerHost) -> None:
    """A forked child that forgets the server has no hold on the port."""
    port = int(host.url.rpartition(":")[2])
    with forgetful_child(host):
        host.stop()
        listen("127.0.0.1", port).close()


def test_child_of_a_fork_does_not_keep_connections(host: ServerHost) -> None:
    """A client hears that the server closed its connection, though a forked child lives on.

    The child ends none of them: the server goes on answering on those that were open.
    """
    connection = connected(host.url)

    def ask() -> bytes:
        connection.request("GET", "/x")
        return connection.getresponse().read()

    assert ask() == b"/x"
    with forgetful_child(host):
        opened = connection.sock
        assert ask() == b"/x"
        assert connection.sock is opened, "it was asked on another connection"
        host.stop()
        assert opened.recv(1) == b""
        connection.close()


def test_nothing_is_printed(host: ServerHost, capfd: pytest.CaptureFixture[str]) -> None:
    """Starting, serving and stopping write nothing to the cell."""
    get(host.url)
    host.stop()
    assert capfd.readouterr() == ("", "")


def test_nothing_is_printed_of_a_client_that_does_not_read(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A reply that its client does not take ends with the server, and nobody is told."""
    begun = threading.Event()

    async def large(_: Any, __: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        begun.set()
        await send({"type": "http.response.body", "body": bytes(2**26)})

    with running(large) as host, closing(connected(host.url)) as connection:
        connection.request("GET", "/x")
        assert begun.wait(30)
        host.stop()
    assert capfd.readouterr() == ("", "")


def test_log_ring_keeps_the_last_records() -> None:
    """What the server's loggers say while the ring is attached is kept, up to its capacity."""
    ring = LogRing(capacity=2)
    ring.attach()
    for text in ("one", "two", "three"):
        logging.getLogger("workbench").warning(text)
    ring.detach()
    assert [line.rpartition(" ")[2] for line in ring.text().splitlines()] == ["two", "three"]
