"""Calls that end early, or are not let in: what they waited for is given back."""

import os
import socket
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Event
from typing import Any

import grpc
import pytest
from click.testing import CliRunner
from grpc_calls import NAME, Caller, asked, message
from inside import until

from doubles import FakeLoader, fake_core
from workbench import Workbench
from workbench.auth import Auth
from workbench.commands.cli import main
from workbench.errors import PortInUse, ServerNotRunning, SettingError, ThreadsExhausted
from workbench.grpc.server import _FEW, GrpcServer, _Threads
from workbench.grpc.v2 import V2

CANCELLED, LATE = grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED


class Rig:
    """A server of files *a* and *b*, of which the load of *b* waits for its gate."""

    def __init__(self, root: Path) -> None:
        self.gate = threading.Event()
        self.others = set(threading.enumerate())
        loader = FakeLoader({"a": 60, "b": 60}, gates={"b": self.gate})
        self.core = fake_core(root / "models", loader)
        auth = Auth("", {})
        self.server = GrpcServer(
            [V2(self.core, functions=True).service()], auth, "127.0.0.1", 0, 2**20
        )

    def threads(self) -> set[threading.Thread]:
        """Those that answer this server's calls."""
        new = set(threading.enumerate()) - self.others
        return {thread for thread in new if thread.name.startswith("workbench-grpc")}

    @property
    def pending(self) -> int:
        return self.core.status.of("b").pending

    @property
    def leases(self) -> int:
        return sum(model.leases for model in self.core.status.snapshot().models)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    with ExitStack() as stack:
        stack.callback(rig.core.close)
        stack.callback(rig.server.stop)
        stack.callback(rig.gate.set)
        rig.core.open()
        rig.server.start()
        yield rig


@pytest.fixture
def channel(rig: Rig) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(rig.server.url) as channel:
        yield channel


def test_a_call_that_is_cancelled(rig: Rig, channel: grpc.Channel) -> None:
    """A call that its client cancels waits no longer, and frees its thread."""
    call = channel.unary_unary(f"/{NAME}/ModelInfer").future(asked("b"))
    until(lambda: rig.pending == 1)
    call.cancel()
    until(lambda: rig.pending == 0)
    assert call.code() is CANCELLED
    assert rig.leases == 0


def test_a_call_that_is_late(rig: Rig, channel: grpc.Channel) -> None:
    """A call whose deadline passes waits no longer."""
    with pytest.raises(grpc.RpcError) as raised:
        channel.unary_unary(f"/{NAME}/ModelInfer")(asked("b"), timeout=0.2)
    assert raised.value.code() is LATE
    until(lambda: rig.pending == 0)
    assert rig.leases == 0


def test_a_stream_whose_client_goes(rig: Rig, channel: grpc.Channel) -> None:
    """A client that opens a stream and goes away leaves nothing behind; nor do its requests."""
    answered, never = threading.Event(), threading.Event()

    def requests() -> Iterator[bytes]:
        yield asked("a")
        answered.wait(30)
        yield asked("b")
        yield asked("b")
        never.wait(30)

    stream = channel.stream_stream(f"/{NAME}/ModelStreamInfer")(requests())
    assert b"y" in next(stream)
    answered.set()
    until(lambda: rig.pending == 2)
    stream.cancel()
    until(lambda: rig.pending == 0)
    until(lambda: not any("stream" in thread.name for thread in rig.threads()))
    never.set()
    assert rig.leases == 0


def test_a_stream_for_which_there_is_no_thread(
    rig: Rig, channel: grpc.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream that no thread can read is UNAVAILABLE: another server may have one."""

    def refuse(*_: object) -> None:
        raise ThreadsExhausted("there are too many threads")

    monkeypatch.setattr("workbench.grpc.stream.start_thread", refuse)
    with pytest.raises(grpc.RpcError) as raised:
        next(channel.stream_stream(f"/{NAME}/ModelStreamInfer")(iter([asked("a")]), timeout=30))
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE


def test_a_server_that_stops_ends_its_calls(rig: Rig, channel: grpc.Channel) -> None:
    """A server that stops ends calls that wait, and its threads."""
    call = channel.unary_unary(f"/{NAME}/ModelInfer").future(asked("b"))
    until(lambda: rig.pending == 1)
    rig.server.stop()
    assert call.code() in (CANCELLED, grpc.StatusCode.UNAVAILABLE)
    until(lambda: not rig.threads())
    rig.server.stop()  # which is fine


def test_threads_for_many_calls_end_with_them(rig: Rig, channel: grpc.Channel) -> None:
    """Calls that wait get threads of their own; these end with the calls, or with later ones."""
    count, infer = 3 * _FEW, channel.unary_unary(f"/{NAME}/ModelInfer")
    calls = [infer.future(asked("b")) for _ in range(count)]
    until(lambda: rig.pending == count)
    assert len(rig.threads()) > count
    rig.gate.set()
    assert all(call.result(30) for call in calls)
    # the one that starts the others is left too
    until(lambda: bool(infer(asked("b"), timeout=30)) and len(rig.threads()) == _FEW + 1)


def test_an_idle_thread_keeps_nothing() -> None:
    """What a call was given is freed once it is answered, also if no other call follows."""
    given = Event()
    kept, threads = weakref.ref(given), _Threads()
    threads.start()
    threads.submit(Event.set, given).result(30)
    del given
    until(lambda: kept() is None)
    threads.close()


def test_a_core_that_is_closed(rig: Rig, channel: grpc.Channel) -> None:
    """Before the core is open and after it is closed, calls are UNAVAILABLE."""
    rig.core.close()
    with pytest.raises(grpc.RpcError) as raised:
        channel.unary_unary(f"/{NAME}/ModelInfer")(asked("a"))
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE


# ── who is let in ──

TOKEN = "a-token-of-ones-own"


def bearer(token: str) -> dict[str, Any]:
    return {"metadata": (("authorization", f"Bearer {token}"),)}


def test_the_token(caller_of: Callable[[Workbench], Caller]) -> None:
    """The server's token is asked for in the metadata, for every method, also unknown ones."""
    live = message("ServerLiveRequest")
    with Workbench(token=TOKEN, grpc_port=0) as workbench:
        call = caller_of(workbench)
        for options in ({}, bearer("another-token-of-ones-own"), {"metadata": (("token", TOKEN),)}):
            code, details = call.refused("ServerLive", live, **options)
            assert code is grpc.StatusCode.UNAUTHENTICATED
            assert TOKEN not in details
        assert call("ServerLive", live, **bearer(TOKEN)).live
        two = bearer(TOKEN)["metadata"] * 2
        code, _ = call.refused("ServerLive", live, metadata=two)
        assert code is grpc.StatusCode.UNAUTHENTICATED
        stream = call.channel.stream_stream(f"/{NAME}/ModelStreamInfer")(iter(()))
        with pytest.raises(grpc.RpcError) as raised:
            next(stream)
        assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_closed_groups(caller_of: Callable[[Workbench], Caller]) -> None:
    """A group that the settings close is closed over gRPC too."""
    with Workbench(restrict="model-repository,functions", grpc_port=0) as workbench:
        workbench.register(
            lambda x: x, name="f", inputs={"x": ("FP32", [-1])}, outputs={"y": ("FP32", [-1])}
        )
        call = caller_of(workbench)
        denied = grpc.StatusCode.PERMISSION_DENIED
        assert call.refused("RepositoryIndex", message("RepositoryIndexRequest"))[0] is denied
        for _ in range(2):
            assert call.refused("ModelInfer", asked("f"))[0] is denied


def test_strangers_learn_of_no_closed_group(caller_of: Callable[[Workbench], Caller]) -> None:
    """Who has no token is told that one is needed, not which groups are closed."""
    with Workbench(token=TOKEN, restrict={"model-repository": "off"}, grpc_port=0) as workbench:
        call, index = caller_of(workbench), message("RepositoryIndexRequest")
        assert call.refused("RepositoryIndex", index)[0] is grpc.StatusCode.UNAUTHENTICATED
        code, _ = call.refused("RepositoryIndex", index, **bearer(TOKEN))
        assert code is grpc.StatusCode.PERMISSION_DENIED


def test_a_socket_in_the_file_system(tmp_path: Path) -> None:
    """A socket is for this user alone, whoever has the token, and leaves no file behind."""
    path = tmp_path / "g.sock"
    with Workbench(token=TOKEN, grpc_port=f"unix:{path}") as workbench:
        assert workbench.grpc_url == f"unix:{path}"
        assert path.stat().st_mode & 0o777 == 0o600
        assert [each.name for each in tmp_path.iterdir()] == ["g.sock"]
        with grpc.insecure_channel(workbench.grpc_url) as channel:
            data = message("ServerLiveRequest").SerializeToString()
            assert channel.unary_unary(f"/{NAME}/ServerLive")(data) == b"\x08\x01"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["C# project", "50%41", "a?", "é", os.fsdecode(b"\xff")])
def test_a_socket_in_a_folder_of_any_name(tmp_path: Path, name: str) -> None:
    """``grpc_url`` is what clients take, also where characters of the path mean something else."""
    folder = tmp_path / name
    folder.mkdir()
    with (
        Workbench(grpc_port=f"unix:{folder}/s") as workbench,
        grpc.insecure_channel(workbench.grpc_url) as channel,
    ):
        data = message("ServerLiveRequest").SerializeToString()
        assert channel.unary_unary(f"/{NAME}/ServerLive")(data, timeout=30) == b"\x08\x01"
    assert not list(folder.iterdir())


@pytest.mark.parametrize(
    ("folder", "name", "told"),
    [
        ("d", "n" * 110, "too long"),
        ("d" * 100, "n", "too long"),
        ("a,b", "n", "','"),
        (None, "n", "too long"),
    ],
)
def test_a_socket_that_no_client_could_open(
    tmp_path: Path, folder: str | None, name: str, told: str
) -> None:
    """It is refused at the start, also where only the path at which it is made is too long."""
    folder = folder or "d" * (105 - len(f"{tmp_path}//{name}"))
    (tmp_path / folder).mkdir()
    workbench = Workbench(grpc_port=f"unix:{tmp_path}/{folder}/{name}")
    with pytest.raises(SettingError, match=told):
        workbench.start()
    assert not list((tmp_path / folder).iterdir())


# ── the address ──


def test_a_port_that_is_taken(capfd: pytest.CaptureFixture[str]) -> None:
    """A port of another server is an error at the start, without a word of grpc's own."""
    with Workbench(grpc_port=0) as first:
        port = first.grpc_url.rpartition(":")[2]
        second = Workbench(grpc_port=port)
        with pytest.raises(PortInUse, match=port):
            second.start()
        assert not second.is_running
        with socket.socket() as other:  # of any program that shares its ports
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            with pytest.raises(OSError, match="in use"):
                other.bind(("127.0.0.1", int(port)))
        assert capfd.readouterr().err == ""


def test_a_socket_that_is_taken(tmp_path: Path) -> None:
    """A path where a server listens is refused; one that a server left behind is taken over."""
    path = tmp_path / "g.sock"
    with Workbench(grpc_port=f"unix:{path}"), pytest.raises(PortInUse, match=r"g\.sock"):
        Workbench(grpc_port=f"unix:{path}").start()
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(path))
    left.close()
    with Workbench(grpc_port=f"unix:{path}") as workbench:
        assert workbench.is_running
    path.write_text("mine")
    with pytest.raises(SettingError, match="another file"):
        Workbench(grpc_port=f"unix:{path}").start()
    assert path.read_text() == "mine"


def test_a_socket_of_another_server_stays(tmp_path: Path) -> None:
    """A server that stops removes its own socket only; what is there instead may be anything."""
    path = tmp_path / "g.sock"
    first = Workbench(grpc_port=f"unix:{path}").start()
    path.unlink()
    with Workbench(grpc_port=f"unix:{path}"):
        first.stop()
        assert path.is_socket()
    second = Workbench(grpc_port=f"unix:{path}").start()
    path.unlink()
    path.mkdir()
    second.stop()
    assert not second._core.is_open
    assert path.is_dir()


def test_a_start_that_fails_leaves_no_threads(tmp_path: Path) -> None:
    """The threads for calls end with a start whose address is taken."""
    path = tmp_path / "g.sock"
    path.mkdir()
    before = set(threading.enumerate())
    with pytest.raises(SettingError, match="it is another file"):
        Workbench(grpc_port=f"unix:{path}").start()
    until(lambda: not any("grpc" in each.name for each in set(threading.enumerate()) - before))


def test_a_restart_keeps_the_port(caller_of: Callable[[Workbench], Caller]) -> None:
    """After a restart gRPC answers where it answered before."""
    with Workbench(grpc_port=0) as workbench:
        before = workbench.grpc_url
        workbench.restart(budget="64MiB")
        assert workbench.grpc_url == before
        assert caller_of(workbench)("ServerLive", message("ServerLiveRequest")).live


def test_without_grpc() -> None:
    """A server that was not asked for gRPC has no address for it."""
    with Workbench() as workbench, pytest.raises(ServerNotRunning, match="grpc_port"):
        _ = workbench.grpc_url


def test_the_command_line() -> None:
    """``workbench serve`` takes the address for gRPC."""
    told = CliRunner().invoke(main, ["serve", "--help"]).output
    assert "--grpc-port" in told
