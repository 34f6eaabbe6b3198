"""Keepalive pings, in frames of HTTP/2 of our own: clients cannot be told to send them at once."""

import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from workbench import Workbench

_HEAD = struct.Struct(">HBBBI")  # the length in two fields, the type, flags, and the stream
_SETTINGS, _PING, _GOAWAY = 4, 6, 7
_MANY = 20


def frame(kind: int, payload: bytes = b"") -> bytes:
    return _HEAD.pack(0, len(payload), kind, 0, 0) + payload


def frames(connection: socket.socket) -> Iterator[tuple[int, bytes]]:
    """The type and payload of each frame that comes, until the connection is closed."""
    with connection.makefile("rb") as file:
        while head := file.read(_HEAD.size):
            high, low, kind, _, _ = _HEAD.unpack(head)
            yield kind, file.read(high << 8 | low)


def pinged(connection: socket.socket) -> tuple[int, bytes]:
    """How many pings, one after the other, are answered; what the connection ends with, if so."""
    connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(_SETTINGS))
    received = frames(connection)
    for number in range(_MANY):
        connection.sendall(frame(_PING, bytes(8)))
        ends = [payload for kind, payload in answer(received) if kind == _GOAWAY]
        if ends:
            return number, ends[0]
    return _MANY, b""


def answer(received: Iterator[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """The frames up to the answer to a ping, or to the end."""
    for kind, payload in received:
        yield kind, payload
        if kind in (_PING, _GOAWAY):
            return


@pytest.fixture
def answered_of(tmp_path: Path) -> Callable[..., tuple[int, bytes]]:
    """What becomes of pings without a call, by a server's settings."""

    def answered(**settings: object) -> tuple[int, bytes]:
        with Workbench(tmp_path, device="cpu", **{"grpc_port": 0, **settings}) as workbench:
            if workbench.grpc_url.startswith("unix:"):
                connection = socket.socket(socket.AF_UNIX)
                connection.connect(workbench.grpc_url.removeprefix("unix:"))
            else:
                host, _, port = workbench.grpc_url.rpartition(":")
                connection = socket.create_connection((host, int(port)))
            with connection:
                connection.settimeout(30)
                return pinged(connection)

    return answered


def test_pings_are_allowed_on_this_machine(
    answered_of: Callable[..., tuple[int, bytes]], tmp_path: Path
) -> None:
    """A client on this machine may ping as often as it likes, also while it makes no call."""
    assert answered_of() == (_MANY, b"")
    assert answered_of(grpc_port=f"unix:{tmp_path}/s") == (_MANY, b"")


def test_the_least_time_between_pings(answered_of: Callable[..., tuple[int, bytes]]) -> None:
    """A connection with more pings than the setting allows is closed, in gRPC's words."""
    for span in ("1h", "366d"):
        answers, end = answered_of(grpc_ping=span)
        assert (answers < _MANY, b"too_many_pings" in end) == (True, True)


def test_pings_of_other_machines(
    answered_of: Callable[..., tuple[int, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where other machines can connect, gRPC's own limit holds unless the setting tells it."""
    monkeypatch.setattr("workbench.grpc.is_local", lambda host: False)
    assert answered_of()[0] < _MANY
    assert answered_of(grpc_ping="0.000001ms") == (_MANY, b"")
