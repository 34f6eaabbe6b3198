"""The pool of daemon threads."""

import _thread
import contextlib
import contextvars
import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue
from typing import Self
from unittest import mock

import httpx
import numpy as np
import pytest
from inside import until
from interrupting import interrupt_soon, interrupted

from workbench import Workbench
from workbench.errors import ServerNotRunning, ThreadsExhausted
from workbench.threads import (
    CallThreads,
    ThreadPool,
    Ticker,
    shielded,
)


@contextmanager
def no_threads() -> Iterator[None]:
    """Meanwhile the system starts no threads."""

    def fail(_: object) -> None:
        raise RuntimeError("can't start new thread")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        yield


def test_work_is_done_and_answered() -> None:
    """A future has what the work returned, or raised."""
    pool = ThreadPool(2, "test")
    assert pool.submit(divmod, 7, 2).result(30) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        pool.submit(divmod, 7, 0).result(30)
    pool.close()


def test_no_more_threads_than_its_size() -> None:
    """Work beyond the size of the pool waits; idle threads are used again."""
    pool = ThreadPool(2, "test")
    gate, inside = threading.Event(), threading.Semaphore(0)

    def wait() -> str:
        inside.release()
        assert gate.wait(30)
        return threading.current_thread().name

    futures = [pool.submit(wait) for _ in range(5)]
    assert inside.acquire(timeout=30)
    assert inside.acquire(timeout=30)
    assert not inside.acquire(blocking=False)
    gate.set()
    assert {future.result(30) for future in futures} == {"test-1", "test-2"}
    pool.close()


def test_work_that_waits_for_other_work() -> None:
    """A thread that was idle and works again is not counted as idle: another one is started."""
    pool = ThreadPool(2, "test")
    for _ in range(2):
        pool.submit(int).result(30)
        until(lambda: bool(pool._idle))
    together = threading.Barrier(2, timeout=30)
    futures = [pool.submit(together.wait) for _ in range(2)]
    assert sorted(future.result(30) for future in futures) == [0, 1]
    pool.close()


def test_what_is_done_meanwhile() -> None:
    """It is called while the work is waited for."""
    threads, gate = CallThreads("test"), threading.Event()
    assert threads.call(lambda: gate.wait(30), gate.set)
    threads.close()


def test_an_interrupt_anywhere_in_a_call() -> None:
    """Wherever it comes, later calls are done, and no threads are added for them."""
    threads = CallThreads("calling")
    threads.call(int)
    step = 1
    while interrupted(lambda: threads.call(int), step):
        assert threads.call(lambda: 7) == 7
        step += 1
    assert step > 20
    # one for the work of a call that was interrupted, one for that of the next, and one that waits
    assert [t.name for t in threading.enumerate()].count("calling") <= 3
    threads.close()
    until(lambda: not any(t.name == "calling" for t in threading.enumerate()))


def test_a_call_after_an_interrupt_of_one_that_goes_on() -> None:
    """It does not wait for the work of the earlier one, which goes on."""
    threads, begun, gate = CallThreads("calling"), threading.Event(), threading.Event()
    interrupt_soon(begun)
    with pytest.raises(KeyboardInterrupt):
        threads.call(lambda: (begun.set(), gate.wait(30)))
    assert threads.call(lambda: 7) == 7
    gate.set()
    threads.close()
    until(lambda: not any(t.name == "calling" for t in threading.enumerate()))
    with pytest.raises(ServerNotRunning, match="the server is stopping"):
        threads.call(int)


def test_a_call_that_meets_the_end() -> None:
    """It is refused if it hands over its work after the last thread has ended."""
    threads, closes = CallThreads("calling"), list[bool]()

    class Closing(SimpleQueue[Callable[[], object] | None]):
        def put(self, item: Callable[[], object] | None, *_: object) -> None:  # type: ignore[override]
            if item is not None and closes:
                threads.close()
                until(lambda: not any(t.name == "calling" for t in threading.enumerate()))
            super().put(item)

    threads._jobs = Closing()
    threads.call(int)
    closes.append(True)
    with pytest.raises(ServerNotRunning, match="the server is stopping"):
        threads.call(int)


def test_a_call_for_which_there_is_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused; the next one is done once there are threads again, named or not."""
    threads = CallThreads("calling")

    def fail(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(_thread, "start_new_thread", fail)
        with pytest.raises(ThreadsExhausted, match="such as 'calling'"):
            threads.call(int)
    with no_threads():
        assert threads.call(lambda: 7) == 7
    threads.close()


def test_an_idle_thread_keeps_nothing() -> None:
    """What work was given is free as soon as it has ended."""
    pool = ThreadPool(1, "test")
    given = threading.Event()
    alive = weakref.ref(given)
    pool.submit(id, given).result(30)
    del given
    until(lambda: pool._idle == 1)
    assert alive() is None
    pool.close()


@pytest.mark.parametrize("waits", [False, True])
def test_an_error_keeps_nothing(waits: bool) -> None:
    """What failing work was given is free as soon as nobody has its error any more."""
    pool, threads = ThreadPool(1, "test"), CallThreads("calling")

    def fail(_: object) -> None:
        raise ValueError("scripted")

    given = threading.Event()
    alive = weakref.ref(given)
    gc.collect()
    gc.disable()
    try:
        with contextlib.suppress(ValueError):
            if waits:
                threads.call(partial(fail, given))
            else:
                pool.submit(fail, given).result(30)
        del given
        until(lambda: alive() is None)
    finally:
        gc.enable()
    pool.close()
    threads.close()


def test_close_does_what_was_submitted() -> None:
    """What was submitted before the close is done; after it, nothing is taken."""
    pool = ThreadPool(1, "test")
    futures = [pool.submit(int, "7") for _ in range(3)]
    pool.close()
    assert [future.result(30) for future in futures] == [7, 7, 7]
    with pytest.raises(ServerNotRunning, match="the server is stopping"):
        pool.submit(int)


def test_exit_is_not_held_up() -> None:
    """The interpreter ends while a thread still works."""
    code = (
        "import threading\n"
        "from workbench.threads import ThreadPool\n"
        "inside = threading.Event()\n"
        "ThreadPool(1, 'test').submit(lambda: (inside.set(), threading.Event().wait()))\n"
        "inside.wait()\n"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=200, check=True).returncode == 0


def test_a_thread_that_cannot_be_started_is_tried_again() -> None:
    """Work for which no thread can be started is refused; the next is done once there is one."""
    pool = ThreadPool(1, "test")
    with no_threads():
        for _ in range(3):
            with pytest.raises(ThreadsExhausted, match="no more threads now, such as 'test-1'"):
                pool.submit(int)
        with pytest.raises(ThreadsExhausted):
            pool.do(int)
    assert pool.submit(int, "7").result(30) == 7
    pool.close()


def test_a_request_for_which_there_is_no_thread() -> None:
    """It is answered with 503 in one line, and the next one once there are threads again."""
    tensor = {"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}
    with Workbench(port=0, device="cpu", cache=0) as wb:

        @wb.model(inputs={"x": ("FP32", [-1])}, outputs={"y": ("FP32", [-1])})
        def twice(x: np.ndarray) -> np.ndarray:
            return x * 2

        wb.load("twice")
        url = f"{wb.url}/v2/models/twice/infer"
        with no_threads():
            refused = httpx.post(url, json={"inputs": [tensor]})
        answered = httpx.post(url, json={"inputs": [tensor]})
    assert (refused.status_code, answered.status_code) == (503, 200)
    assert "no more threads now" in refused.json()["error"]


# ── several keys ──


class Held:
    """Work that goes on until it is let go, and tells whose turn it was."""

    def __init__(self, size: int) -> None:
        self.pool = ThreadPool(size, "test")
        self.begun: list[str] = []
        self.refused: list[str] = []
        self.inside = threading.Semaphore(0)
        self.gate = threading.Semaphore(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.gate.release(100)
        self.pool.close()
        until(lambda: not self.pool._busy)
        assert not self.pool._running

    def do(self, keys: str, begin: int = 0) -> list[Callable[[], object]]:
        """Work of each of the *keys*, of which as many *begin*."""
        works = [partial(self._work, key) for key in keys]
        for key, work in zip(keys, works, strict=True):
            self.pool.do(work, key, partial(self.refused.append, key))
        for _ in range(begin):
            assert self.inside.acquire(timeout=30)
        return works

    def _work(self, name: str) -> None:
        self.begun.append(name)
        self.inside.release()
        assert self.gate.acquire(timeout=30)


def test_no_key_waits_for_another() -> None:
    """However much of others is under way, work of a key of which nothing is begins at once."""
    with Held(2) as held:
        held.do("aaaabcb", begin=4)
        assert held.begun == ["a", "a", "b", "c"]
        assert held.pool._busy == 4


def test_a_key_whose_last_work_ended_is_new_again() -> None:
    """What of it waits takes the place, though others have waited longer."""
    with Held(1) as held:
        held.do("aab", begin=2)
        held.do("b")
        held.gate.release()  # of a or b
        assert held.inside.acquire(timeout=30)
        assert held.pool._running == {"a": 1, "b": 1}


def test_keys_take_turns() -> None:
    """A place that becomes free goes to the next key, and its other work is behind then."""
    with Held(3) as held:
        held.do("aabbb", begin=3)
        held.do("aab")
        assert held.begun == ["a", "a", "b"]
        for _ in range(5):
            held.gate.release()
            assert held.inside.acquire(timeout=30)
        assert sorted(held.begun[3:]) == ["a", "a", "b", "b", "b"]
        assert held.pool._busy == 3


def test_a_place_is_free_again_after_work() -> None:
    """However much was done, as much of one key may be under way at once as before."""
    with Held(2) as held:
        for _ in range(2):
            held.pool.submit(int).result(30)
        held.do("aaa", begin=2)
        assert held.pool._busy == 2


def test_there_is_a_limit_to_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key of which nothing is under way waits too where there are as many as there may be."""
    monkeypatch.setattr("workbench.threads._MOST_THREADS", 2)
    with Held(1) as held:
        held.do("abc", begin=2)
        assert (held.pool._threads, sorted(held.begun)) == (2, ["a", "b"])


def test_a_close_may_refuse() -> None:
    """What has not begun is refused and not done; afterwards nothing is taken."""
    with Held(1) as held:
        held.do("aaa", begin=1)
        waiting = held.pool.submit(int)
        begun = held.pool.submit(int)
        assert begun.result(30) == waiting.result(30) == 0  # of another key
        held.pool.close(finish=False)
        assert held.refused == ["a", "a"]
        with pytest.raises(ServerNotRunning, match="the server is stopping"):
            held.do("a")
    assert held.begun == ["a"]
    until(lambda: not any(each.name.startswith("test-") for each in threading.enumerate()))


def test_a_refused_future_is_cancelled() -> None:
    """Whoever waits for it hears of it."""
    pool, gate, inside = ThreadPool(1, "test"), threading.Event(), threading.Event()
    running = pool.submit(lambda: (inside.set(), gate.wait(30)))
    assert inside.wait(30)
    waiting = pool.submit(int)
    pool.close(finish=False)
    assert waiting.cancelled()
    gate.set()
    assert running.result(30)


def test_work_that_is_withdrawn() -> None:
    """It leaves the queue at once; what has begun, or ended, is not withdrawn."""
    with Held(1) as held:
        running, first, second = held.do("aaa", begin=1)
        assert held.pool.withdraw(first, "a")
        assert not held.pool.withdraw(first, "a")
        assert not held.pool.withdraw(running, "a")
        assert held.pool.withdraw(second, "a")
        assert not held.pool._waiting
    assert held.begun == ["a"]


@pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit])
def test_work_that_fails(error: type[BaseException], caplog: pytest.LogCaptureFixture) -> None:
    """Without a future, what it raises is told in the log, and the thread goes on."""
    pool = ThreadPool(1, "test")
    pool.do(mock.Mock(side_effect=error("its own words")))
    assert pool.submit(int).result(30) == 0
    assert "its own words" in caplog.text
    pool.close()


def test_threads_that_are_there_go_on() -> None:
    """Where no more can be started, one of them does the work of another key later."""
    with Held(1) as held:
        held.do("a", begin=1)
        with no_threads():
            held.do("b")
        held.gate.release()
        assert held.inside.acquire(timeout=30)
        assert held.begun == ["a", "b"]


def test_the_context_goes_along() -> None:
    """Work sees the context variables of the thread that submitted it."""
    variable = contextvars.ContextVar("variable", default="nobody")
    variable.set("me")
    pool = ThreadPool(1, "test")
    assert pool.submit(variable.get).result(30) == "me"
    pool.close()


# ── what interrupts do not stop ──


def test_shielded_work_ends_before_an_interrupt_is_raised() -> None:
    """Another thread tells the work of it; the work goes on, and it is raised at its end."""
    begun, told = threading.Event(), threading.Event()
    ended: list[bool] = []
    tellers: list[threading.Thread] = []

    def work() -> None:
        begun.set()
        ended.append(told.wait(30))

    interrupt_soon(begun)
    with pytest.raises(KeyboardInterrupt):
        shielded(work, "test", lambda: (tellers.append(threading.current_thread()), told.set()))
    assert ended == [True]
    assert threading.main_thread() not in tellers


def test_shielded_work_is_done_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if an interrupt comes before its thread has begun, and another thread is started."""
    started: list[Callable[[], object]] = []
    done: list[None] = []

    def start(begin: Callable[[], object], _: tuple[()]) -> None:
        started.append(begin)
        if len(started) == 1:
            raise KeyboardInterrupt
        for each in started:
            each()

    monkeypatch.setattr(_thread, "start_new_thread", start)
    monkeypatch.setattr(threading, "Thread", Inline)
    with pytest.raises(KeyboardInterrupt):
        shielded(lambda: done.append(None), "test")
    assert (len(started), done) == (2, [None])


class Inline:
    """A thread that has ended when it was started."""

    def __init__(self, target: Callable[[], object], **_: object) -> None:
        self.start = target


def test_shielded_work_is_answered() -> None:
    """It returns what the work returned, or raises what that raised."""
    assert shielded(threading.current_thread, "test").name == "test"
    with pytest.raises(ZeroDivisionError):
        shielded(lambda: divmod(7, 0), "test")


def test_shielded_work_without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is done also if the system starts no more threads, or Python does not, as at its end."""
    with no_threads():
        assert shielded(lambda: 7, "test") == 7

    def fail(*_: object) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(_thread, "start_new_thread", fail)
    assert shielded(lambda: 7, "test") == 7


# ── tickers ──


def tickers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "tick"]


def ticker_ended() -> bool:
    """Wait until its thread has ended."""
    for thread in tickers():
        thread.join(30)
    return not tickers()


def test_a_ticker_ticks_until_it_is_not_wanted() -> None:
    """It begins when it is woken, once, and goes on until it is ended; then it can begin again."""
    ticks: list[int] = []

    def tick() -> float:
        ticks.append(1)
        if len(ticks) % 3 == 0:
            ticker.end()
        return 0.0

    ticker = Ticker("tick", tick, 0.0)
    for count in (3, 6):
        ticker.wake()
        assert ticker_ended()
        assert len(ticks) == count


def test_a_ticker_ends_at_once() -> None:
    """It need not come to its next tick to end."""
    ticker = Ticker("tick", pytest.fail, 1e6)
    ticker.wake()
    ticker.wake()
    assert len(tickers()) == 1
    ticker.end()
    ticker.end()
    assert ticker_ended()


def test_a_ticker_without_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no thread can be started now, whoever wakes it next tries again."""
    ticked = threading.Event()

    def fail(_: object) -> None:
        raise RuntimeError("can't start new thread")

    def tick() -> float:
        ticked.set()
        return 1e6

    ticker = Ticker("tick", tick, 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        with pytest.raises(ThreadsExhausted):
            ticker.wake()
    ticker.wake()
    assert ticked.wait(30)
    ticker.end()
    assert ticker_ended()


def test_a_tick_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    """What fails is logged, and ends it, until it is woken again."""
    ticks: list[int] = []

    def fail() -> float:
        ticks.append(1)
        raise ValueError("scripted")

    ticker = Ticker("tick", fail, 0.0)
    for count in (1, 2):
        ticker.wake()
        assert ticker_ended()
        assert len(ticks) == count
    assert "scripted" in caplog.text
