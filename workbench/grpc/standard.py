"""gRPC's own services: health checks, and reflection, which tools such as grpcurl ask for.

The messages are our own. Those of grpcio-health-checking and grpcio-reflection are in protobuf's
default pool, and need a newer protobuf than clients may have.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any

import grpc
from google.protobuf import text_format
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from grpc import StatusCode

from workbench.core import ServerCore
from workbench.errors import InvalidRequest, ModelNotFound, WorkbenchError
from workbench.grpc.convert import parse
from workbench.grpc.service import Rpc, Service, methods_of
from workbench.grpc.status import PLACED_UNNAMED, STATUS, abort
from workbench.protos import file_pool, message_class

HEALTH = "grpc.health.v1.Health"
REFLECTION = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")

_SERVING, _NOT_SERVING, _SERVICE_UNKNOWN = 1, 2, 3
_LOOK_S = 1.0  # between two looks at what is watched: not all changes are events


def health(names: Iterable[str], core: ServerCore) -> Service:
    """Tells whether the server (``""``), its services *names*, and its models are ready.

    A model is asked for by its name.
    """
    table = PLACED_UNNAMED if core.settings.placed else STATUS
    known = {"", *names}
    request: Any = message_class("health", "grpc.health.v1.HealthCheckRequest")
    response: Any = message_class("health", "grpc.health.v1.HealthCheckResponse")
    listed: Any = message_class("health", "grpc.health.v1.HealthListResponse")

    def now(name: str) -> int:
        return _status(core, "" if name in known else name)

    def check(asked: Any, _: Rpc) -> Any:
        status = now(asked.service)
        if status == _SERVICE_UNKNOWN:
            raise ModelNotFound(f"there is no service and no model {asked.service!r}")
        return response(status=status)

    def show(*_: Any) -> Any:
        return listed(statuses={name: response(status=now(name)) for name in known})

    def watch(data: bytes, context: grpc.ServicerContext) -> Iterator[Message]:
        asked = _read(request, data, context)
        ended, stops, told = threading.Event(), core.draining, 0
        if not context.add_callback(ended.set):
            return
        with stops.calls(ended.set):
            while not ended.is_set():
                status = now(asked.service)
                if status != told:
                    yield response(status=status)
                    told = status
                ended.wait(_LOOK_S)
        if stops.error is not None and told != _NOT_SERVING:
            yield response(status=_NOT_SERVING)

    written = response.SerializeToString
    raw = {"Watch": grpc.unary_stream_rpc_method_handler(watch, None, written)}
    answers = {"Check": check, "List": show}
    methods = methods_of("health", HEALTH, answers, raw, lambda _: table)
    return Service(HEALTH, "health", methods)


def _read(kind: type[Message], data: bytes, context: grpc.ServicerContext) -> Any:
    try:
        return parse(kind, data)
    except InvalidRequest as error:
        abort(context, error)


def _status(core: ServerCore, model: str) -> int:
    """The status of *model*; of the server if it is ``""``."""
    try:
        if model:
            core.status.check_ready(model)
    except ModelNotFound:
        return _SERVICE_UNKNOWN
    except WorkbenchError:
        return _NOT_SERVING
    return _SERVING if core.status.is_ready else _NOT_SERVING


def reflection(services: Iterable[Service], core: ServerCore) -> tuple[Service, ...]:
    """Describes *services*, under both names that clients ask for."""
    served = {each.name: each.file for each in services}
    pools = [file_pool(file) for file in dict.fromkeys((*served.values(), "reflection"))]
    pools.append(_of_v1(pools[-1].FindFileByName("reflection.proto")))
    request: Any = message_class("reflection", f"{_PACKAGE}.ServerReflectionRequest")
    response: Any = message_class("reflection", f"{_PACKAGE}.ServerReflectionResponse")

    def find(asked: Any) -> FileDescriptor | None:
        for pool in pools:
            try:
                if asked.HasField("file_by_filename"):
                    return pool.FindFileByName(asked.file_by_filename)
                return _file_of(pool, asked.file_containing_symbol)
            except KeyError:
                continue
        return None

    def answer(asked: Any) -> Any:
        told = response(original_request=asked)
        kind = asked.WhichOneof("message_request")
        if kind == "list_services":
            for name in sorted({*served, *REFLECTION}):
                told.list_services_response.service.add(name=name)
            return told
        found = find(asked) if kind in ("file_by_filename", "file_containing_symbol") else None
        if found is not None:
            files = told.file_descriptor_response.file_descriptor_proto
            files.extend(each.serialized_pb for each in _with_imports(found).values())
            return told
        told.error_response.error_code = StatusCode.NOT_FOUND.value[0]
        told.error_response.error_message = "there is nothing of that name"
        return told

    def handle(messages: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        with core.draining.calls(context.cancel):
            yield from map(answer, messages)

    handler = grpc.stream_stream_rpc_method_handler(
        handle, request.FromString, response.SerializeToString
    )
    methods = {"ServerReflectionInfo": handler}
    return tuple(Service(name, "reflection", methods) for name in REFLECTION)


_PACKAGE = "grpc.reflection.v1alpha"


def _of_v1(file: FileDescriptor) -> DescriptorPool:
    """The pool of reflection's version v1: v1alpha's *file*, under another package."""
    alpha, pool = FileDescriptorProto.FromString(file.serialized_pb), DescriptorPool()
    text = str(alpha).replace("v1alpha", "v1").replace(file.name, f"v1/{file.name}")
    pool.Add(text_format.Parse(text, FileDescriptorProto()))
    return pool


def _file_of(pool: DescriptorPool, symbol: str) -> FileDescriptor:
    """The file that declares *symbol*, also a method's. Raises ``KeyError``."""
    try:
        return pool.FindFileContainingSymbol(symbol)
    except KeyError:  # Python's pools do not find methods
        service, _, method = symbol.rpartition(".")
        return pool.FindServiceByName(service).methods_by_name[method].containing_service.file


def _with_imports(file: FileDescriptor) -> dict[str, FileDescriptor]:
    found = {file.name: file}
    for imported in file.dependencies:
        found |= _with_imports(imported)
    return found
