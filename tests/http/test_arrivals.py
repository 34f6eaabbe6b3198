"""Answers that come to the event loop from other threads."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import pytest

from workbench.errors import RunFailed
from workbench.http.arrivals import Arrivals, Arriving

Receivers = list[tuple[list[str], Arriving[int]]]
"""Each with what was given up of its request."""


def on_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """*test*, run by an event loop of its own."""

    @wraps(test)
    def run(*given: Any, **more: Any) -> None:
        asyncio.run(test(*given, **more))

    return run


def in_thread(work: Callable[[], object]) -> None:
    """Do *work* in another thread, until it has ended."""
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(30)


async def asked(arrivals: Arrivals[int], count: int) -> tuple[Receivers, list[asyncio.Task[int]]]:
    """So many requests that have begun."""
    receivers: Receivers = []

    def begin(receiver: Arriving[int]) -> Callable[[], object]:
        given_up: list[str] = []
        receivers.append((given_up, receiver))
        return lambda: given_up.append("all")

    tasks = [asyncio.ensure_future(arrivals.answer(begin)) for _ in range(count)]
    await asyncio.sleep(0)
    return receivers, tasks


@on_a_loop
async def test_answers_that_come_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """They wake the loop once; later ones wake it again."""
    loop, woken = asyncio.get_running_loop(), []
    wake = loop.call_soon_threadsafe

    def counted(*given: Any, **more: Any) -> Any:
        woken.append(given)
        return wake(*given, **more)

    monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
    arrivals: Arrivals[int] = Arrivals(loop)
    for times in (1, 2):
        receivers, tasks = await asked(arrivals, 3)
        in_thread(lambda: [r.set_result(n) for n, (_, r) in enumerate(receivers)])  # noqa: B023
        assert await asyncio.gather(*tasks) == [0, 1, 2]
        assert len(woken) == times


@on_a_loop
async def test_an_answer_of_the_loop_itself() -> None:
    """It needs no wake-up."""
    receivers, (task,) = await asked(Arrivals(asyncio.get_running_loop()), 1)
    receivers[0][1].set_result(5)
    assert await task == 5


@on_a_loop
async def test_an_error() -> None:
    """It is raised where the answer is awaited."""
    receivers, (task,) = await asked(Arrivals(asyncio.get_running_loop()), 1)
    in_thread(lambda: receivers[0][1].set_exception(RunFailed("on purpose")))
    with pytest.raises(RunFailed, match="on purpose"):
        await task


@on_a_loop
async def test_who_waits_no_more() -> None:
    """To cancel the wait ends the request, and what comes of it goes nowhere."""
    receivers, (task,) = await asked(Arrivals(asyncio.get_running_loop()), 1)
    (given_up, receiver), *_ = receivers
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert given_up == ["all"]
    assert not receiver.set_running_or_notify_cancel()
    in_thread(lambda: receiver.set_result(1))
    await asyncio.sleep(0)
