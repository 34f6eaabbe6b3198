"""A thread that ticks while it is wanted."""

from __future__ import annotations

import threading

import pytest

from workbench.memory.ticker import Ticker


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "tick"]


def ended() -> bool:
    """Wait until its thread has ended."""
    for thread in threads():
        thread.join(30)
    return not threads()


def test_it_ticks_until_it_is_not_wanted() -> None:
    """It begins when it is woken, once, and goes on until it is ended; then it can begin again."""
    ticks: list[int] = []

    def tick() -> None:
        ticks.append(1)
        if len(ticks) % 3 == 0:
            ticker.end()

    ticker = Ticker("tick", tick, 0.0)
    for count in (3, 6):
        ticker.wake()
        assert ended()
        assert len(ticks) == count


def test_it_ends_at_once() -> None:
    """It need not come to its next tick to end."""
    ticker = Ticker("tick", pytest.fail, 1e6)
    ticker.wake()
    ticker.wake()
    assert len(threads()) == 1
    ticker.end()
    ticker.end()
    assert ended()


def test_never() -> None:
    """Without an interval it does not begin."""
    Ticker("tick", pytest.fail, None).wake()
    assert not threads()


def test_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no thread can be started now, whoever wakes it next tries again."""
    ticked = threading.Event()

    def fail(_: object) -> None:
        raise RuntimeError("can't start new thread")

    ticker = Ticker("tick", ticked.set, 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        ticker.wake()
    ticker.wake()
    assert ticked.wait(30)
    ticker.end()
    assert ended()


def test_a_tick_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    """What fails is logged, and ends it, until it is woken again."""
    ticks: list[int] = []

    def fail() -> None:
        ticks.append(1)
        raise ValueError("scripted")

    ticker = Ticker("tick", fail, 0.0)
    for count in (1, 2):
        ticker.wake()
        assert ended()
        assert len(ticks) == count
    assert "scripted" in caplog.text
