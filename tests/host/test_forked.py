"""What a forked child keeps of its parent's connections; here the child is this very process."""

import os
import socket
from pathlib import Path

import pytest

from workbench.host.forked import release_connections


def is_socket(one: socket.socket) -> bool:
    return str(Path(f"/proc/self/fd/{one.fileno()}").readlink()).startswith("socket:")


pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="reads /proc")


def test_only_what_was_accepted_is_released(tmp_path: Path) -> None:
    """Connections to the port are let go; clients', other servers' and what listens are not."""
    ours, other = (socket.create_server(("127.0.0.1", 0)) for _ in range(2))
    clients = [socket.create_connection(one.getsockname()) for one in (ours, other)]
    (accepted, _), (foreign, _) = ours.accept(), other.accept()
    opened = os.listdir("/dev/fd")  # noqa: PTH208  # no paths
    release_connections(ours)
    assert os.listdir("/dev/fd") == opened  # noqa: PTH208
    assert not is_socket(accepted)
    assert all(is_socket(one) for one in (ours, other, foreign, *clients))
    assert clients[0].recv(1) == b"", "nobody else had it, so the client hears of it"
    for one in (ours, other, accepted, foreign, *clients):
        one.close()


def test_a_server_that_listens_on_all_addresses() -> None:
    """Its connections are at the address by which each client reached it."""

    class Everywhere:
        def getsockname(self) -> tuple[str, int]:
            return ("0.0.0.0", here.getsockname()[1])  # nothing listens there

    with socket.create_server(("127.0.0.1", 0)) as here:
        client = socket.create_connection(here.getsockname())
        accepted, _ = here.accept()
        release_connections(Everywhere())  # type: ignore[arg-type]
        assert not is_socket(accepted)
        for one in (client, accepted):
            one.close()


def test_a_unix_socket(tmp_path: Path) -> None:
    """So are those at the path of a Unix socket."""
    with (
        socket.socket(socket.AF_UNIX) as listening,
        socket.socket(socket.AF_UNIX) as client,
        socket.socket(socket.AF_UNIX) as unbound,
    ):
        listening.bind(str(tmp_path / "s"))
        listening.listen()
        client.connect(str(tmp_path / "s"))
        accepted, _ = listening.accept()
        release_connections(listening)
        assert not is_socket(accepted)
        assert all(is_socket(one) for one in (listening, client, unbound))
        accepted.close()


def test_where_the_system_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a list of open files nothing is released, and nothing fails."""

    def fail(_: str) -> list[str]:
        raise FileNotFoundError

    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = socket.create_connection(listening.getsockname())
        accepted, _ = listening.accept()
        monkeypatch.setattr(os, "listdir", fail)
        release_connections(listening)
        monkeypatch.undo()
        assert is_socket(accepted)
        for one in (client, accepted):
            one.close()
