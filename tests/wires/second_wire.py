"""A second wire, to prove the waist: JSON lines over a unix socket.

A line asks, ``{"id": 1, "verb": "infer", "model": "m", "inputs": {...}}``, and one answers it, in
the order in which they are done. Whoever hangs up ends what was asked.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from workbench.core import Describe, ServerCore
from workbench.errors import InvalidRequest, WorkbenchError
from workbench.inference import InferRequest, InferResponse
from workbench.tensor import Tensor

Message = dict[str, Any]


class LineServer:
    """Answers for *core*."""

    def __init__(self, core: ServerCore) -> None:
        self._core = core
        self._verbs: dict[str, Callable[[Message], Awaitable[Any]]] = {
            "infer": self._infer,
            "load": lambda asked: self._soon(
                partial(core.models.load_all, asked["model"]), waits=True
            ),
            "unload": lambda asked: self._soon(
                partial(core.models.unload, asked["model"]), waits=True
            ),
            "index": lambda _: self._soon(self._index),
            "events": lambda asked: self._soon(partial(self._events, asked.get("after", 0))),
        }

    async def listen(self, path: Path) -> asyncio.Server:
        return await asyncio.start_unix_server(self._talk, path)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks: set[asyncio.Task[None]] = set()
        while line := await reader.readline():
            tasks.add(task := asyncio.create_task(self._answer(line, writer)))
            task.add_done_callback(tasks.discard)
        for task in tasks:
            task.cancel()
        writer.close()

    async def _answer(self, line: bytes, writer: asyncio.StreamWriter) -> None:
        asked: Message = {}
        try:
            asked = json.loads(line)
            told = {"result": await self._verbs[asked["verb"]](asked)}
        except WorkbenchError as error:
            told = {"error": str(error), "kind": type(error).__name__}
        except (KeyError, TypeError, ValueError) as error:
            told = {"error": repr(error), "kind": "InvalidRequest"}
        writer.write(json.dumps({"id": asked.get("id"), **told}).encode() + b"\n")

    async def _soon(self, work: Callable[[], Any], *, waits: bool = False) -> Any:
        return await asyncio.wrap_future(self._core.soon(work, waits=waits))

    async def _infer(self, asked: Message) -> Any:
        def read(describe: Describe) -> InferRequest:
            try:
                arrays = {
                    name: np.array(each, np.float32) for name, each in asked["inputs"].items()
                }
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise InvalidRequest(f"the inputs cannot be read: {error!r}") from error
            inputs = {name: Tensor.of(array) for name, array in arrays.items()}
            return InferRequest(asked["model"], inputs, asked.get("version"))

        response = self._core.requests.infer_now(asked["model"], asked.get("version"), read)
        if response is not None:
            return _write(response)
        future = self._core.requests.start(asked["model"], asked.get("version"), read, write=_write)
        return await asyncio.wrap_future(future)

    def _index(self) -> Any:
        return [[row.id.name, row.id.version, row.state.value] for row in self._core.status.index()]

    def _events(self, after: int) -> Any:
        return [[each.number, each.event.kind] for each in self._core.events.since(after)]


def _write(response: InferResponse) -> Any:
    return {name: tensor.array.tolist() for name, tensor in response.outputs.items()}
