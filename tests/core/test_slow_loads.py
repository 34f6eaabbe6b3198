"""Slow loads hold up nobody else: other loads, unloads and looks at files."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from inside import until

from doubles import FakeLoader, FakeSession, fake_core
from workbench.core.runs import Runs
from workbench.events import Entry, ModelLoaded
from workbench.inference import InferRequest, InferResponse
from workbench.model import ModelId, ModelState
from workbench.stop import CancellationToken
from workbench.tensor import Tensor

SLOW = [f"slow{number}" for number in range(4)]


class Rig:
    """A server with four models whose loads wait for a gate, and others."""

    def __init__(self, folder: Path) -> None:
        names = ["idle", "small", "other", *SLOW]
        self.gate = threading.Event()
        gates = dict.fromkeys(SLOW, self.gate)
        self.loader = FakeLoader(dict.fromkeys(names, 10), gates=gates)
        self.core = fake_core(folder, self.loader, budget="1MiB", cache="off")
        self.core.open()
        self.pool = ThreadPoolExecutor(8)

    def ask(self, name: str) -> Future[InferResponse]:
        x = {"x": Tensor.of(np.ones(2, np.float32))}
        return self.pool.submit(self.core.requests.infer, InferRequest(name, x))


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    yield rig
    rig.gate.set()
    rig.pool.shutdown()
    rig.core.close()


def test_slow_loads_hold_up_nobody(rig: Rig) -> None:
    """While four models load, others are loaded, answered and unloaded."""
    rig.ask("idle").result(30)
    slow = [rig.ask(name) for name in SLOW]
    until(lambda: rig.loader.live_nbytes == 50)
    rig.pool.submit(rig.core.models.unload, "idle", until_gone=True).result(30)
    assert rig.ask("small").result(30).model.name == "small"
    assert not any(each.done() for each in slow)
    rig.gate.set()
    for each in slow:
        each.result(30)


def test_loading_looking_and_closing_have_threads_of_their_own(rig: Rig) -> None:
    """So that not even as many slow loads as there are threads hold the others up."""
    runtime = rig.core._running()
    rig.ask("idle").result(30)
    loading = runtime._loading
    blocked = [loading.submit(rig.gate.wait, 30) for _ in range(loading.size)]
    coming = runtime.residency.acquire(rig.core.status.resolve("other"))
    while rig.core._running().residency.books().claimed_nbytes < 20:
        pass  # until it was looked at
    rig.pool.submit(rig.core.models.unload, "idle", until_gone=True).result(30)
    assert not coming.done()
    rig.gate.set()
    coming.result(30).release()
    assert all(each.result(30) for each in blocked)


def test_the_runs_on_zeros_of_a_start_come_after_its_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory of a run cannot be measured while another model is being loaded."""
    loaded_before: list[int] = []

    class OneAfterTheOther(FakeLoader):
        """The slow model is loaded once the quick one is READY."""

        def load(self, model: ModelId, stop: CancellationToken) -> FakeSession:
            told: list[Entry] = []
            while model.name == "slow" and not any(isinstance(e.event, ModelLoaded) for e in told):
                told += core.events.wait(told[-1].number if told else 0, 30)
            return super().load(model, stop)

    loader = OneAfterTheOther({"quick": 10, "slow": 10})
    core = fake_core(tmp_path, loader, cache="off", load="all")
    monkeypatch.setattr(Runs, "try_out", lambda *_: loaded_before.append(len(loader.loads)))
    core.open()
    core.close()
    assert loaded_before == [2, 2]


def test_models_of_the_start_load_beside_each_other(tmp_path: Path) -> None:
    """With load="all" no load waits for another: eight are under way at once."""
    names = [f"m{number}" for number in range(8)]
    all_load = threading.Barrier(len(names))

    class Slow(FakeLoader):
        """Each load ends once all have begun."""

        def load(self, model: ModelId, stop: CancellationToken) -> FakeSession:
            all_load.wait(30)
            return super().load(model, stop)

    core = fake_core(tmp_path, Slow(dict.fromkeys(names, 10)), cache="off", load="all")
    core.open()
    assert (
        sorted(row.id.name for row in core.status.index() if row.state is ModelState.READY) == names
    )
    core.close()


def test_a_request_during_the_start_evicts_what_the_start_has_loaded(tmp_path: Path) -> None:
    """The start keeps no lease until its last load: else neither it nor the request would end."""
    loader = FakeLoader({"quick": 40, "slow": 40}, gates={"slow": threading.Event()})
    core = fake_core(tmp_path, loader, cache="off", load="all", wait="10s")
    with ThreadPoolExecutor(1) as pool:
        opening = pool.submit(core.open)
        until(lambda: any(isinstance(e.event, ModelLoaded) for e in core.events.since(0)))
        loader.sizes["asked"] = 50
        (tmp_path / "asked.onnx").touch()
        request = InferRequest("asked", {"x": Tensor.of(np.ones(2, np.float32))})
        try:
            assert core.requests.infer(request).model.name == "asked"
            assert not opening.done()
        finally:
            loader.gates["slow"].set()
        opening.result(30)
    assert core.status.of("quick").state is ModelState.UNAVAILABLE
    assert core.status.of("slow").state is ModelState.READY
    core.close()
