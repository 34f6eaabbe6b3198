"""Events: numbered without gaps, kept up to a limit, read by a cursor."""

import pickle
import sys
import threading
from collections.abc import Callable
from itertools import count
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inside import until
from msgspec import Struct
from msgspec.structs import fields

from workbench import events
from workbench.events import (
    DeviceChosen,
    Entry,
    Event,
    EventLog,
    MemoryDrifted,
    MemoryRefused,
    ModelEvicted,
    ModelExpired,
    ModelLoadCancelled,
    ModelLoaded,
    ModelLoadFailed,
    ModelLoading,
    ModelNotPrepared,
    ModelOutgrown,
    ModelPrepared,
    ModelUnloaded,
    ModelUnloading,
    OptionIgnored,
    RunStalled,
    ServerStarted,
    ServerStopped,
    Thrashing,
    ToldEvent,
)
from workbench.model import ModelId

A = ModelId("a", 1)
STALLED = (
    "a run of a:1 delayed all other requests for 2.0 s: its runs use threads until they are known "
    "to be brief again"
)
SHOWN = [
    (ServerStarted("http://127.0.0.1:80"), "start", "serving at http://127.0.0.1:80"),
    (ServerStopped(), "stop", "stopped"),
    (ToldEvent("load", "a:1, 2.0 KiB in 12 ms", A), "load", "a:1, 2.0 KiB in 12 ms"),
    (DeviceChosen("cpu", "there is no GPU"), "device", "cpu, there is no GPU"),
    (ModelLoading(A, 2**20), "loading", "a:1, room for 1.0 MiB claimed"),
    (ModelLoaded(A, 2048, 0.0123), "load", "a:1, 2.0 KiB in 12 ms"),
    (ModelLoadFailed(A, "no file"), "failed", "a:1: no file"),
    (ModelLoadCancelled(A, "unloaded"), "cancelled", "a:1: unloaded"),
    (ModelOutgrown(A, 3072, 1024), "outgrown", "a:1 holds 3.0 KiB, 2.0 KiB more than it claimed"),
    (ModelUnloading(A, "unloaded by hand", 0), "unloading", "a:1: unloaded by hand"),
    (ModelUnloading(A, "unloaded by hand", 2), "unloading",
     "a:1: unloaded by hand, waiting for 2 running"),
    (ModelUnloaded(A, 5, "unloaded by hand"), "unload", "a:1, 5 B freed: unloaded by hand"),
    (ModelEvicted(A, 5, "room for b:1"), "evict", "a:1, 5 B freed: room for b:1"),
    (ModelExpired(A, 5, "not used for 5 min"), "expire", "a:1, 5 B freed: not used for 5 min"),
    (
        Thrashing(9, 12, (A,), 2048, 1024),
        "thrash",
        (
            "9 of the last 12 loads brought back what had just been evicted: "
            "a:1 take 2.0 KiB together, there is room for 1.0 KiB: with more they would stay"
        ),
    ),
    (ModelPrepared(A, 2**30, 6.123), "prepare",
     "a:1 will load faster: 1.0 GiB on disk, made in 6.1 s"),
    (ModelPrepared(A, 0, 0.1), "prepare",
     "a:1 will load faster: the same file was prepared before"),
    (ModelNotPrepared(A, "the disk is full"), "unprepared",
     "a:1 does not load faster: the disk is full"),
    (OptionIgnored(A, "options of CUDA", "no GPU is used"), "ignored",
     "a:1 runs without options of CUDA: no GPU is used"),
    (MemoryDrifted("cpu", 2**20, 2**21), "drift",
     "the models on cpu are booked with 1.0 MiB, measured 2.0 MiB"),
    (MemoryRefused(A, "a:1 needs 5 B"), "refused", "a:1 needs 5 B"),
    (RunStalled(A, 2.04), "stall", STALLED),
]  # fmt: skip


def numbers(entries: tuple[Entry, ...]) -> list[int]:
    return [entry.number for entry in entries]


def make_log(events: int, capacity: int = 100) -> EventLog:
    clock: Callable[[], Any] = count().__next__
    log = EventLog(capacity, clock)
    for number in range(events):
        log.append(ModelLoading(A, number + 1))
    return log


@pytest.mark.parametrize(
    ("event", "kind", "text"), SHOWN, ids=[f"{row[1]}-{i}" for i, row in enumerate(SHOWN)]
)
def test_an_event_is_one_line(event: Event, kind: str, text: str) -> None:
    """Every event has a word for its kind and reads as one line."""
    assert event.kind == kind
    assert str(event) == text
    assert len(str(event).splitlines()) == 1


@pytest.mark.parametrize("event", [row[0] for row in SHOWN])
def test_events_cross_processes(event: Event) -> None:
    """An event is a value: pickled and read again it is the same."""
    assert pickle.loads(pickle.dumps(event)) == event


EVENTS = [e for e in vars(events).values() if isinstance(e, type(Struct))]
EVENTS = [e for e in EVENTS if e not in (Struct, Event)]


def test_every_event_is_shown_here() -> None:
    """The table above shows every event that there is, and each kind has a word of its own."""
    every = set(EVENTS)
    assert {type(event) for event, _, _ in SHOWN} == every
    assert len({event.kind for event in every}) == len(every)


@pytest.mark.parametrize("event", EVENTS)
def test_events_are_values(event: Any) -> None:
    """Every event is a frozen struct with a sentence of its own."""
    assert vars(event)["__doc__"].endswith(".")
    made = event(*[None] * len(fields(event)))
    for field in fields(event):
        with pytest.raises(AttributeError):
            setattr(made, field.name, 1)


def test_an_empty_log() -> None:
    """A log in which nothing happened has nothing to read, at once."""
    log = EventLog()
    assert log.since() == log.since(5) == log.wait(0, 0) == ()


def test_numbers_and_times() -> None:
    """Entries are numbered from 1 without gaps, with the clock's time and the event itself."""
    log = make_log(3)
    assert log.since() == tuple(Entry(n, n - 1, ModelLoading(A, n)) for n in (1, 2, 3))


@pytest.mark.parametrize(
    ("cursor", "rest"), [(-5, [1, 2, 3]), (0, [1, 2, 3]), (1, [2, 3]), (2, [3]), (3, []), (9, [])]
)
def test_since(cursor: int, rest: list[int]) -> None:
    """A reader gets what is numbered above its cursor, oldest first."""
    assert numbers(make_log(3).since(cursor)) == rest
    if rest:
        assert numbers(make_log(3).wait(cursor, 0)) == rest


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.integers(0, 12), st.integers(1, 8), st.integers(-2, 14))
def test_since_is_a_filter(events: int, capacity: int, cursor: int) -> None:
    """What is read is what is kept and numbered above the cursor, whatever the three numbers."""
    kept = range(max(1, events - capacity + 1), events + 1)
    log = make_log(events, capacity)
    assert numbers(log.since(cursor)) == [number for number in kept if number > cursor]


def test_wait_ends_without_an_event() -> None:
    """A wait that is over returns nothing."""
    log = make_log(2)
    assert log.wait(2, 0.001) == ()


def test_wait_for_an_event() -> None:
    """A waiting reader is woken by the next event and gets it."""
    log = make_log(2)
    got: list[tuple[Entry, ...]] = []
    reader = threading.Thread(target=lambda: got.append(log.wait(2, 30)))
    reader.start()
    until(lambda: bool(log._waiting))
    log.append(ServerStopped())
    reader.join(30)
    assert got == [(Entry(3, 2, ServerStopped()),)]
    assert not log._waiting


def test_an_interrupt_of_a_wait_leaves_no_lock_taken() -> None:
    """A wait enters none of the code of Python's locks, where an interrupt leaves one taken."""
    entered: list[str] = []

    def note(frame: FrameType, _: str, __: object) -> None:
        if frame.f_code.co_filename == threading.__file__:
            entered.append(frame.f_code.co_name)

    log = make_log(2)
    sys.setprofile(note)
    try:
        assert log.wait(2, 0.001) == ()
        assert numbers(log.wait(1, 0.001)) == [2]
    finally:
        sys.setprofile(None)
    assert entered == []


def test_a_waiting_reader_sees_past_an_overflow() -> None:
    """A reader whose next event is already gone gets the oldest that is kept, without waiting."""
    assert numbers(make_log(9, capacity=2).wait(3, 30)) == [8, 9]


def test_writers_do_not_lose_numbers() -> None:
    """Events from several threads are numbered without gaps or doubles."""
    log = make_log(0, capacity=1000)
    barrier = threading.Barrier(4)

    def write() -> None:
        barrier.wait(30)
        for _ in range(100):
            log.append(ServerStopped())

    writers = [threading.Thread(target=write) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(30)
    assert numbers(log.since()) == list(range(1, 401))
