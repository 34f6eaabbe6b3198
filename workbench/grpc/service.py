"""Our form of a gRPC service: a table of its methods, and helpers for each call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from workbench.auth import token_of
from workbench.grpc.convert import parse
from workbench.grpc.status import STATUS, Table, abort
from workbench.protos import service
from workbench.tokens import same

T = TypeVar("T")

Metadata = tuple[tuple[str, str | bytes], ...]


class Rpc:
    """One call of a client, in *context*."""

    def __init__(self, context: grpc.ServicerContext) -> None:
        self.context = context
        self._waited: Future[Any] | None = None
        self._is_watched = False
        self.told: Callable[[Exception], str] = str  # the message of an error for the client

    @property
    def metadata(self) -> Metadata:
        found: Metadata = self.context.invocation_metadata()
        return found

    def wait(self, future: Future[T]) -> T:
        """The result of *future*, which is cancelled if the client goes or its deadline passes.

        Raises ``CancelledError`` then, and as *future* does.
        """
        self._waited = future
        if self._is_watched:
            is_there = self.context.is_active()
        else:
            self._is_watched = True
            is_there = self.context.add_callback(self._gone)
        if not is_there:
            future.cancel()
        return future.result()

    def _gone(self) -> None:
        if self._waited is not None:
            self._waited.cancel()

    def when_gone(self, end: Callable[[], object]) -> None:
        """Call *end* when the client leaves or the deadline passes; at once if it has."""
        if not self.context.add_callback(end):
            end()

    def carries(self, token: str) -> bool:
        return carries(self.metadata, token)


def carries(metadata: Metadata, token: str) -> bool:
    """True if a call with *metadata* has *token*, in the key ``authorization``."""
    given = [value for key, value in metadata if key == "authorization"]
    if len(given) != 1 or not isinstance(given[0], str):
        return False
    return same(token_of(given[0].encode()), token)


@dataclass(frozen=True, slots=True)
class Service:
    """The service called *name* of ``<file>.proto``, and the handlers of its methods.

    *groups* gives the groups of methods for the setting ``restrict``.
    """

    name: str
    file: str
    methods: Mapping[str, grpc.RpcMethodHandler]
    groups: Mapping[str, str] = field(default_factory=dict)


RpcHandler = Callable[[Any, Rpc], Any]  # from a message to one, or to the fields of one, if any


def methods_of(
    file: str,
    name: str,
    answers: Mapping[str, RpcHandler],
    raw: Mapping[str, grpc.RpcMethodHandler],
    table: Callable[[str], Table] = lambda _: STATUS,
) -> dict[str, grpc.RpcMethodHandler]:
    """The methods of a service that are in *answers* or in *raw*; the others stay unknown.

    *table* gives the codes of errors in a method of *answers*.
    """
    found = dict(raw)
    for method in service(file, name).methods:
        if method.name in answers:
            found[method.name] = unary(method, answers[method.name], table(method.name))
    return found


def unary(method: MethodDescriptor, answer: RpcHandler, table: Table) -> grpc.RpcMethodHandler:
    """A handler that answers one message with one; *table* has the codes of its errors."""
    kind = message_factory.GetMessageClass(method.input_type)
    answered = message_factory.GetMessageClass(method.output_type)

    def handle(data: bytes, context: grpc.ServicerContext) -> bytes:
        call = Rpc(context)
        try:
            found = answer(parse(kind, data), call)
            message = found if isinstance(found, Message) else answered(**(found or {}))
            return bytes(message.SerializeToString())
        except Exception as error:  # the client must hear of it, whatever it is
            abort(context, error, call.told(error), table)

    return grpc.unary_unary_rpc_method_handler(handle)


def refusing(error: Exception) -> grpc.RpcMethodHandler:
    """A handler that answers any call with *error*, without waiting for a message."""

    def handle(_: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        abort(context, error)

    return grpc.stream_stream_rpc_method_handler(handle)
