"""Align the weights of a prepared model in its file.

ONNX Runtime 1.31 writes packed weights one after the other, and reads them with instructions
that end the process unless the address is a multiple of 64: a matrix of 255 x 255 is enough for a
crash. Here each weight is moved to the start of a page.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from workbench.protos import message_class

_PAGE_NBYTES = 4096
_PACKED = "prepacked_"


def realign(model: Path, weights: Path) -> None:
    """Rewrite *weights* with each at a page, and the offsets in *model*.

    Raises ``OSError``, and ``ValueError`` for a file of weights that is too short.
    """
    message: Any = message_class("onnx", "onnx.Model")()
    message.ParseFromString(model.read_bytes())
    part = weights.with_suffix(".part")
    with weights.open("rb") as source, part.open("wb") as target:
        for tensor in _tensors(message.graph):
            _move(tensor, source, target)
    part.replace(weights)
    model.write_bytes(message.SerializeToString())


def _move(tensor: Any, source: BinaryIO, target: BinaryIO) -> None:
    """Copy the weights of *tensor*, plain and packed, and set their new offsets in it."""
    entries = {entry.key: entry for entry in tensor.external_data}
    if not entries:
        return
    offset, length = int(entries["offset"].value), int(entries["length"].value)
    entries["offset"].value = str(_copied(source, offset, length, target))
    for key, entry in entries.items():
        if key.startswith(_PACKED):
            # The kernel that reads it, and the offsets of its buffers.
            name, *places = entry.value.split("|")
            entry.value = "|".join([name, *(_moved(place, source, target) for place in places)])


def _moved(place: str, source: BinaryIO, target: BinaryIO) -> str:
    offset, length, *more = place.split(";")
    return ";".join([str(_copied(source, int(offset), int(length), target)), length, *more])


def _copied(source: BinaryIO, offset: int, length: int, target: BinaryIO) -> int:
    """Copy *length* bytes to the next page of *target*; their new offset."""
    begin = -(-target.tell() // _PAGE_NBYTES) * _PAGE_NBYTES
    target.seek(begin)
    source.seek(offset)
    left = length
    while left:
        data = source.read(min(left, 1 << 22))
        if not data:
            raise ValueError(f"the weights end before byte {offset + length}")
        target.write(data)
        left -= len(data)
    return begin


def _tensors(graph: Any) -> Iterator[Any]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from _tensors(inner)
