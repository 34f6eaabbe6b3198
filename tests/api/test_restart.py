"""A restart changes what it is told to, and nothing else; nothing at all if it cannot."""

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from ensemble_texts import ensemble_of
from inside import until

from workbench import Workbench
from workbench.core import ServerCore
from workbench.core.lifecycle.loads import Loads
from workbench.errors import PortInUse, SettingError
from workbench.events import ModelLoaded, ModelUnloaded
from workbench.host.server import ServerHost
from workbench.host.serving import Serving
from workbench.model import ModelState

DIGIT = np.zeros((1, 64), np.float32)


@pytest.fixture
def workbench(sample_models: Path) -> Iterator[Workbench]:
    """A server that has been used: a function, a pin, a model that came with its load."""
    workbench = Workbench(sample_models, device="cpu", budget="64MiB")
    inputs = {"x": ("FP32", [-1])}
    workbench.register(lambda x: 2 * x, name="double", inputs=inputs, outputs={"y": inputs["x"]})
    with workbench:
        workbench.pin("wine")
        workbench.infer("digits", DIGIT)
        workbench.load("by_way", config=ensemble_of("double"))
        workbench._core.models.add("mine", sample_models / "wine")
        yield workbench


def loads(workbench: Workbench) -> int:
    return sum(isinstance(entry.event, ModelLoaded) for entry in workbench.events)


def requests(workbench: Workbench, model: str) -> int:
    rows = httpx.get(f"{workbench.url}/v2/models/{model}/stats").json()["model_stats"]
    return sum(row["inference_stats"]["success"]["count"] for row in rows)


def test_nothing_is_forgotten(workbench: Workbench) -> None:
    """Address, functions, pins, what loads brought, statistics and events are there afterwards."""
    url, seen = workbench.url, workbench.events
    counted = requests(workbench, "digits")
    assert workbench.restart(budget="32MiB") is workbench
    assert workbench.url == url
    assert workbench.snapshot().budget_nbytes == 32 * 2**20
    assert has_all(workbench)
    (wine,) = [model for model in workbench.snapshot().models if model.pinned]
    assert wine.state is ModelState.READY
    workbench.infer("digits", DIGIT)
    assert requests(workbench, "digits") == counted + 1
    assert workbench.events[: len(seen)] == seen
    assert [entry.number for entry in workbench.events] == list(range(1, len(workbench.events) + 1))


def has_all(workbench: Workbench) -> bool:
    """Whether functions, pins, and what loads brought or added are there."""
    pinned = [model.id.name for model in workbench.snapshot().models if model.pinned]
    by_way = list(workbench.infer("by_way", [2.0])) == [4.0]
    return pinned == ["wine"] and by_way and "mine" in workbench.names


def is_as_before(workbench: Workbench) -> bool:
    """Whether a restart with another budget changed nothing."""
    return workbench.snapshot().budget_nbytes == 64 * 2**20 and has_all(workbench)


TAKEN = "is taken by this very process"
WRONG: dict[str, tuple[dict[str, str], type[Exception], str]] = {
    "a taken port": ({"port": "{taken}"}, PortInUse, TAKEN),
    "HTTP's own port for gRPC": ({"grpc_port": "{own}"}, PortInUse, TAKEN),
    "what fails when the new server starts": (
        {"grpc_port": "unix:{tmp}"}, SettingError, "it is another file"),
    "a GPU that there is not": ({"device": "cuda:7"}, SettingError, "cuda:7"),
    "no amount": ({"budget": "much"}, SettingError, "much"),
    "all addresses without a token": ({"host": "0.0.0.0"}, SettingError, "token"),
}  # fmt: skip


@pytest.mark.parametrize(("given", "error", "told"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_had(
    workbench: Workbench, tmp_path: Path, given: dict[str, str], error: type[Exception], told: str
) -> None:
    """A restart onto it is an error, and the server goes on, with its models in memory."""
    url, before = workbench.url, loads(workbench)
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken, own = other.getsockname()[1], url.rpartition(":")[2]
        asked = {k: v.format(taken=taken, own=own, tmp=tmp_path) for k, v in given.items()}
        with pytest.raises(error, match=told):
            workbench.restart(**{"budget": "32MiB", **asked})
        assert workbench.url == url
        assert httpx.get(f"{url}/v2/models/digits/ready").status_code == 200
        assert loads(workbench) == before or "tmp" in str(given)  # which has stopped before
        assert is_as_before(workbench)


@pytest.mark.parametrize(("owner", "verb"), [(Serving, "stop"), (Loads, "pin")])
def test_an_interrupt(
    workbench: Workbench, monkeypatch: pytest.MonkeyPatch, owner: type, verb: str
) -> None:
    """Nor by an interrupt, once the server has stopped or before the pinned models are loaded."""
    real = getattr(owner, verb)

    def interrupted(*given: Any) -> None:
        monkeypatch.undo()
        if verb == "stop":
            real(*given)
        raise KeyboardInterrupt

    monkeypatch.setattr(owner, verb, interrupted)
    with pytest.raises(KeyboardInterrupt):
        workbench.restart(budget="32MiB")
    assert is_as_before(workbench)


def test_a_port_of_grpc_that_is_taken(workbench: Workbench) -> None:
    """A restart onto it is such an error too, whether gRPC listened before or not."""
    for _ in range(2):
        url, before = workbench.url, loads(workbench)
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = other.getsockname()[1]
            with pytest.raises(PortInUse, match=f"port {port} is taken by this very process"):
                workbench.restart(grpc_port=port, budget="32MiB")
        assert workbench.url == url
        workbench.infer("digits", DIGIT)
        assert loads(workbench) == before
        workbench.restart(grpc_port=port)
        assert workbench.grpc_url == f"127.0.0.1:{port}"
        workbench.infer("digits", DIGIT)
    assert workbench.restart(budget="32MiB").grpc_url == f"127.0.0.1:{port}"  # it is its own


def test_a_restart_of_what_does_not_run_that_fails(workbench: Workbench) -> None:
    """It stays as it was, and starts as before."""
    workbench.stop()
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(PortInUse):
        workbench.restart(port=other.getsockname()[1], budget="32MiB")
    assert not workbench.is_running
    assert workbench.settings.budget == 64 * 2**20
    workbench.start()
    assert [model.id.name for model in workbench.snapshot().models if model.pinned] == ["wine"]
    assert "mine" in workbench.names


def test_another_port(workbench: Workbench) -> None:
    """A free port is taken, and the old one is free again."""
    old = int(workbench.url.rpartition(":")[2])
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert workbench.restart(port=port).url == f"http://127.0.0.1:{port}"
    socket.create_server(("127.0.0.1", old)).close()


def test_no_request_comes_before_the_core_is_open(
    workbench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When HTTP begins to answer, models can be asked: no request of a restart gets a 503."""
    start, answered = ServerHost.start, []

    def start_and_ask(*args: Any) -> None:
        start(*args)
        answered.append(httpx.get(f"{workbench.url}/v2/models/digits").status_code)

    monkeypatch.setattr(ServerHost, "start", start_and_ask)
    workbench.restart(budget="32MiB")
    assert answered == [200]


def test_a_restart_of_what_does_not_run(sample_models: Path) -> None:
    """It starts, with what was changed."""
    with Workbench(sample_models, device="cpu").restart(budget="32MiB") as workbench:
        assert workbench.snapshot().budget_nbytes == 32 * 2**20
        workbench.load("wine")
        workbench.restart(budget="64MiB")
        (gone,) = [e.event for e in workbench.events if isinstance(e.event, ModelUnloaded)]
        assert gone.reason == "the server stopped"


def test_starts_and_restarts_at_the_same_time(sample_models: Path) -> None:
    """Those that come while another one goes on wait for it: no server is left behind."""
    before = set(threading.enumerate())
    workbench = Workbench(sample_models, device="cpu")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: workbench.start(), range(8)))
        list(pool.map(lambda number: workbench.restart(budget=2**26 + number), range(8)))
    workbench.stop()
    until(lambda: not http_threads() - before)


def http_threads() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name == "workbench-http"}


def test_a_stop_during_a_restart(sample_models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for the restart, and stops the server that this started."""
    workbench = Workbench(sample_models, device="cpu").start()
    inside, gate = threading.Event(), threading.Event()
    choose = ServerCore.choose_devices

    def slowly(core: ServerCore) -> None:
        inside.set()
        gate.wait(30)
        choose(core)

    monkeypatch.setattr(ServerCore, "choose_devices", slowly)
    with ThreadPoolExecutor(2) as pool:
        restarts = pool.submit(workbench.restart, budget="64MiB")
        assert inside.wait(30)
        stops = pool.submit(workbench.stop)
        until(lambda: not workbench.is_running)  # the stop has begun
        gate.set()
        restarts.result(30)
        stops.result(30)
    assert not workbench.is_running
