"""Short turns on the processor."""

from __future__ import annotations

import os
import platform
import threading

import pytest

from workbench.host import slices


def test_only_the_scheduling_of_one_thread_changes() -> None:
    """The thread that asks keeps its policy and its niceness, and so do all others."""
    before = os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)
    told: list[tuple[int, int]] = []

    def ask() -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 5)
        slices.ask_for_short_slices()
        thread = threading.get_native_id()
        told.append((os.sched_getscheduler(thread), os.getpriority(os.PRIO_PROCESS, thread)))

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert told == [(before[0], 5)]
    assert (os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)) == before


def test_machines_that_are_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system call has an unknown number, nothing is called."""
    monkeypatch.setattr(platform, "machine", lambda: "abacus")
    monkeypatch.setattr(slices.ctypes, "CDLL", pytest.fail)
    slices.ask_for_short_slices()
