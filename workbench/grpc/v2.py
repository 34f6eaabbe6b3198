"""``inference.GRPCInferenceService``: the V2 data plane, and Triton's extensions of it.

Each method reads a message, asks the core one thing, and writes a message.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypedDict

import grpc
from google.protobuf import json_format

from workbench.annex import annexes
from workbench.auth import closed
from workbench.codecs.v2 import RequestRules
from workbench.contracts.triton import metadata, repository
from workbench.contracts.triton.statistics import statistics
from workbench.contracts.triton.words import told
from workbench.core import ServerCore
from workbench.errors import (
    ModelNotFound,
    ModelNotReady,
    NotSupported,
    ServerNotRunning,
    ThreadsExhausted,
    VersionNotFound,
    WorkbenchError,
)
from workbench.grpc.convert import (
    InferMessage,
    error_in_stream,
    version_of,
)
from workbench.grpc.service import Rpc, RpcHandler, Service, methods_of
from workbench.grpc.status import PLACED, PLACED_UNNAMED, STATUS, Table, abort, message_of
from workbench.grpc.stream import Begun, OneReply, Replies, Stream
from workbench.inference import InferResponse
from workbench.protos import message_class

NAME = "inference.GRPCInferenceService"
_FILE = "grpc_service"
NAMED_FIRST = ("ModelInfer", "ModelMetadata", "ModelReady", "ModelConfig", "ModelStatistics")
"""The methods that are for the model in the first field of their messages."""

_INLINE_NBYTES = 2**18  # reading more takes much longer than handing it to a thread
_LONGEST_S = 0.01  # of runs in the call's own thread; a longer one may only have been delayed


class _Sized(TypedDict):
    nbytes: int
    quick: bool


class V2:
    """Answers with the models of *core*; with *functions* only if these are open.

    If *by_metadata*, ModelMesh places the models, and a call's metadata may name the model.
    """

    def __init__(self, core: ServerCore, *, functions: bool, by_metadata: bool = False) -> None:
        self._core = core
        regions = core.regions
        self._write_region = None if regions is None else regions.write
        self._rules = RequestRules(None if regions is None else regions.read)
        self._by_metadata = by_metadata
        self._functions = functions

    def service(self) -> Service:
        answers: dict[str, RpcHandler] = {
            "ServerLive": lambda *_: {"live": True},
            "ServerReady": lambda *_: {"ready": self._core.status.is_ready},
            "ServerMetadata": lambda *_: metadata.server_metadata(self._core),
            "ModelReady": self._model_ready,
            "ModelMetadata": self._metadata,
            "ModelConfig": self._config,
            "ModelStatistics": self._statistics,
            "RepositoryIndex": self._index,
            "RepositoryModelLoad": self._load,
            "RepositoryModelUnload": self._unload,
        }
        groups = dict(_GROUPS)
        for annex in annexes():
            methods = annex.methods(self._core)
            answers |= methods
            groups |= dict.fromkeys(methods, "".join(annex.groups[:1]))
        raw = {
            "ModelInfer": grpc.unary_unary_rpc_method_handler(self._infer),
            "ModelStreamInfer": grpc.stream_stream_rpc_method_handler(self._stream),
        }
        return Service(NAME, _FILE, methods_of(_FILE, NAME, answers, raw, self._table), groups)

    def _table(self, method: str) -> Table:
        """The codes of errors in *method*."""
        if not self._by_metadata:
            return STATUS
        return PLACED if method in NAMED_FIRST else PLACED_UNNAMED

    # ── what there is ──

    def _model_ready(self, asked: Any, call: Rpc) -> Any:
        name, version = self._target(asked, call)
        try:
            self._core.status.check_ready(name, version)
        except (ModelNotReady, ModelNotFound, VersionNotFound):
            return {"ready": False}
        return {"ready": True}

    def _metadata(self, asked: Any, call: Rpc) -> Any:
        return metadata.model_metadata(self._core, *self._target(asked, call))

    def _config(self, asked: Any, call: Rpc) -> Any:
        config = metadata.model_config(self._core, *self._target(asked, call))
        return json_format.ParseDict({"config": _plain(config)}, _reply("ModelConfig"))

    def _statistics(self, asked: Any, call: Rpc) -> Any:
        name = self._name(asked.name, call)
        return {"model_stats": statistics(self._core, name, version_of(asked.version))}

    # ── what is loaded ──

    def _index(self, asked: Any, _: Rpc) -> Any:
        _check_repository(asked)
        return {"models": repository.index(self._core, ready=asked.ready)}

    def _load(self, asked: Any, _: Rpc) -> None:
        _check_repository(asked)
        repository.load(self._core, asked.model_name, _given(asked))

    def _unload(self, asked: Any, _: Rpc) -> None:
        _check_repository(asked)
        repository.unload(self._core, asked.model_name, _given(asked))

    def _target(self, asked: Any, call: Rpc) -> tuple[str, int | None]:
        """The model and version that a call is for."""
        call.told = told
        return self._name(asked.name, call), version_of(asked.version)

    def _name(self, name: str, call: Rpc) -> str:
        """The model that a call is for: *name*, unless the call's metadata names one."""
        if self._by_metadata:
            for key, value in call.metadata:
                if key in _IDS:
                    return value if isinstance(value, str) else value.decode("utf-8", "replace")
        return name

    # ── inference ──

    def _infer(self, data: bytes, context: grpc.ServicerContext) -> bytes:
        asked = None
        try:
            asked = InferMessage(data, self._rules, self._write_region)
            return asked.encode(self._answer(asked, data, Rpc(context)))
        except Exception as error:  # the client must hear of it, whatever it is
            abort(context, error, told(error), self._table("ModelInfer"))

    def _answer(self, asked: InferMessage, data: bytes, call: Rpc) -> InferResponse:
        response = self._answer_now(asked, call)
        if response is not None:
            return response
        future = self._core.requests.start(
            asked.name, asked.version, asked.read, write=lambda response: response, **_sized(data)
        )
        return call.wait(future)

    def _answer_now(self, asked: InferMessage, call: Rpc) -> InferResponse | None:
        """The answer, if it takes no waiting for a model or a turn, else ``None``."""
        asked.check()
        if self._by_metadata:
            asked.name = self._name(asked.name, call)
        asked.functions = self._functions
        if not self._functions and self._calls_function(asked):
            raise closed("functions")
        if asked.functions:  # otherwise checked where the request waits for its model
            response = self._core.requests.infer_now(
                asked.name, asked.version, asked.read, _LONGEST_S
            )
            if response is not None:
                return response
        asked.headers = call.metadata
        return None

    def _calls_function(self, asked: InferMessage) -> bool:
        """True if the model that is *asked* for is a function; checked again where it runs."""
        try:
            return self._core.status.calls_function(asked.name, asked.version)
        except WorkbenchError:  # the request reports it
            return False

    def _stream(self, messages: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        """The replies to each request, in the order of these; errors are replies too."""
        call = Rpc(context)
        stream = Stream(lambda data: self._begin_of_stream(data, call))
        call.when_gone(stream.end)
        try:
            with self._core.draining.calls(stream.finish):
                for begun in stream.begun(messages):
                    try:
                        while (reply := begun.replies.take().result()) is not None:
                            yield reply
                    except Exception as error:  # the client must hear of it, whatever it is
                        yield error_in_stream(message_of(error, told(error)), begun.id)
            if stream.was_cut:
                raise ServerNotRunning("the server is stopping")
        except (ThreadsExhausted, ServerNotRunning) as error:
            abort(context, error)

    def _begin_of_stream(self, data: bytes, call: Rpc) -> Begun:
        asked: InferMessage | None = None
        try:
            asked = InferMessage(data, self._rules, self._write_region)
            replies = self._replies(asked, data, call)
        except Exception as error:  # the reply reports it
            replies = OneReply(error)
        if asked is None:
            return Begun("", replies)
        # not the request itself: it is freed before its reply is taken
        return Begun(asked.message.id, replies)

    def _replies(self, asked: InferMessage, data: bytes, call: Rpc) -> Replies:
        """The replies to one request; a model that gives several is leased until all are taken."""
        response = self._answer_now(asked, call)
        if response is not None:
            return OneReply(asked.encode_in_stream(response))

        def write(response: InferResponse) -> bytes | None:
            if not response.outputs and not asked.wants_empty_end:
                return None
            return asked.encode_in_stream(response)

        return self._core.requests.stream(
            asked.name, asked.version, asked.read, write=write, **_sized(data)
        )


_IDS = ("mm-model-id", "mm-model-id-bin")  # of ModelMesh; what is not ASCII comes in the latter

_GROUPS = {
    "RepositoryIndex": "model-repository",
    "RepositoryModelLoad": "model-repository",
    "RepositoryModelUnload": "model-repository",
}


def _reply(method: str) -> Any:
    return message_class(_FILE, f"inference.{method}Response")()


def _plain(value: Any) -> Any:
    """A *value* of mappings and sequences as protobuf reads it."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value


def _check_repository(asked: Any) -> None:
    if asked.repository_name:
        raise NotSupported("no repository can be named: leave repository_name empty")


def _given(asked: Any) -> Iterator[tuple[str, object]]:
    for key, value in asked.parameters.items():
        yield key, _value(value)


def _value(given: Any) -> object:
    kind = given.WhichOneof("parameter_choice")
    return None if kind is None else getattr(given, kind)


def _sized(data: bytes) -> _Sized:
    return {"nbytes": len(data), "quick": len(data) <= _INLINE_NBYTES}
