"""Rewrites ONNX models so that no integer division, zero or matrix ends the process.

Nodes are added before each dangerous division (``header.division`` finds them): where the
divisor is -1, both operands are multiplied by -1, which changes neither quotient nor remainder.
The least number divided by -1, which has no quotient, then gives the least number and the
remainder 0, as ONNX Runtime answers for INT8 and INT16, and NumPy for all integers.

Before a node that takes no zero (``header.zeros``), that number or the count of elements is divided
by itself, which ONNX Runtime refuses for 0; the node's input is multiplied by the quotient, 1, or
reshaped to its own shape times that. So is the input that must have square matrices, by whether it
has, and that of a pooling window, by how often each of its least sizes fits. The empty name of an
input may end the process at the load; as the last one it is left out.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

from workbench.backends.onnx.errors import GUARDS
from workbench.backends.onnx.header.file import OnnxFile
from workbench.backends.onnx.header.zeros import Demand, Fragile
from workbench.backends.onnx.zip_maps import take_apart
from workbench.errors import LoadFailed
from workbench.protos import message_class

_DOUBLE, _INT32, _INT64 = 11, 6, 7  # TensorProto.DataType
_FORMS = {_DOUBLE: "<d", _INT32: "<i", _INT64: "<q"}
_INT, _TENSOR = 2, 4  # AttributeProto.AttributeType
_OPSET_OF_WHERE, _OPSET_OF_CAST_LIKE = 9, 15


def guarded(file: OnnxFile) -> bytes:
    """The bytes of the model in *file* with its ``guards``, without its ZipMaps; its weights stay.

    Raises ``LoadFailed`` if its operator set has no guards for them, or the file changed.
    """
    message: Any = message_class("onnx", "onnx.Model")()
    message.ParseFromString(file.path.read_bytes())
    take_apart(message)
    # beginning with the last, so that the indices of the others stay valid
    guards = sorted(file.guards, key=lambda each: each.path, reverse=True)
    for number, each in enumerate(guards):
        try:
            nodes, index = _place(message, each.path)
            node = nodes[index]
        except IndexError:
            raise LoadFailed("the file changed while it was loaded") from None
        guard = _Guard(nodes, index, number)
        if isinstance(each, Fragile):
            guard.add_to_inputs(node, each)
        else:
            guard.add_to_division(node, each.elem_type, file.opset)
    content: bytes = message.SerializeToString()
    return content


def _place(message: Any, at: Sequence[int]) -> tuple[Any, int]:
    """The list of nodes that contains the one *at* a ``Division.path``, and its index in it."""
    where, *path, index = at
    nodes = (message.graph if where < 0 else message.functions[where]).node
    for outer, inner in zip(path[::2], path[1::2], strict=True):
        nodes = list(_graphs(nodes[outer]))[inner].node
    return nodes, index


def _graphs(node: Any) -> Iterator[Any]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


class _Guard:
    """Inserts nodes at *index* of *nodes*; by *number* their names differ from those of others."""

    def __init__(self, nodes: Any, index: int, number: int) -> None:
        self._nodes = nodes
        self._index = index
        self._prefix = f"{GUARDS}/{number}"

    def add_to_inputs(self, node: Any, fragile: Fragile) -> None:
        """Let the run fail if one of the inputs of *node* is not as it is needed."""
        told = f"{node.op_type.decode()} {_name(node)!r}"
        for index, need in fragile.inputs:
            if need is Demand.NAME:
                del node.input[index:]
                continue
            if index >= len(node.input) or not node.input[index]:
                raise LoadFailed("the file changed while it was loaded")
            given = node.input[index]
            count = self._count(given, need, fragile.least)
            one = self._node(b"Div", count, count, name=f"{told} got {need.value}")
            if need is Demand.NUMBER:
                node.input[index] = self._node(b"Mul", given, one)
            else:
                shape = self._node(b"Mul", self._node(b"Shape", given), one)
                node.input[index] = self._node(b"Reshape", given, shape)

    def _count(self, given: bytes, need: Demand, least: Sequence[int]) -> bytes:
        """A number that is 0 if *given* is not as it is needed."""
        if need is Demand.NUMBER:
            return given
        if need is Demand.ELEMENTS:
            return self._node(b"Size", given)
        shape = self._node(b"Shape", given)
        if need is Demand.WINDOW:
            places = self._constants(range(2, 2 + len(least)))
            rounds = self._node(
                b"Div", self._node(b"Gather", shape, places), self._constants(least)
            )
            return self._node(b"ReduceProd", rounds)
        sizes = [self._node(b"Gather", shape, self._constant(_INT64, at)) for at in (-2, -1)]
        return self._node(b"Cast", self._node(b"Equal", *sizes), to=_INT64)

    def add_to_division(self, division: Any, elem_type: int, opset: int) -> None:
        """Guard the node *division*, whose operands are of *elem_type*, 0 if that is unknown."""
        if division.op_type not in (b"Div", b"Mod"):
            raise LoadFailed("the file changed while it was loaded")
        if opset < (_OPSET_OF_WHERE if elem_type else _OPSET_OF_CAST_LIKE):
            raise LoadFailed(_refusal(division, elem_type, opset))
        divisor = division.input[1]
        compared = divisor if elem_type else self._node(b"Cast", divisor, to=_DOUBLE)
        minus_one, one = (self._constant(elem_type or _DOUBLE, number) for number in (-1, 1))
        is_minus_one = self._node(b"Equal", compared, minus_one)
        factor = self._node(b"Where", is_minus_one, minus_one, one)
        if not elem_type:
            factor = self._node(b"CastLike", factor, divisor)
        operands = [self._node(b"Mul", name, factor) for name in division.input]
        division.ClearField("input")
        division.input.extend(operands)

    def _constant(self, elem_type: int, number: int) -> bytes:
        name = self._node(b"Constant")
        value = self._nodes[self._index - 1].attribute.add(name=b"value", type=_TENSOR).t
        value.data_type, value.raw_data = elem_type, struct.pack(_FORMS[elem_type], number)
        return name

    def _constants(self, numbers: Sequence[int]) -> bytes:
        """A vector of INT64."""
        name = self._constant(_INT64, 0)
        value = self._nodes[self._index - 1].attribute[0].t
        value.dims.append(len(numbers))
        value.raw_data = struct.pack(f"<{len(numbers)}q", *numbers)
        return name

    def _node(self, op: bytes, *inputs: bytes, to: int = 0, name: str = "") -> bytes:
        """Add a node in front of the one that is guarded; its output."""
        full_name = f"{self._prefix}/{self._index}/{name or op.decode()}".encode()
        node = type(self._nodes[self._index])(
            input=inputs, output=[full_name], name=full_name, op_type=op
        )
        if to:
            node.attribute.add(name=b"to", type=_INT, i=to)
        self._nodes.insert(self._index, node)
        self._index += 1
        return full_name


def _name(node: Any) -> str:
    found: bytes = node.name or next(filter(None, node.output), b"")
    return found.decode("utf-8", "replace")


def _refusal(division: Any, elem_type: int, opset: int) -> str:
    name = _name(division)
    needed = _OPSET_OF_WHERE if elem_type else _OPSET_OF_CAST_LIKE
    or_typed = "" if elem_type else ", or save it with the types of its values"
    return (
        f"its {division.op_type.decode()} node {name!r} may divide the least integer by -1, which "
        f"ends the process, and operator set {opset} cannot guard it: convert it to operator set "
        f"{needed} or later{or_typed}"
    )
