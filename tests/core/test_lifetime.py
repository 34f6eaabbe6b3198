"""Opening, closing and changing a core, over a loader that is a double."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from inside import opened

from doubles import FakeFiles, FakeLoader, FakeMeter, fake_core
from workbench.core import ServerCore, server_core
from workbench.core.placement import Placement
from workbench.errors import SettingError
from workbench.memory.device import Device, MemoryReading
from workbench.model import ModelId
from workbench.settings import BudgetShare, Settings

SIZES = {"a": 30, "b": 30}
MIB = 2**20


def test_requests_are_answered_before_the_loads_of_the_start(tmp_path: Path) -> None:
    """The core is open by then, and its pins are those that are still to come."""
    told: list[object] = []
    core = fake_core(tmp_path, FakeLoader(dict(SIZES)), load="all")
    with opened(core):
        core.models.pin("a")
    core.open(lambda: told.extend((core.is_open, core.status.loaded(), core.pinned)))
    try:
        assert told == [True, frozenset(), (ModelId("a", 1),)]
        assert core.status.loaded() == {"a", "b"}
        core.models.unpin("a")
        assert core.pinned == ()
    finally:
        core.close()


def test_a_start_that_is_done_is_not_ended(tmp_path: Path) -> None:
    """Only the loads of a start that goes on are."""
    with opened(fake_core(tmp_path, FakeLoader(dict(SIZES)), load="all")) as core:
        core.end_start()
        core.models.unload("a")
        core.models.load("a")
        assert core.status.loaded() == {"a", "b"}


def test_a_core_that_is_opened_again(tmp_path: Path) -> None:
    """It drains no more, and has neither parts of annexes nor what loads brought."""
    (tmp_path / "models").mkdir()
    core = fake_core(tmp_path / "models", FakeLoader(dict(SIZES)))
    closed: list[str] = []
    for name, owned in (("parts", core.parts), ("repository", core._repository)):
        owned.close = lambda name=name: closed.append(name)  # type: ignore[method-assign]
    core.open()
    core.drain()
    assert core.draining.error is not None
    core.close()
    assert core.draining.error is None
    assert sorted(closed) == ["parts", "repository"]


def test_a_share_is_of_each_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Devices of different sizes get different budgets; unknown until the devices are chosen."""

    def placement(number: int, total_nbytes: int) -> Placement:
        device = Device("cuda", number, "GPU", total_nbytes, f"GPU-{number}")
        reading = MemoryReading(total_nbytes, 0)
        return Placement(device, "", 10, FakeMeter(keeps=True), lambda: reading)

    monkeypatch.setattr(
        server_core, "place", lambda settings: (placement(0, 100), placement(1, 200))
    )
    settings = Settings.of(tmp_path, environ={}, budget="50%")
    core = ServerCore(settings, files=FakeFiles(FakeLoader(dict(SIZES))))
    assert core.budget_nbytes is None
    with opened(core):
        core.adjust(replace(settings, budget=BudgetShare(0.2)))
        assert [device.budget_nbytes for device in core.status.snapshot().devices] == [20, 40]


def test_devices_are_chosen_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a start, to learn whether it will work; and anew before the next one."""
    chosen: list[None] = []
    place = server_core.place
    monkeypatch.setattr(
        server_core, "place", lambda settings: chosen.append(None) or place(settings)
    )
    core = fake_core(tmp_path, FakeLoader(dict(SIZES)))
    for count in (1, 2):
        core.choose_devices()
        core.choose_devices()
        with opened(core):
            assert len(chosen) == count


def test_a_device_that_cannot_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever opens the core is told, and it is not open."""

    def refuse(_: Settings) -> tuple[Placement, ...]:
        raise SettingError("there is none")

    monkeypatch.setattr(server_core, "place", refuse)
    core = fake_core(tmp_path, FakeLoader(dict(SIZES)))
    with pytest.raises(SettingError, match="there is none"):
        core.open()
    assert not core.is_open


def test_calls_of_the_main_thread_are_done_in_another(tmp_path: Path) -> None:
    """So an interrupt ends only the wait, in which there is time for something else."""
    with opened(fake_core(tmp_path, FakeLoader(dict(SIZES)))) as core:
        assert core.call(threading.current_thread) is not threading.main_thread()
        waited = threading.Event()
        assert core.call(waited.wait, 30, meanwhile=waited.set)
        inner: list[bool] = []
        other = threading.Thread(
            target=lambda: inner.append(core.call(threading.current_thread) is other)
        )
        other.start()
        other.join()
        assert inner == [True]


@pytest.mark.parametrize("waits", [True, False])
def test_work_that_waits_has_threads_of_its_own(tmp_path: Path, *, waits: bool) -> None:
    """Work that waits for loads holds up none that only reads files."""
    with opened(fake_core(tmp_path, FakeLoader(dict(SIZES)))) as core:
        name = core.soon(lambda: threading.current_thread().name, waits=waits).result(30)
        assert ("wait" in name) == waits


def test_a_close_gives_runs_the_time_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And then as much again, once they were asked to end."""
    with opened(fake_core(tmp_path, FakeLoader(dict(SIZES)))) as core:
        told: list[object] = []
        residency = core._running().residency
        close = residency.close
        monkeypatch.setattr(residency, "close", lambda s: (told.append(s), close(0.0), False)[2])
        monkeypatch.setattr(residency, "cancel", lambda: told.append("cancel"))
        core.close(0.125)
    assert told == [0.125, "cancel", 0.125]


def test_what_the_next_core_takes_over(tmp_path: Path) -> None:
    """Pins, the urls of added models beside its own, and their files."""
    for folder in ("models", "added"):
        (tmp_path / folder).mkdir()
    (tmp_path / "added" / "model.onnx").touch()
    loader = FakeLoader(dict(SIZES))
    core, to = (fake_core(tmp_path / "models", loader) for _ in range(2))
    loader.sizes["new"] = 10
    to.models._urls["own"] = "its own"
    with opened(core):
        core.models.pin("a")
        core.models.add("new", tmp_path / "added", url="there")
        core.hand_over(to)
    assert to.pinned == (ModelId("a", 1),)
    assert to.models.added() == {"own": "its own", "new": "there"}
    with opened(to):
        to.models.load("new")
        assert to.status.loaded() == {"a", "new"}
