"""The data plane's cases over a wire that has no thread, no lock and no lease of its own."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import inside
import numpy as np
import pytest
import second_wire
from second_wire import LineServer

from doubles import FakeFiles, FakeLoader
from workbench.core import ServerCore
from workbench.model import Batching, FunctionModel, ModelId, Schedule, TensorSpec
from workbench.settings import Settings
from workbench.statistics import FailureReason

SPECS = TensorSpec("x", "FP32", (-1,)), TensorSpec("y", "FP32", (-1,))
ROWS = TensorSpec("x", "FP32", (-1, 1)), TensorSpec("y", "FP32", (-1, 1))


class Rig:
    """A core of files *a* and *b*, of which one fits at a time, and of functions."""

    def __init__(self, root: Path) -> None:
        for name in ("a", "b"):
            (root / "models" / name / "1").mkdir(parents=True)
            (root / "models" / name / "1" / "model.onnx").touch()
        settings = Settings.of(root / "models", environ={}, device="cpu", budget=100)
        self.core = ServerCore(settings, files=FakeFiles(FakeLoader({"a": 60, "b": 60})))
        self.path = root / "socket"
        self.inside = threading.Semaphore(0)
        self.gate = threading.Event()

    def serve(self, name: str, schedule: Schedule | None = None) -> None:
        """A function that doubles once the gate is open; in batches if it has a *schedule*."""

        def double(x: np.ndarray) -> np.ndarray:
            self.inside.release()
            assert self.gate.wait(30)
            return x * 2

        specs, most = (ROWS, 8) if schedule else (SPECS, 0)
        model = FunctionModel(double, specs[:1], specs[1:], 0, most, schedule)
        self.core.register(ModelId(name, 1), model)

    async def entered(self, count: int = 1) -> None:
        for _ in range(count):
            assert await asyncio.to_thread(self.inside.acquire, timeout=30)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for what threads do, of which nothing else tells."""
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    with ExitStack() as stack:
        stack.callback(rig.core.close)
        stack.callback(rig.gate.set)
        rig.core.open()
        yield rig


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def send(self, verb: str, **more: Any) -> None:
        self._writer.write(json.dumps({"verb": verb, **more}).encode() + b"\n")

    async def told(self) -> Any:
        return json.loads(await asyncio.wait_for(self._reader.readline(), 30))

    async def ask(self, verb: str, **more: Any) -> Any:
        self.send(verb, **more)
        return await self.told()

    async def infer(self, model: str, **inputs: Any) -> Any:
        return await self.ask("infer", model=model, inputs=inputs)

    def hang_up(self) -> None:
        self._writer.close()


@asynccontextmanager
async def connected(rig: Rig) -> AsyncIterator[Client]:
    async with await LineServer(rig.core).listen(rig.path):
        client = Client(*await asyncio.open_unix_connection(rig.path))
        try:
            yield client
        finally:
            client.hang_up()
            while len(asyncio.all_tasks()) > 1:  # noqa: ASYNC110  # of connections that end
                await asyncio.sleep(0)


def over_the_wire(rig: Rig, case: Callable[[Client], Coroutine[Any, Any, None]]) -> None:
    async def play() -> None:
        async with connected(rig) as client:
            await case(client)

    asyncio.run(play())


def leases(rig: Rig) -> int:
    return sum(model.leases for model in rig.core.snapshot().models)


def test_it_is_small_and_has_nothing_of_its_own() -> None:
    """At most 80 lines, without a thread, a lock, a lease or a session."""
    text = Path(second_wire.__file__).read_text()
    code = [line for line in text.splitlines() if line.strip()]
    assert len(code) <= 80
    for word in ("thread", "Lock", "Lease", "lease", "Session", "Pool", "Semaphore"):
        assert word not in text, word


def test_answers(rig: Rig) -> None:
    """Loaded on demand, in its turn, on the spot: the answer is the same."""
    rig.gate.set()
    rig.serve("f")
    rig.serve("batched", Schedule(1, Batching()))

    async def case(client: Client) -> None:
        for _ in range(3):
            assert await client.infer("a", x=[1, 2]) == {"id": None, "result": {"y": [1.0, 2.0]}}
        assert (await client.infer("f", x=[1, 2]))["result"] == {"y": [2.0, 4.0]}
        assert (await client.infer("batched", x=[[1], [2]]))["result"] == {"y": [[2.0], [4.0]]}
        assert (await client.infer("b", x=[3]))["result"] == {"y": [3.0]}  # a leaves for it

    over_the_wire(rig, case)
    assert leases(rig) == 0


@pytest.mark.parametrize(
    ("asked", "kind"),
    [
        ({"verb": "infer", "model": "nobody", "inputs": {"x": [1]}}, "ModelNotFound"),
        ({"verb": "infer", "model": "a", "version": 7, "inputs": {"x": [1]}}, "VersionNotFound"),
        ({"verb": "infer", "model": "a", "inputs": {"z": [1]}}, "InvalidRequest"),
        ({"verb": "infer", "model": "a", "inputs": {"x": ["a"]}}, "InvalidRequest"),
        ({"verb": "infer", "model": "a"}, "InvalidRequest"),
        ({"verb": "load", "model": "nobody"}, "ModelNotFound"),
        ({"verb": "sing"}, "InvalidRequest"),
    ],
)
def test_errors(rig: Rig, asked: dict[str, Any], kind: str) -> None:
    """Each has its kind and one line, and leaves nothing in use; the next is answered."""

    async def case(client: Client) -> None:
        told = await client.ask(**asked)
        assert told["kind"] == kind
        assert len(told["error"].splitlines()) == 1
        assert (await client.infer("a", x=[1]))["result"] == {"y": [1.0]}

    over_the_wire(rig, case)
    assert leases(rig) == 0


def test_load_unload_index_and_events(rig: Rig) -> None:
    """What is loaded by one verb is told by the others."""

    async def case(client: Client) -> None:
        await client.ask("load", model="a")
        assert ["a", 1, "READY"] in (await client.ask("index"))["result"]
        await client.ask("unload", model="a")
        assert ["a", 1, "UNAVAILABLE"] in (await client.ask("index"))["result"]
        events = (await client.ask("events"))["result"]
        assert [kind for _, kind in events][-4:] == ["loading", "load", "unloading", "unload"]
        assert (await client.ask("events", after=events[-1][0]))["result"] == []

    over_the_wire(rig, case)


@pytest.mark.parametrize("schedule", [None, Schedule(1, Batching())])
def test_a_client_that_goes_away(rig: Rig, schedule: Schedule | None) -> None:
    """What waits for its turn is not run, what runs ends, and all leases come back."""
    rig.serve("f", schedule)

    async def case(client: Client) -> None:
        row: Any = [[1]] if schedule else [1]
        gone = Client(*await asyncio.open_unix_connection(rig.path))
        gone.send("infer", model="f", inputs={"x": row})
        await rig.entered()
        gone.send("infer", model="f", inputs={"x": row})
        await rig.until(lambda: leases(rig) == 2)
        if schedule:
            await rig.until(lambda: inside.queued(rig.core, "f") == 1)
        gone.hang_up()
        if schedule:
            await rig.until(lambda: leases(rig) == 1)
        rig.gate.set()
        await rig.until(lambda: leases(rig) == 0)
        assert (await client.infer("f", x=row))["result"] == {"y": [[2.0]] if schedule else [2.0]}

    over_the_wire(rig, case)
    if schedule:
        failures = rig.core.status("f").requests.failures
        assert failures == {FailureReason.CANCELED: 1}


def test_a_client_that_goes_away_while_its_model_loads(rig: Rig) -> None:
    """The load goes on; the lease goes back."""
    gate = threading.Event()
    rig.core._files.loader.gates["a"] = gate  # type: ignore[union-attr]

    async def case(client: Client) -> None:
        gone = Client(*await asyncio.open_unix_connection(rig.path))
        gone.send("infer", model="a", inputs={"x": [1]})
        await rig.until(lambda: rig.core.events.since()[-1].event.kind == "loading")
        gone.hang_up()
        await rig.until(lambda: rig.core.status("a").pending == 0)
        gate.set()
        assert (await client.infer("a", x=[1]))["result"] == {"y": [1.0]}

    over_the_wire(rig, case)
    assert leases(rig) == 0


def test_unloads_under_load(rig: Rig) -> None:
    """Each request is answered, by the model as it was or once it is loaded again."""

    async def case(client: Client) -> None:
        for round_ in range(20):
            for number in range(10):
                client.send("infer", id=number, model="a", inputs={"x": [number]})
            client.send("unload", id="unload", model="a" if round_ % 2 else "b")
            client.send("infer", id=10, model="b", inputs={"x": [10]})
            told = [await client.told() for _ in range(12)]
            answers = {each["id"]: each["result"] for each in told}
            assert answers == {n: {"y": [float(n)]} for n in range(11)} | {"unload": None}

    over_the_wire(rig, case)
    assert leases(rig) == 0


def test_an_unload_of_what_does_not_end(rig: Rig) -> None:
    """It answers the requests that are under way, and returns."""
    rig.core._running().loads._grace_s = 0.0
    rig.serve("f")

    async def case(client: Client) -> None:
        for number in range(9):
            client.send("infer", id=number, model="f", inputs={"x": [1]})
        await rig.entered()
        client.send("unload", id="unload", model="f")
        told = [await client.told() for _ in range(10)]
        kinds = {each["id"]: each.get("kind") for each in told}
        assert kinds == dict.fromkeys(range(9), "RequestStopped") | {"unload": None}

    over_the_wire(rig, case)
