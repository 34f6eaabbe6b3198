"""The wires that the data plane's cases are played over, and the server behind them."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import grpc
import grpc.aio
import inside
import numpy as np
from second_wire import LineServer

from doubles import FakeLoader, fake_core
from workbench.auth import Auth
from workbench.grpc.server import GrpcServer
from workbench.grpc.v2 import V2
from workbench.host.server import ServerHost
from workbench.http.access import Access
from workbench.http.app import create_app
from workbench.http.infer import DataPlane
from workbench.http.short_cut import ShortCut
from workbench.model import FunctionModel, ModelId, Schedule, TensorSpec
from workbench.protos import message_class

SPECS = TensorSpec("x", "FP32", (-1,)), TensorSpec("y", "FP32", (-1,))
ROWS = TensorSpec("x", "FP32", (-1, 1)), TensorSpec("y", "FP32", (-1, 1))


class Rig:
    """A core of files *a* and *b*, of which one fits at a time, and of functions."""

    def __init__(self, root: Path) -> None:
        self.loader = FakeLoader({"a": 60, "b": 60})
        self.core = fake_core(root / "models", self.loader)
        self.path = root / "socket"
        self.inside = threading.Semaphore(0)
        self.gate = threading.Event()

    def serve(self, name: str, schedule: Schedule | None = None) -> None:
        """A function that doubles once the gate is open; in batches if it has a *schedule*."""

        def double(x: np.ndarray) -> np.ndarray:
            self.inside.release()
            assert self.gate.wait(30)
            return x * 2

        specs, most = (ROWS, 8) if schedule else (SPECS, 0)
        model = FunctionModel(double, specs[:1], specs[1:], 0, most, **inside.turns(schedule))
        self.core.models.register(ModelId(name, 1), model)

    async def entered(self, count: int = 1) -> None:
        for _ in range(count):
            assert await asyncio.to_thread(self.inside.acquire, timeout=30)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for what threads do, of which nothing else tells."""
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0)

    def leases(self) -> int:
        return sum(model.leases for model in self.core.status.snapshot().models)


class RefusedError(Exception):
    """The server answered with an error of this text."""


class Asked(Protocol):
    """A request on a connection of its own."""

    async def answer(self) -> Any:
        """The values of output *y*; nothing for another verb. Raises ``RefusedError``."""
        ...

    def hang_up(self) -> None: ...


class Wire(Protocol):
    """A protocol, and a server that speaks it."""

    async def ask(self, model: str, x: Any = None, **more: Any) -> Asked:
        """Ask *model* with the values *x* of its input; *more* is ``version`` or ``verb``."""
        ...


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer

    def hang_up(self) -> None:
        self.writer.close()


class _Line(_Connection):
    async def answer(self) -> Any:
        told = json.loads(await asyncio.wait_for(self._reader.readline(), 30))
        self.hang_up()
        if "error" in told:
            raise RefusedError(told["error"])
        return told["result"]["y"] if told["result"] else None


class LineWire:
    """JSON lines over a unix socket."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def ask(self, model: str, x: Any = None, verb: str = "infer", **more: Any) -> Asked:
        asked = _Line(*await asyncio.open_unix_connection(self._path))
        line = {"verb": verb, "model": model, "inputs": {"x": x}, **more}
        asked.writer.write(json.dumps(line).encode() + b"\n")
        return asked


class _Exchange(_Connection):
    async def answer(self) -> Any:
        head, _, body = (await asyncio.wait_for(self._reader.read(), 30)).partition(b"\r\n\r\n")
        self.hang_up()
        told = json.loads(body) if body else {}
        if not head.startswith(b"HTTP/1.1 200"):
            raise RefusedError(told["error"])
        outputs = told.get("outputs")
        return np.reshape(outputs[0]["data"], outputs[0]["shape"]).tolist() if outputs else None


class HttpWire:
    """V2 over HTTP."""

    def __init__(self, url: str) -> None:
        self._host, self._port = url.removeprefix("http://").split(":")

    async def ask(
        self, model: str, x: Any = None, verb: str = "infer", version: int | None = None
    ) -> Asked:
        data = np.array(x)
        shape, values = list(data.shape), data.ravel().tolist()
        tensor = {"name": "x", "datatype": "FP32", "shape": shape, "data": values}
        body = json.dumps({"inputs": [tensor]} if verb == "infer" else {}).encode()
        versions = f"/versions/{version}" if version else ""
        path = f"/v2/models/{model}{versions}/infer"
        if verb != "infer":
            path = f"/v2/repository/models/{model}/{verb}"
        asked = _Exchange(*await asyncio.open_connection(self._host, int(self._port)))
        head = f"POST {path} HTTP/1.1\r\nHost: {self._host}\r\nConnection: close\r\n"
        asked.writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        return asked


@asynccontextmanager
async def line_wire(rig: Rig) -> AsyncIterator[Wire]:
    async with await LineServer(rig.core).listen(rig.path):
        try:
            yield LineWire(rig.path)
        finally:
            while len(asyncio.all_tasks()) > 1:  # noqa: ASYNC110  # of connections that end
                await asyncio.sleep(0)


@asynccontextmanager
async def http_wire(rig: Rig) -> AsyncIterator[Wire]:
    plane, access = DataPlane(rig.core), Access(rig.core.settings, "")
    host = ServerHost(create_app(plane, access), "127.0.0.1", 0, ShortCut(plane, access))
    host.start()
    try:
        yield HttpWire(host.url)
    finally:
        await asyncio.to_thread(host.stop)


class _Call:
    def __init__(self, call: grpc.aio.UnaryUnaryCall, kind: Any) -> None:
        self._call, self._kind = call, kind

    async def answer(self) -> Any:
        try:
            told = self._kind.FromString(await asyncio.wait_for(self._call, 30))
        except grpc.aio.AioRpcError as error:
            raise RefusedError(error.details()) from None
        if not hasattr(told, "outputs"):
            return None
        (output,) = told.outputs
        return np.array(output.contents.fp32_contents).reshape(tuple(output.shape)).tolist()

    def hang_up(self) -> None:
        self._call.cancel()


class GrpcWire:
    """V2 over gRPC."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    async def ask(
        self, model: str, x: Any = None, verb: str = "infer", version: int | None = None
    ) -> Asked:
        method = "ModelInfer" if verb == "infer" else f"RepositoryModel{verb.title()}"
        request = message_class("grpc_service", f"inference.{method}Request")(model_name=model)
        if verb == "infer":
            data = np.array(x)
            tensor = request.inputs.add(name="x", datatype="FP32", shape=data.shape)
            if data.dtype.kind == "U":  # which a client may send where numbers go
                tensor.datatype = "BYTES"
                tensor.contents.bytes_contents.extend(text.encode() for text in data.ravel())
            else:
                tensor.contents.fp32_contents.extend(data.ravel())
            request.model_version = str(version or "")
        ask = self._channel.unary_unary(f"/inference.GRPCInferenceService/{method}")
        kind = message_class("grpc_service", f"inference.{method}Response")
        call = _Call(ask(request.SerializeToString()), kind)
        await asyncio.sleep(0)  # in which it is sent
        return call


@asynccontextmanager
async def grpc_wire(rig: Rig) -> AsyncIterator[Wire]:
    auth = Auth("", {})
    server = GrpcServer([V2(rig.core, functions=True).service()], auth, "127.0.0.1", 0, 2**20)
    server.start()
    try:
        async with grpc.aio.insecure_channel(server.url) as channel:
            yield GrpcWire(channel)
    finally:
        await asyncio.to_thread(server.stop)


WIRES = {"json-lines": line_wire, "http": http_wire, "grpc": grpc_wire}
