"""The wires' messages, in a descriptor pool of our own.

Client libraries register the same ``inference.*`` names in protobuf's default
pool, and a second registration there is an error; ours would break the clients
of the very notebook we run in. So each ``.proto`` file beside this one is
compiled to a descriptor set (``.binpb``) and built into a private pool.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message


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


@cache
def message_class(file: str, name: str) -> type[Message]:
    """The class of message *name* (``"inference.ModelConfig"``) of ``<file>.proto``."""
    descriptor = file_pool(file).FindMessageTypeByName(name)
    made: type[Message] = message_factory.GetMessageClass(descriptor)
    return made


def service(file: str, name: str) -> Any:
    """The descriptor of service *name* of ``<file>.proto``: its methods and their messages."""
    return file_pool(file).FindServiceByName(name)
