"""``inference.GRPCInferenceService``: the V2 data plane, and Triton's extensions of it.

Each method reads a message, asks the core one thing, and writes a message.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc

from workbench.core import ServerCore
from workbench.door import Door
from workbench.errors import ModelNotFound, ModelNotReady, VersionNotFound
from workbench.grpc.convert import Asked, encode, encode_in_stream, error_in_stream, version_of
from workbench.grpc.service import Answer, Call, Service, methods_of
from workbench.grpc.status import abort, message_of
from workbench.inference import InferResponse
from workbench.protos import message_class

NAME = "inference.GRPCInferenceService"
_FILE = "grpc_service"

_LARGE_NBYTES = 2**18  # reading more takes many times what a change of thread does
_LONGEST_S = 0.01  # of runs in the call's own thread; what looks longer may only have been held up


def _message(name: str) -> Any:
    return message_class(_FILE, f"inference.{name}")


class V2:
    """Answers with the models of *core*, for calls that *door* let in.

    If *by_metadata*, a call's metadata may name the model, as ModelMesh has it.
    """

    def __init__(self, core: ServerCore, door: Door, *, by_metadata: bool = False) -> None:
        self._core = core
        self._door = door
        self._max_elements = core.settings.max_elements
        self._by_metadata = by_metadata
        self._restricts = door.restricts("functions")

    def service(self) -> Service:
        """The service that this answers."""
        answers: dict[str, Answer] = {
            "ServerLive": lambda *_: _message("ServerLiveResponse")(live=True),
            "ServerReady": self._ready,
            "ModelReady": self._model_ready,
        }
        raw = {
            "ModelInfer": grpc.unary_unary_rpc_method_handler(self._infer),
            "ModelStreamInfer": grpc.stream_stream_rpc_method_handler(self._stream),
        }
        methods = methods_of(_FILE, NAME, answers, raw, "shared memory is served over HTTP only")
        return Service(NAME, _FILE, methods, dict.fromkeys(_CONTROL, "model-repository"))

    # ── health ──

    def _ready(self, *_: Any) -> Any:
        return _message("ServerReadyResponse")(ready=self._core.is_open)

    def _model_ready(self, asked: Any, call: Call) -> Any:
        version = version_of(asked.version)
        try:
            self._core.check_ready(self._name(asked.name, call), version)
        except (ModelNotReady, ModelNotFound, VersionNotFound):
            return _message("ModelReadyResponse")(ready=False)
        return _message("ModelReadyResponse")(ready=True)

    def _name(self, name: str, call: Call) -> str:
        """The model that a call is for: *name*, unless its metadata says otherwise."""
        if self._by_metadata:
            for key, value in call.metadata:
                if key in _IDS:
                    return value if isinstance(value, str) else value.decode("utf-8", "replace")
        return name

    # ── inference ──

    def _infer(self, data: bytes, context: grpc.ServicerContext) -> bytes:
        try:
            return encode(self._answer(Asked(data, self._max_elements), len(data), Call(context)))
        except Exception as error:  # the client must hear of it, whatever it is
            abort(context, error)

    def _answer(self, asked: Asked, nbytes: int, call: Call) -> InferResponse:
        if self._by_metadata:
            asked.name = self._name(asked.name, call)
        asked.functions = not self._restricts or self._door.opens("functions", call.carries)
        if asked.functions:  # else it is looked at where the request waits for its model
            response = self._core.infer_now(asked.name, asked.version, asked.read, _LONGEST_S)
            if response is not None:
                return response
        future = self._core.start(
            asked.name,
            asked.version,
            asked.read,
            write=_as_it_is,
            nbytes=nbytes,
            quick=nbytes <= _LARGE_NBYTES,
        )
        return call.wait(future)

    def _stream(self, messages: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        """One reply to each request, in their order; errors are replies too."""
        call = Call(context)
        for data in messages:
            request_id = ""
            try:
                asked = Asked(data, self._max_elements)
                request_id = asked.message.id
                reply = encode_in_stream(self._answer(asked, len(data), call))
            except Exception as error:  # the client must hear of it, whatever it is
                reply = error_in_stream(message_of(error), request_id)
            yield reply


_IDS = ("mm-model-id", "mm-model-id-bin")  # of ModelMesh; what is not ASCII comes in the latter

_CONTROL = ("RepositoryIndex", "RepositoryModelLoad", "RepositoryModelUnload")


def _as_it_is(response: InferResponse) -> InferResponse:
    return response
