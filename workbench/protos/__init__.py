"""The wires' messages, in a descriptor pool of our own.

Client libraries register the same ``inference.*`` names in protobuf's default
pool, and a second registration there is an error; ours would break the clients
of the very notebook we run in. So each ``.proto`` file beside this one is
compiled to a descriptor set (``.binpb``) and built into a private pool.
"""

from __future__ import annotations

from functools import cache
from importlib import resources

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message


@cache
def _pool(file: str) -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    compiled = resources.files(__name__).joinpath(f"{file}.binpb").read_bytes()
    for proto in descriptor_pb2.FileDescriptorSet.FromString(compiled).file:
        pool.Add(proto)
    return pool


@cache
def message_class(file: str, name: str) -> type[Message]:
    """The class of message *name* (``"inference.ModelConfig"``) of ``<file>.proto``."""
    descriptor = _pool(file).FindMessageTypeByName(name)
    made: type[Message] = message_factory.GetMessageClass(descriptor)
    return made
