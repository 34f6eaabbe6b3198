"""The wires' messages, in a descriptor pool of our own.

Client libraries register the same ``inference.*`` names in protobuf's default
pool, and a second registration there is an error; ours would break the clients
of the very notebook we run in. So each ``.proto`` file beside this one is
compiled to a descriptor set (``.binpb``) and built into a private pool.

The classes of all messages are made at once and kept. protobuf makes the class of a field's message
when it is first needed, and finds it again through a cache that holds no reference: a thread that
reads the field while the garbage collector clears the class would crash the process.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import resources
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

_KEPT: list[type[Message]] = []


@cache
def file_pool(file: str) -> descriptor_pool.DescriptorPool:
    """The pool of ``<file>.proto`` and the files that it imports."""
    pool = descriptor_pool.DescriptorPool()
    _add(pool, f"{file}.proto")
    return pool


def _add(pool: descriptor_pool.DescriptorPool, name: str) -> None:
    compiled = resources.files(__name__).joinpath(name.replace(".proto", ".binpb")).read_bytes()
    for proto in descriptor_pb2.FileDescriptorSet.FromString(compiled).file:
        for imported in proto.dependency:
            _add(pool, imported)
        pool.Add(proto)
        _keep_classes(pool.FindFileByName(proto.name).message_types_by_name.values())


def _keep_classes(messages: Iterable[Descriptor]) -> None:
    for message in messages:
        _KEPT.append(message_factory.GetMessageClass(message))
        _keep_classes(message.nested_types)


@cache
def message_class(file: str, name: str) -> type[Message]:
    """The class of message *name* (``"inference.ModelConfig"``) of ``<file>.proto``."""
    descriptor = file_pool(file).FindMessageTypeByName(name)
    made: type[Message] = message_factory.GetMessageClass(descriptor)
    return made


def service(file: str, name: str) -> Any:
    """The descriptor of service *name* of ``<file>.proto``: its methods and their messages."""
    return file_pool(file).FindServiceByName(name)
