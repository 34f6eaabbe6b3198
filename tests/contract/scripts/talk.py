"""The far end of a pipe: one line of JSON asks, one line answers, until the asker hangs up."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

Do = Callable[[str, dict[str, Any]], Awaitable[Any]]


def talk(do: Do) -> None:
    """Answer each ``[method, arguments]`` on standard input with what *do* makes of it.

    The line that answers is ``{"answer": ...}``, or ``{"raised": class, "told": text}`` and,
    where the client's error has them, its ``status`` and ``body``.
    """
    out, sys.stdout = sys.stdout, sys.stderr  # what a library prints is no answer
    with asyncio.Runner() as runner:
        for line in sys.stdin:
            method, arguments = json.loads(line)
            out.write(json.dumps(runner.run(_answer(do, method, arguments))) + "\n")
            out.flush()


async def _answer(do: Do, method: str, arguments: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"answer": await do(method, arguments)}
    except Exception as error:  # the asker hears of it, whatever it is
        raised = {"raised": type(error).__name__, "told": str(error)}
        named = {"status": "status_code", "body": "body"}
        told = {key: getattr(error, name) for key, name in named.items() if hasattr(error, name)}
        return raised | told
