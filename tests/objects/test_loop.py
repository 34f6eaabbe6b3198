"""The event loop of functions that are ``async``."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any

import pytest

from workbench.objects import calling


async def seven() -> int:
    return 7


def test_a_close_while_a_function_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever the loop can be closed it is: a function that was given to it runs all the same."""
    loop, submit = calling.Loop(), asyncio.run_coroutine_threadsafe

    def close_first(work: Coroutine[Any, Any, Any], to: asyncio.AbstractEventLoop) -> Future[Any]:
        monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", submit)
        if not loop._lock.locked():
            loop.close()
        return submit(work, to)

    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", close_first)
    assert loop.run(seven()) == 7
    loop.close()
    assert loop.run(seven()) == 7  # it starts anew
    loop.close()
