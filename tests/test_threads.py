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
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue
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
    SharedPool,
    ThreadPool,
    Ticker,
    shielded,
    start_thread,
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


def test_what_nobody_waits_for(caplog: pytest.LogCaptureFixture) -> None:
    """It is done, in its turn; what it raises is told in the log, and the thread goes on."""
    pool = ThreadPool(1, "test")
    done: list[str] = []

    def fail() -> None:
        raise ValueError("on purpose")

    pool.do(lambda: done.append("first"))
    pool.do(fail)
    assert pool.submit(lambda: [*done, "last"]).result(30) == ["first", "last"]
    assert "on purpose" in caplog.text
    pool.do(lambda: done.append("second"))
    pool.close()
    with pytest.raises(ServerNotRunning, match="the server is stopping"):
        pool.do(fail)


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
        until(lambda: bool(pool._shared._idle))
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
    until(lambda: pool._shared._idle == 1)
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


def test_threads_end_after_a_close() -> None:
    """All of them, those that are idle and those that work."""
    pool, shared, gate = ThreadPool(2, "ending"), SharedPool(2, "ending"), threading.Event()
    for _ in range(2):
        pool.submit(gate.wait, 10)
        do(shared, lambda: gate.wait(30), "a")
    gate.set()
    pool.submit(int).result(30)
    for each in (pool, shared):
        each.close()
    until(lambda: not any(t.name.startswith("ending") for t in threading.enumerate()))


def test_close_may_cancel() -> None:
    """Work that has not begun can be cancelled with the close."""
    pool = ThreadPool(1, "test")
    gate, inside = threading.Event(), threading.Event()
    running = pool.submit(lambda: (inside.set(), gate.wait(30)))
    assert inside.wait(30)
    waiting = pool.submit(int)
    pool.close(cancel=True)
    assert waiting.cancelled()
    gate.set()
    assert running.result(30)


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


# ── threads that several keys share ─────────────────────────────────────────


class Held:
    """Work that goes on until it is let go, and tells whose turn it was."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.inside = threading.Semaphore(0)
        self.gate = threading.Semaphore(0)

    def work(self, name: str) -> Callable[[], None]:
        def work() -> None:
            self.begun.append(name)
            self.inside.release()
            assert self.gate.acquire(timeout=30)

        return work


class Job:
    """Work for a shared pool, and what came of it."""

    def __init__(self, work: Callable[[], object], key: str) -> None:
        self.key = key
        self.told: Future[object] = Future()
        self._work = work

    def run(self) -> None:
        self.told.set_result(self._work())

    def refuse(self) -> None:
        self.told.cancel()


def do(pool: SharedPool, work: Callable[[], object], key: str) -> Job:
    job = Job(work, key)
    pool.do(job)
    return job


def test_no_key_waits_for_another() -> None:
    """Work of a key of which nothing is under way begins, however much of others is."""
    pool, held = SharedPool(2, "test"), Held()
    jobs = [do(pool, held.work("slow"), "slow") for _ in range(4)]
    for _ in range(2):
        assert held.inside.acquire(timeout=30)
    for name in ("a", "b"):
        assert do(pool, lambda name=name: name, name).told.result(30) == name  # type: ignore[misc]
    assert held.begun == ["slow", "slow"]
    for _ in jobs:
        held.gate.release()
    for job in jobs:
        job.told.result(30)
    pool.close()


def test_a_key_that_has_taken_all_threads_leaves_others_their_share() -> None:
    """Half of the size if there are two, a third if there are three; never less than one job."""
    pool, held = SharedPool(4, "test"), Held()
    jobs = [do(pool, held.work("slow"), "slow") for _ in range(5)]
    for _ in range(4):
        assert held.inside.acquire(timeout=30)
    jobs += [do(pool, held.work("a"), "a") for _ in range(3)]
    for _ in range(2):
        assert held.inside.acquire(timeout=30)
    jobs += [do(pool, held.work("b"), "b") for _ in range(2)]
    assert held.inside.acquire(timeout=30)
    assert held.begun[4:] == ["a", "a", "b"]
    held.gate.release(len(jobs))
    for job in jobs:
        job.told.result(30)
    pool.close()


def test_who_has_least_under_way_is_next() -> None:
    """A place that becomes free goes to the key that has the fewest; else in order."""
    pool, held = SharedPool(2, "test"), Held()
    for _ in range(3):
        do(pool, held.work("a"), "a")
    for _ in range(2):
        assert held.inside.acquire(timeout=30)
    jobs = [do(pool, held.work("b"), "b") for _ in range(2)]
    assert held.inside.acquire(timeout=30)  # b has none under way
    held.gate.release()
    held.gate.release()
    for _ in range(5):
        held.gate.release()
    for job in jobs:
        job.told.result(30)
    assert held.begun[:3] == ["a", "a", "b"]
    pool.close()


def test_keys_that_have_as_many_under_way_take_turns() -> None:
    """The first in the queue is next, and its other jobs are behind those of the others then."""
    pool, held, other = SharedPool(5, "test"), Held(), Held()
    jobs = [do(pool, held.work(key), key) for key in "aab"]
    jobs += [do(pool, other.work("c"), "c") for _ in "cc"]
    for inside in (held, held, held, other, other):
        assert inside.inside.acquire(timeout=30)
    jobs += [do(pool, held.work(key), key) for key in "bba"]
    for _ in "ba":
        other.gate.release()
        assert held.inside.acquire(timeout=30)
    assert held.begun[3:] == ["b", "a"]
    held.gate.release(6)
    for job in jobs:
        job.told.result(30)
    pool.close()


def test_a_key_that_ran_before_waits_for_no_other() -> None:
    """It is as new as one that never ran."""
    pool, held = SharedPool(1, "test"), Held()
    do(pool, int, "a").told.result(30)
    until(lambda: pool._idle == 1)
    running = do(pool, held.work("b"), "b")
    assert held.inside.acquire(timeout=30)
    assert do(pool, int, "a").told.result(30) == 0
    held.gate.release()
    running.told.result(30)
    pool.close()


def test_a_place_is_free_again_after_a_job() -> None:
    """However many jobs there were, as many of one key may run at once as before."""
    pool, held = SharedPool(2, "test"), Held()
    for _ in range(2):
        do(pool, int, "a").told.result(30)
    jobs = [do(pool, held.work("a"), "a") for _ in range(2)]
    for _ in jobs:
        assert held.inside.acquire(timeout=30)
    held.gate.release(2)
    for job in jobs:
        job.told.result(30)
    pool.close()


@pytest.mark.parametrize(
    ("keys", "most"), [("aaaaaa", 2), ("aaaaaabbbbbb", 2), ("abcde", 5), ("aaabcabc", 3)]
)
def test_jobs_that_come_before_a_thread_has_begun(keys: str, most: int) -> None:
    """They start no more threads than can run them at once: one that was started counts."""
    pool, started = SharedPool(2, "test"), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("workbench.threads.start_thread", lambda work, name: started.append(work))
        jobs = [do(pool, lambda: None, key) for key in keys]
    assert len(started) == most
    for work in started:
        threading.Thread(target=work, daemon=True).start()
    for job in jobs:
        job.told.result(30)
    pool.close()


def test_an_idle_thread_is_woken_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Busy again, it serves no other key; its own key starts no thread that could not begin."""
    pool, held = SharedPool(1, "test"), Held()
    do(pool, int, "a").told.result(30)
    until(lambda: pool._idle == 1)
    jobs = [do(pool, held.work("a"), "a")]
    assert held.inside.acquire(timeout=30)
    start = mock.Mock(side_effect=start_thread)
    monkeypatch.setattr("workbench.threads.start_thread", start)
    jobs.append(do(pool, held.work("a"), "a"))
    start.assert_not_called()
    assert do(pool, int, "b").told.result(30) == 0
    start.assert_called_once()
    held.gate.release(2)
    for job in jobs:
        job.told.result(30)
    pool.close()


def test_there_is_a_limit_to_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key of which nothing runs waits too where as many threads run as there may be."""
    monkeypatch.setattr("workbench.threads._MOST_THREADS", 2)
    pool, held = SharedPool(1, "test"), Held()
    jobs = [do(pool, held.work(key), key) for key in "abc"]
    for _ in range(2):
        assert held.inside.acquire(timeout=30)
    assert (pool._threads, sorted(held.begun)) == (2, ["a", "b"])
    held.gate.release(3)
    for job in jobs:
        job.told.result(30)
    pool.close()


def test_the_context_goes_along() -> None:
    """Work sees the context variables of the thread that submitted it."""
    variable = contextvars.ContextVar("variable", default="nobody")
    variable.set("me")
    pool = ThreadPool(1, "test")
    assert pool.submit(variable.get).result(30) == "me"
    pool.close()


def test_shared_threads_end() -> None:
    """Jobs that have not begun are refused and not done; afterwards nothing is taken."""
    pool, held = SharedPool(1, "ending"), Held()
    running = do(pool, held.work("a"), "a")
    waiting = [do(pool, held.work("a"), "a") for _ in range(2)]
    assert held.inside.acquire(timeout=30)
    pool.close()
    assert [each.told.cancelled() for each in waiting] == [True, True]
    with pytest.raises(ServerNotRunning, match="the server is stopping"):
        do(pool, int, "a")
    held.gate.release(3)
    running.told.result(30)
    until(lambda: not any(each.name.startswith("ending-") for each in threading.enumerate()))
    assert held.begun == ["a"]


def test_a_job_that_is_withdrawn() -> None:
    """It leaves the queue at once; one that has begun, or ended, is not withdrawn."""
    pool, held = SharedPool(1, "test"), Held()
    running = do(pool, held.work("a"), "a")
    waiting = [do(pool, held.work(name), "a") for name in "bcd"]
    assert held.inside.acquire(timeout=30)
    assert pool.withdraw(waiting[1])
    assert not pool.withdraw(waiting[1])
    assert not pool.withdraw(running)
    held.gate.release(3)
    assert [job.told.result(30) for job in (running, waiting[0], waiting[2])] == [None] * 3
    assert held.begun == ["a", "b", "d"]
    assert not pool.withdraw(running)
    pool.close()


def test_a_key_whose_only_job_is_withdrawn() -> None:
    """Nothing is left of it in the queue, for which a thread could come."""
    pool, held = SharedPool(1, "test"), Held()
    running = do(pool, held.work("a"), "a")
    assert held.inside.acquire(timeout=30)
    assert pool.withdraw(do(pool, int, "a"))
    assert not pool._waiting
    held.gate.release()
    running.told.result(30)
    pool.close()


@pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit])
def test_a_job_that_fails(error: type[BaseException], caplog: pytest.LogCaptureFixture) -> None:
    """What it raises is told in the log, and the thread goes on."""
    pool = SharedPool(1, "test")
    do(pool, mock.Mock(side_effect=error("its own words")), "a")
    assert do(pool, int, "a").told.result(30) == 0
    assert "its own words" in caplog.text
    pool.close()


def test_an_idle_thread_keeps_no_job() -> None:
    """What a job had is free as soon as it has ended."""
    pool = SharedPool(1, "test")
    job = weakref.ref(do(pool, int, "a"))
    until(lambda: pool._idle == 1)
    assert job() is None
    pool.close()


def test_shared_threads_that_cannot_be_started() -> None:
    """Where none can be started that is said, and the job is not done later; the next one is."""
    pool = SharedPool(2, "test")
    refused = Job(int, "key")
    with no_threads(), pytest.raises(ThreadsExhausted, match="no more threads now"):
        pool.do(refused)
    assert do(pool, int, "key").told.result(30) == 0
    assert not refused.told.done()
    pool.close()


def test_shared_threads_that_are_there_go_on() -> None:
    """Where no more can be started, one of them does the job of another key later."""
    pool, held = SharedPool(1, "test"), Held()
    running = do(pool, held.work("a"), "a")
    assert held.inside.acquire(timeout=30)
    with no_threads():
        waiting = do(pool, int, "b")
    held.gate.release()
    assert (running.told.result(30), waiting.told.result(30)) == (None, 0)
    pool.close()


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
