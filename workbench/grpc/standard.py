"""gRPC's own services: health checks, and reflection, which tools such as grpcurl ask for.

The messages are our own. Those of grpcio-health-checking and grpcio-reflection are in protobuf's
default pool, and need a newer protobuf than clients may have.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any

import grpc
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.message import Message
from grpc import StatusCode

from workbench.core import ServerCore
from workbench.grpc.service import Service
from workbench.protos import file_pool, message_class

HEALTH = "grpc.health.v1.Health"
REFLECTION = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")

_SERVING, _NOT_SERVING, _SERVICE_UNKNOWN = 1, 2, 3


def health(names: Iterable[str], core: ServerCore) -> Service:
    """Tells whether the services *names*, and the server itself (``""``), are ready."""
    known = {"", *names}
    request: Any = message_class("health", "grpc.health.v1.HealthCheckRequest")
    response: Any = message_class("health", "grpc.health.v1.HealthCheckResponse")
    listed: Any = message_class("health", "grpc.health.v1.HealthListResponse")

    def now() -> int:
        return _SERVING if core.is_ready else _NOT_SERVING

    def check(asked: Any, context: grpc.ServicerContext) -> Message:
        if asked.service not in known:
            context.abort(StatusCode.NOT_FOUND, f"there is no service {asked.service!r}")
        made: Message = response(status=now())
        return made

    def show(_: bytes, __: grpc.ServicerContext) -> Message:
        made: Message = listed(statuses={name: response(status=now()) for name in known})
        return made

    def watch(asked: Any, context: grpc.ServicerContext) -> Iterator[Message]:
        ended, stops = threading.Event(), core.draining
        if context.add_callback(ended.set):
            yield response(status=now() if asked.service in known else _SERVICE_UNKNOWN)
            with stops.calls(ended.set):
                ended.wait()
            if stops.error is not None:
                yield response(status=_NOT_SERVING)

    written = response.SerializeToString
    methods = {
        "Check": grpc.unary_unary_rpc_method_handler(check, request.FromString, written),
        "List": grpc.unary_unary_rpc_method_handler(show, None, listed.SerializeToString),
        "Watch": grpc.unary_stream_rpc_method_handler(watch, request.FromString, written),
    }
    return Service(HEALTH, "health", methods)


def reflection(services: Iterable[Service], core: ServerCore) -> tuple[Service, ...]:
    """Describes *services*, under both names that clients ask for."""
    served = {each.name: each.file for each in services}
    pools = [file_pool(file) for file in dict.fromkeys((*served.values(), "reflection"))]
    request: Any = message_class("reflection", f"{_PACKAGE}.ServerReflectionRequest")
    response: Any = message_class("reflection", f"{_PACKAGE}.ServerReflectionResponse")

    def find(asked: Any) -> FileDescriptor | None:
        for pool in pools:
            try:
                if asked.HasField("file_by_filename"):
                    return pool.FindFileByName(asked.file_by_filename)
                return pool.FindFileContainingSymbol(asked.file_containing_symbol)
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


def _with_imports(file: FileDescriptor) -> dict[str, FileDescriptor]:
    found = {file.name: file}
    for imported in file.dependencies:
        found |= _with_imports(imported)
    return found
