"""``workbench top``: a server's metrics as a screen of text."""

import re
from pathlib import Path

import httpx
import numpy as np
import pytest
from rich.console import Console

from workbench import Workbench
from workbench.core.status.snapshot import DeviceStatus, ModelStatus, Snapshot
from workbench.errors import LoadFailed
from workbench.events import Entry, ToldEvent
from workbench.http.exposition import write
from workbench.http.metrics import families
from workbench.memory.device import Device, GpuReading, MemoryReading
from workbench.model import ModelId, ModelState
from workbench.statistics import BUCKETS_S, FailureReason, RequestCounts
from workbench.views.history import History
from workbench.views.scraped import Scrapes
from workbench.views.terminal import screen

NASTY = '[red]</b>"' + "x" * 190


def shown(
    server: Workbench, scrapes: Scrapes, history: History, at_s: float, width: int = 100
) -> str:
    now = scrapes.snapshot(httpx.get(f"{server.url}/metrics").text, at_s)
    history.add(now)
    console = Console(width=width)
    with console.capture() as captured:
        console.print(screen(server.url, now, history, server.events))
    return captured.get()


def test_the_screen(sample_models: Path) -> None:
    """It has the memory, each model with its rate and p99, and the last event of each."""
    with Workbench(sample_models, budget="4MiB", device="cpu", port=0) as server:
        declared = {"x": ("FP32", [-1])}
        server.register(lambda x: x, name=NASTY, inputs=declared, outputs=declared)
        scrapes, history = Scrapes(), History()
        server.load("wine")
        assert "1 ready" not in shown(server, scrapes, history, 1000.0)  # the function is too
        for _ in range(10):
            server.infer("wine", np.zeros((1, 13), np.float32))
        text = shown(server, scrapes, history, 1005.0)
        now = scrapes.snapshot(httpx.get(f"{server.url}/metrics").text, 1006.0)
        here = {each.id: each for each in server._core.counted().models}
        narrow = shown(server, scrapes, history, 1006.0, width=80)
        wide = shown(server, scrapes, history, 1006.0, width=110)
    wine = next(line for line in text.splitlines() if line.startswith("wine:1"))
    assert "ready" in wine
    assert " 2.0 " in wine
    assert "0 s ago" in wine
    assert "of 4.0 MiB budget" in text
    assert "load      wine:1" in text
    assert "loading   wine:1" not in text
    assert "(1 before it)" in text
    assert all(len(line) <= 100 for line in text.splitlines())
    assert "[red]</b>" in text
    scraped = {each.id: each for each in now.models}
    wine_now, wine_here = scraped[ModelId("wine", 1)], here[ModelId("wine", 1)]
    assert wine_now.nbytes == wine_here.nbytes
    assert wine_now.requests.succeeded == wine_here.requests.succeeded == 10
    assert wine_here.requests.p99_s <= wine_now.requests.p99_s <= 2 * wine_here.requests.p99_s
    assert {each.name for each in scraped} == {each.name for each in here}
    assert now.budget_nbytes == 4 * 2**20
    wine = next(line for line in narrow.splitlines() if line.startswith("wine:1"))
    assert "142.7 KiB" in wine
    assert wine.endswith(" s ago")
    assert {"in flight", "loads", "evicted"} <= set(
        re.split(r"\s{2,}", wide.splitlines()[2].strip())
    )


def test_the_first_look_knows_no_last_use(sample_models: Path) -> None:
    """Requests before it may be hours old: only later ones are of the last seconds."""
    with Workbench(sample_models, device="cpu", port=0) as server:
        scrapes, history = Scrapes(), History()
        for _ in range(100):
            server.infer("wine", np.zeros((1, 13), np.float32))
        assert " ago" not in shown(server, scrapes, history, 1000.0)
        assert " ago" not in shown(server, scrapes, history, 1001.0)
        server.infer("wine", np.zeros((1, 13), np.float32))
        assert "0 s ago" in shown(server, scrapes, history, 1002.0)
        assert history.all_traffic.rate == history.traffic(ModelId("wine", 1)).rate == 0.5


def test_each_gpu_has_its_figures() -> None:
    """How busy it is, its power and temperature stand beside its bar, if its driver tells."""
    gpus = [Device("cuda", n, "H100", 80 * 2**30, f"GPU-{n}") for n in range(3)]
    memory = MemoryReading(80 * 2**30, 2**30)
    readings = (GpuReading(0.5, 200.0, 700.0, temperature_celsius=41.0), GpuReading(power_watts=7))
    told = tuple(
        DeviceStatus(gpu, "", 2**30, system=system, gpu=reading)
        for gpu, system, reading in zip(
            gpus, (memory, None, memory), (readings[0], GpuReading(), readings[1]), strict=True
        )
    )
    text = write(families(Snapshot(1.0, told, ()))).decode()
    now = Scrapes().snapshot(text, 2.0)
    console = Console(width=110)
    with console.capture() as captured:
        console.print(screen("", now, History(), ()))
    first, second, third = captured.get().splitlines()[1:4]
    assert first.endswith("0 B of 1.0 GiB budget · 50% busy · 200 of 700 W · 41 °C")
    assert second.rstrip().endswith("0 B of 1.0 GiB budget")
    assert third.rstrip().endswith("0 B of 1.0 GiB budget · 7 W")


def test_long_names_are_told_apart() -> None:
    """Names that begin alike are, by their ends; a wide terminal has room for more of them."""
    ids = [ModelId(f"team/{'customer_' * 6}{number}", 1) for number in range(3)]
    models = tuple(ModelStatus(model, ModelState.READY) for model in ids)
    for width, whole in ((80, False), (110, False), (160, True)):
        console = Console(width=width)
        with console.capture() as captured:
            console.print(screen("", Snapshot(1.0, (), models), History(), ()))
        for model in ids:
            assert (str(model) in captured.get()) == whole
            assert f"{model.name[-9:]}:1 " in captured.get()


@pytest.mark.parametrize("width", [60, 72, 80, 110, 120])
def test_numbers_and_states_are_whole(width: int) -> None:
    """Names alone are cut, and they have all the room that the other columns leave."""
    named = ModelId(f"team/{'customer_' * 20}", 1)
    requests = RequestCounts(succeeded=9, last_at_s=950.0)
    models = (
        ModelStatus(named, ModelState.READY, nbytes=142_700, requests=requests),
        ModelStatus(ModelId("unused", 1), ModelState.UNAVAILABLE),
    )
    console = Console(width=width)
    with console.capture() as captured:
        console.print(screen("", Snapshot(1000.0, (), models), History(), ()))
    head, first, second, *_ = captured.get().splitlines()[1:]
    assert head.split()[:3] == ["model", "state", "memory"]
    assert first.count("…") == 1
    assert "ready" in first
    assert "139.4 KiB" in first
    assert "not loaded" in second
    assert ("used" in head) == ("50 s ago" in first) == (width >= 72)
    assert len(first.rstrip()) == width


@pytest.mark.parametrize("width", [60, 72, 80, 90])
def test_its_lines_are_those_that_were_asked_for(width: int) -> None:
    """With failures too, the first is one line: where it is cut, the failures are not."""
    history, rows = History(), 4
    models = [ModelId(f"m{number}", 1) for number in range(9)]
    for at_s, number in ((1000.0, 0), (1005.0, 700)):
        failures = {FailureReason.OTHER: number}
        buckets = (number, *[0] * len(BUCKETS_S))
        requests = RequestCounts(number, failures, last_at_s=at_s, buckets=buckets)
        told = tuple(ModelStatus(model, ModelState.READY, requests=requests) for model in models)
        now = Snapshot(at_s, (), told)
        history.add(now)
    entries = [Entry(n, 1.0, ToldEvent("load", str(m), m)) for n, m in enumerate(models, 1)]
    console = Console(width=width)
    with console.capture() as captured:
        console.print(screen("http://127.0.0.1:8000", now, history, entries, rows))
    lines = captured.get().splitlines()
    assert len(lines) == 1 + 1 + rows + 1 + 8
    assert "6300 failed/min" in lines[0]


def test_a_model_that_failed_is_broken(tmp_path: Path) -> None:
    """The screen says so, and why in a line that is cut; one that was unloaded since is not.

    What is wrong is within the line, however long the path of the file is.
    """
    tmp_path /= "a-long-name-of-a-folder" * 4
    for name in ("bad", "worse"):
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "1" / "model.onnx").write_bytes(b"no model")
    failed = ToldEvent("failed", "worse:1: no file", ModelId("worse", 1))
    unloaded = ToldEvent("unload", "worse:1, 5 B freed: by hand", ModelId("worse", 1))
    with Workbench(tmp_path, device="cpu", port=0) as server:
        for name in ("bad", "worse"):
            with pytest.raises(LoadFailed):
                server.load(name)
        scrapes = Scrapes()
        scrapes.tell(server.events)
        scrapes.tell(Entry(9, 2.0, event) for event in (failed, unloaded))
        lines = shown(server, scrapes, History(), 1000.0, width=80).splitlines()
    assert any(re.match(r"bad:1 +broken ", line) for line in lines)
    assert any(re.match(r"worse:1 +not loaded ", line) for line in lines)
    (told,) = [line for line in lines if line.startswith("bad:1 broken: ")]
    assert told.endswith("…")
    assert "bad/1/model.onnx' is not an ONNX model" in told
    (event,) = [line for line in lines if " failed    bad:1: " in line]
    assert "bad/1/model.onnx' is " in event
    assert not any(line.startswith("worse:1 not loaded: ") for line in lines)
