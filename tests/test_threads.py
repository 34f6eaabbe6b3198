"""The pool of daemon threads."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import numpy as np
import pytest

from workbench import Workbench
from workbench.errors import ThreadsExhausted
from workbench.threads import ThreadPool


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
    assert pool.submit(divmod, 7, 2).result(10) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        pool.submit(divmod, 7, 0).result(10)
    pool.close()


def test_what_nobody_waits_for(caplog: pytest.LogCaptureFixture) -> None:
    """It is done, in its turn; what it raises is told in the log, and the thread goes on."""
    pool = ThreadPool(1, "test")
    done: list[str] = []

    def fail() -> None:
        raise ValueError("on purpose")

    pool.do(lambda: done.append("first"))
    pool.do(fail)
    assert pool.submit(lambda: [*done, "last"]).result(10) == ["first", "last"]
    assert "on purpose" in caplog.text
    pool.do(lambda: done.append("second"))
    pool.close()
    with pytest.raises(RuntimeError, match="have ended"):
        pool.do(fail)


def test_no_more_threads_than_its_size() -> None:
    """Work beyond the size of the pool waits; idle threads are used again."""
    pool = ThreadPool(2, "test")
    gate, inside = threading.Event(), threading.Semaphore(0)

    def wait() -> str:
        inside.release()
        assert gate.wait(10)
        return threading.current_thread().name

    futures = [pool.submit(wait) for _ in range(5)]
    assert inside.acquire(timeout=10)
    assert inside.acquire(timeout=10)
    assert not inside.acquire(blocking=False)
    gate.set()
    assert {future.result(10) for future in futures} == {"test-1", "test-2"}
    pool.close()


def test_close_does_what_was_submitted() -> None:
    """What was submitted before the close is done; after it, nothing is taken."""
    pool = ThreadPool(1, "test")
    futures = [pool.submit(int, "7") for _ in range(3)]
    pool.close()
    assert [future.result(10) for future in futures] == [7, 7, 7]
    with pytest.raises(RuntimeError, match="have ended"):
        pool.submit(int)


def test_close_may_cancel() -> None:
    """Work that has not begun can be cancelled with the close."""
    pool = ThreadPool(1, "test")
    gate, inside = threading.Event(), threading.Event()
    running = pool.submit(lambda: (inside.set(), gate.wait(10)))
    assert inside.wait(10)
    waiting = pool.submit(int)
    pool.close(cancel=True)
    assert waiting.cancelled()
    gate.set()
    assert running.result(10)


def test_exit_is_not_held_up() -> None:
    """The interpreter ends while a thread still works."""
    code = (
        "import threading\n"
        "from workbench.threads import ThreadPool\n"
        "inside = threading.Event()\n"
        "ThreadPool(1, 'test').submit(lambda: (inside.set(), threading.Event().wait()))\n"
        "inside.wait()\n"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=True).returncode == 0


def test_a_thread_that_cannot_be_started_is_tried_again() -> None:
    """Work for which no thread can be started is refused; the next is done once there is one."""
    pool = ThreadPool(1, "test")
    with no_threads():
        for _ in range(3):
            with pytest.raises(ThreadsExhausted, match="no more threads now, such as 'test-1'"):
                pool.submit(int)
        with pytest.raises(ThreadsExhausted):
            pool.do(int)
    assert pool.submit(int, "7").result(10) == 7
    pool.close()


def test_threads_that_are_there_go_on() -> None:
    """Where no more threads can be started, those that are idle do the work."""
    pool = ThreadPool(2, "test")
    gate, inside = threading.Event(), threading.Event()
    pool.submit(lambda: (inside.set(), gate.wait(10)))
    assert inside.wait(10)
    with no_threads():
        with pytest.raises(ThreadsExhausted):
            pool.submit(int)
        gate.set()
        while not pool._idle._value:
            pass
        assert pool.submit(int, "7").result(10) == 7
    assert pool._started == 1
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
