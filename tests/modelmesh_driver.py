"""ModelMesh's side of its runtime SPI, as a driver: it polls, places models, and keeps books.

What it does, and in which order, is read from SidecarModelMesh and ModelMesh of the archived
project; the waits between its steps are left out.
"""

from collections import OrderedDict
from collections.abc import Container
from typing import Any

import grpc

from workbench.protos import message_class

MANAGEMENT = "/mmesh.ModelRuntime"
INFER = "/inference.GRPCInferenceService/ModelInfer"


def spliced(data: bytes, path: list[int], model: str) -> bytes:
    """The request *data*, in which the text field at *path* is *model*."""
    assert path == [1]  # the only path that this server asks for
    name = model.encode()
    at = 2 + data[1] if data[:1] == b"\x0a" else 0  # what was there before
    return b"\x0a" + bytes((len(name),)) + name + data[at:]


class ModelMesh:
    """Places models on the runtime at *management*; sends requests to *data*."""

    def __init__(self, management: str, data: str) -> None:
        self.channels = [grpc.insecure_channel(management), grpc.insecure_channel(data)]
        self.sizes: OrderedDict[str, int] = OrderedDict()  # least recently used first
        self.known: dict[str, int] = {}  # the sizes that models had when they were loaded last
        self.capacity = 0
        self.methods: dict[str, list[int]] = {}

    def close(self) -> None:
        for channel in self.channels:
            channel.close()

    @property
    def used(self) -> int:
        return sum(self.sizes.values())

    def begin(self, method: str, **fields: Any) -> grpc.Future:
        """A management call that is under way."""
        kind = method[0].upper() + method[1:]
        request = message_class("model_runtime", f"mmesh.{kind}Request")(**fields)
        response = message_class("model_runtime", f"mmesh.{kind}Response")
        return (
            self.channels[0]
            .unary_unary(
                f"{MANAGEMENT}/{method}", type(request).SerializeToString, response.FromString
            )
            .future(request, timeout=60)
        )

    def ask(self, method: str, **fields: Any) -> Any:
        return self.begin(method, **fields).result()

    def poll(self) -> Any:
        """What it does at its start, until the runtime is READY: its books are empty then."""
        status = self.ask("runtimeStatus")
        assert status.status == 1
        self.capacity = status.capacityInBytes
        self.methods = {key: list(info.idInjectionPath) for key, info in status.methodInfos.items()}
        self.sizes.clear()
        assert self.capacity >= min(512 * 2**20, 10 * status.defaultModelSizeInBytes, self.capacity)
        assert status.maxLoadingConcurrency >= 1
        assert status.modelLoadingTimeoutMs >= 100
        return status

    def place(self, model: str, path: str, key: str = "{}") -> None:
        """Load *model*: make room, load, correct the books."""
        load = self.begin_load(model, path, key)
        assert load is not None
        self.end_load(model, load)

    def begin_load(
        self, model: str, path: str, key: str = "{}", loading: Container[str] = ()
    ) -> grpc.Future | None:
        """Load *model* into room that is made for what it took before, or is predicted to take.

        ``None`` if there is no such room beside those *loading*, which cannot be evicted.
        """
        nbytes = self.known.get(model)
        if nbytes is None:  # of the first load
            told = self.ask("predictModelSize", modelId=model, modelPath=path, modelKey=key)
            nbytes = told.sizeInBytes
        for other in [each for each in self.sizes if each not in loading]:
            if self.used + nbytes > self.capacity:
                self.remove(other)
        if self.sizes and self.used + nbytes > self.capacity:
            return None
        self.sizes[model] = nbytes
        return self.begin("loadModel", modelId=model, modelPath=path, modelKey=key)

    def end_load(self, model: str, load: grpc.Future) -> None:
        """Wait for the *load*, and correct the books."""
        try:
            size = load.result().sizeInBytes
        except grpc.RpcError:
            del self.sizes[model]
            raise
        size = size or self.ask("modelSize", modelId=model).sizeInBytes
        self.known[model] = self.sizes[model] = size

    def remove(self, model: str) -> None:
        self.ask("unloadModel", modelId=model)
        self.sizes.pop(model, None)

    def infer(self, model: str, data: bytes, metadata: bool = False) -> bytes:
        """A client's request *data* for *model*, as the runtime gets it."""
        method = self.channels[1].unary_unary(INFER)
        if metadata:
            return method(data, metadata=(("mm-model-id-bin", model.encode()),))
        return method(spliced(data, self.methods[INFER[1:]], model))

    def serve(self, model: str, path: str, data: bytes) -> bytes:
        """As a client's request goes: the model is placed if it is not, or is lost."""
        for _ in range(2):
            if model not in self.sizes:
                self.place(model, path)
            self.sizes.move_to_end(model)
            try:
                return self.infer(model, data)
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.NOT_FOUND:
                    raise
                self.sizes.pop(model)
        raise AssertionError(f"{model} is lost again and again")
