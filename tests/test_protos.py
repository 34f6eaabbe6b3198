"""The compiled messages: they are what the .proto files say, and Triton's where they overlap."""

import gc
import json
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from google.protobuf.descriptor import Descriptor, EnumDescriptor
from other_process import python

import workbench.protos
from workbench.protos import file_pool, message_class

FOLDER = Path(workbench.protos.__file__).parent
FILES = sorted(path.stem for path in FOLDER.glob("*.proto"))
CONFIG = "inference.ModelConfig"

# Runs in a process of its own: tritonclient registers its messages in protobuf's default pool.
_THEIRS = """
import json, sys
try:
    from tritonclient.grpc import model_config_pb2 as theirs
except Exception as error:
    print(f"{type(error).__name__}: {error}")
    sys.exit(3)
from google.protobuf import descriptor_pool
pool = descriptor_pool.Default()
def fields(name):
    found = pool.FindMessageTypeByName(name)
    return {f.name: [f.number, f.type, f.is_repeated, f.message_type and f.message_type.full_name,
                     f.enum_type and f.enum_type.full_name,
                     f.containing_oneof and f.containing_oneof.name] for f in found.fields}
wanted = json.loads(sys.argv[1])
print(json.dumps({
    "messages": {name: fields(name) for name in wanted["messages"]},
    "enums": {name: {v.name: v.number for v in pool.FindEnumTypeByName(name).values}
              for name in wanted["enums"]},
}))
"""


def descriptor(name: str = CONFIG) -> Descriptor:
    made: Descriptor = message_class("model_config", name).DESCRIPTOR
    return made


def every(top: Descriptor) -> tuple[dict[str, Descriptor], dict[str, EnumDescriptor]]:
    """All messages and enums that *top* reaches through its fields, by full name."""
    messages: dict[str, Descriptor] = {}
    enums: dict[str, EnumDescriptor] = {}
    todo = [top]
    while todo:
        message = todo.pop()
        messages[message.full_name] = message
        for field in message.fields:
            if field.message_type and field.message_type.full_name not in messages:
                todo.append(field.message_type)
            if field.enum_type:
                enums[field.enum_type.full_name] = field.enum_type
    return messages, enums


def shape_of(field: Any) -> list[Any]:
    return [
        field.number,
        field.type,
        field.is_repeated,
        field.message_type and field.message_type.full_name,
        field.enum_type and field.enum_type.full_name,
        field.containing_oneof and field.containing_oneof.name,
    ]


@pytest.fixture(scope="module")
def theirs() -> dict[str, Any]:
    """What tritonclient declares under the names of our messages and enums."""
    messages, enums = every(descriptor())
    wanted = json.dumps({"messages": list(messages), "enums": list(enums)})
    run = python(_THEIRS, wanted, check=False, PYTHONWARNINGS="ignore")
    if run.returncode == 3:
        pytest.skip(f"tritonclient.grpc cannot be imported here: {run.stdout.strip()}")
    assert run.returncode == 0, run.stderr
    found: dict[str, Any] = json.loads(run.stdout)
    return found


@pytest.mark.parametrize("file", FILES)
def test_compiled_from_its_source(file: str, tmp_path: Path) -> None:
    """Each committed descriptor set is what protoc makes of the .proto file beside it."""
    tool = pytest.importorskip("grpc_tools.protoc", reason="grpcio-tools compiles the .proto files")
    out = tmp_path / f"{file}.binpb"
    command = ["protoc", f"-I{FOLDER}", f"--descriptor_set_out={out}", f"{file}.proto"]
    assert tool.main(command) == 0
    compiled, committed = (
        descriptor_pb2.FileDescriptorSet.FromString(path.read_bytes())
        for path in (out, FOLDER / f"{file}.binpb")
    )
    assert committed == compiled


def test_every_source_is_compiled() -> None:
    """There is a descriptor set for each .proto file and no other."""
    assert sorted(path.stem for path in FOLDER.glob("*.binpb")) == FILES
    assert "model_config" in FILES


def test_our_messages_are_not_in_the_default_pool() -> None:
    """Our messages are in a pool of our own, where no client library can collide with them."""
    pool = descriptor().file.pool
    assert pool is not descriptor_pool.Default()
    assert message_class("model_config", CONFIG) is message_class("model_config", CONFIG)


# Threads may read a field during a collection: here the callback of a weak reference does.
_READ_IN_A_COLLECTION = """
import gc, weakref
import numpy as np
from workbench.protos import message_class

message = message_class("model_config", "inference.ModelConfig")()
message.dynamic_batching.preserve_ordering = True
batching = message.dynamic_batching
read = []

class Garbage:
    pass

gc.collect()
gc.disable()
garbage = Garbage()
garbage.itself, garbage.array = garbage, np.zeros(3)
reference = weakref.ref(garbage.array, lambda _: read.append(batching.default_queue_policy))
del garbage
batching.default_queue_policy
gc.collect()
assert read
print(read[0].DESCRIPTOR.name)
"""


def test_a_message_that_is_read_during_a_garbage_collection() -> None:
    """A message that is read while the garbage collector runs is whole afterwards."""
    assert python(_READ_IN_A_COLLECTION).stdout == "ModelQueuePolicy\n"


@pytest.mark.parametrize("file", FILES)
def test_no_class_of_a_message_is_collected(file: str) -> None:
    """The garbage collector leaves the classes of all messages, also of those that nobody uses."""

    def classes(messages: Iterable[Descriptor]) -> Iterator[weakref.ref[Any]]:
        for message in messages:
            yield weakref.ref(message_factory.GetMessageClass(message))
            yield from classes(message.nested_types)

    messages = file_pool(file).FindFileByName(f"{file}.proto").message_types_by_name.values()
    found = list(classes(messages))
    gc.collect()
    assert len(found) >= 5
    assert None not in [each() for each in found]


def test_an_unknown_message() -> None:
    """A name that is in no file is a KeyError."""
    with pytest.raises(KeyError):
        message_class("model_config", "inference.Nope")


def test_fields_are_tritons(theirs: dict[str, Any]) -> None:
    """All fields are Triton's, by name, number, type, label and oneof, and none is missing."""
    messages, _ = every(descriptor())
    assert len(messages) == 57
    for name, message in messages.items():
        assert {each.name: shape_of(each) for each in message.fields} == theirs["messages"][name]


def test_enums_are_tritons(theirs: dict[str, Any]) -> None:
    """Every value of our enums has Triton's number, and none of Triton's is missing."""
    _, enums = every(descriptor())
    for name, enum in enums.items():
        assert {v.name: v.number for v in enum.values} == theirs["enums"][name]


def test_a_config_round_trip() -> None:
    """A configuration in text form comes back from its bytes and its text unchanged."""
    text = 'name: "m" max_batch_size: 8 input { name: "x" data_type: TYPE_FP32 dims: [-1, 3] }'
    cls = message_class("model_config", CONFIG)
    message = text_format.Parse(text, cls())
    assert cls.FromString(message.SerializeToString()) == message
    assert text_format.Parse(text_format.MessageToString(message), cls()) == message
