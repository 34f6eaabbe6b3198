"""Rewrites of ONNX models that converters made, so that they take and give what is served."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from workbench.backends.onnx.errors import GUARDS
from workbench.backends.onnx.header.file import COLUMNS
from workbench.backends.onnx.zip_maps import with_tensors
from workbench.objects.hints import Hint
from workbench.tensor import Array

_OURS = "workbench/conversion"
_OPSET_OF_COMPARISONS = 9
Refused = Mapping[str, Mapping[str, Sequence[bool]]]
"""By the names of inputs, and by keys of ``REFUSED``: which of the columns may not be that."""
REFUSED = {"NaN": np.nan, "infinity": np.inf, "a negative number": -1}
"""What a model can be made to refuse, in words, and an example of it."""


def with_outputs(model: Any, outputs: Mapping[str, Hint]) -> Any:
    """*model* with only its first outputs, named and shaped as *outputs*, of any number of rows.

    ZipMaps are taken apart. Raises ``UsageError`` for other sequences.
    """
    from onnx import TensorProto, load_from_string
    from onnx.helper import make_node, make_tensor_value_info

    model = load_from_string(with_tensors(model.SerializeToString()))
    _have_opset(model)
    graph = model.graph
    given = list(graph.output)[: len(outputs)]
    del graph.output[:]
    for number, (value, (name, hint)) in enumerate(zip(given, outputs.items(), strict=True)):
        inner, kind = f"{_OURS}/inner/{number}", value.type.tensor_type.elem_type
        _rename(graph, name, inner)
        source = inner if value.name == name else value.name
        if hint.datatype == "BOOL" and kind == TensorProto.INT64:
            kind, cast = TensorProto.BOOL, f"{_OURS}/cast/{number}"
            graph.node.append(make_node("Cast", [source], [cast], to=kind))
            source = cast
        if len(hint.shape) == 1:
            shape = _constant(graph.node, np.array([-1]), f"{_OURS}/shape/{number}")
            graph.node.append(make_node("Reshape", [source, shape], [name]))
        else:
            graph.node.append(make_node("Identity", [source], [name]))
        sizes = [None if size == -1 else size for size in hint.shape[1:]]
        graph.output.append(make_tensor_value_info(name, kind, ["rows", *sizes]))
    return model


def with_any_sizes(model: Any, axes: Sequence[Sequence[int]]) -> None:
    """Let each output of *model* have any size on its *axes*."""
    for number, (output, free) in enumerate(zip(model.graph.output, axes, strict=True)):
        for axis in free:
            dimension = output.type.tensor_type.shape.dim[axis]
            if not dimension.dim_param:
                dimension.dim_param = f"size_{number}_{axis}"


def name_inputs(graph: Any, names: Sequence[str]) -> None:
    """Give the inputs of *graph* their *names*: skl2onnx writes ``a_b`` for ``a b``."""
    for number, (value, name) in enumerate(zip(graph.input, names, strict=True)):
        if value.name != name:
            _rename(graph, name, f"{_OURS}/named/{number}")
            _rename(graph, value.name, name)
            value.name = name


def take_matrix(graph: Any, name: str) -> None:
    """Have the inputs of *graph* be columns of one input, the matrix *name*, in their order."""
    from onnx.helper import make_node, make_tensor_value_info

    columns = list(graph.input)
    nodes: list[Any] = []
    for number, column in enumerate(columns):
        inner = f"{_OURS}/column/{number}"
        _rename(graph, column.name, inner)
        place = _constant(nodes, np.array([number]), f"{_OURS}/place/{number}")
        nodes.append(make_node("Gather", [name, place], [inner], axis=1))
    kind = columns[0].type.tensor_type.elem_type
    del graph.input[:]
    graph.input.append(make_tensor_value_info(name, kind, ["rows", len(columns)]))
    _put_first(graph, nodes)


def name_columns(model: Any, columns: Sequence[str]) -> None:
    """Write into the metadata of *model* what the *columns* of its matrix are called."""
    if columns:
        model.metadata_props.add(key=COLUMNS, value=json.dumps(list(columns)))


def refuse(model: Any, refused: Refused) -> None:
    """Have *model* refuse numbers that the original refuses.

    An input is reshaped to its own shape, to which the count of such numbers is added: without
    them it stays as it is, and with them there is no such shape, in any engine.
    """
    from onnx import TensorProto
    from onnx.helper import make_node

    nodes: list[Any] = []
    limits = {
        "infinity": np.array([np.inf], np.float32),
        "largest": np.array([np.finfo(np.float32).max]),
        "zero": np.array([0]),
    }
    for name, limit in limits.items():
        _constant(nodes, limit, f"{_OURS}/{name}")
    for number, (name, kinds) in enumerate(refused.items()):
        at = f"{_OURS}/refused/{number}"
        if "a negative number" in kinds:
            nodes.append(make_node("Less", [name, f"{_OURS}/zero"], [f"{at}/a negative number"]))
        else:
            nodes += [
                make_node("Abs", [name], [f"{at}/size"]),
                make_node("Less", [f"{at}/size", f"{_OURS}/infinity"], [f"{at}/finite"]),
                make_node("Greater", [f"{at}/size", f"{_OURS}/largest"], [f"{at}/infinity"]),
                make_node("Or", [f"{at}/finite", f"{at}/infinity"], [f"{at}/number"]),
                make_node("Not", [f"{at}/number"], [f"{at}/NaN"]),
            ]
        counts = []
        for kind, columns in kinds.items():
            mask = _constant(nodes, np.array(columns), f"{at}/{kind}/columns")
            nodes += [
                make_node("And", [f"{at}/{kind}", mask], [f"{at}/{kind}/here"]),
                make_node(
                    "Cast", [f"{at}/{kind}/here"], [f"{at}/{kind}/ones"], to=TensorProto.INT64
                ),
                make_node("ReduceSum", [f"{at}/{kind}/ones"], [f"{at}/{kind}/count"], keepdims=0),
            ]
            counts.append(f"{at}/{kind}/count")
        shape, taken = f"{at}/shape", f"{at}/taken"
        nodes.append(make_node("Shape", [name], [shape]))
        for count in counts:
            nodes.append(make_node("Add", [shape, count], [f"{count}/added"]))
            shape = f"{count}/added"
        told = f"{GUARDS}/0/0/input {name!r} has {' or '.join(kinds)}"
        _rename(model.graph, name, taken)
        nodes.append(make_node("Reshape", [name, shape], [taken], name=told))
    _put_first(model.graph, nodes)


def _have_opset(model: Any) -> None:
    """Let *model* be of the first operator set that compares floats, or a later one."""
    for each in model.opset_import:
        if not each.domain:
            each.version = max(each.version, _OPSET_OF_COMPARISONS)
            return
    model.opset_import.add(domain="", version=_OPSET_OF_COMPARISONS)


def _put_first(graph: Any, nodes: Sequence[Any]) -> None:
    rest = list(graph.node)
    del graph.node[:]
    graph.node.extend([*nodes, *rest])


def _constant(nodes: Any, values: Array, name: str) -> str:
    """Add a node that makes the vector *values*; its output."""
    from onnx.helper import make_node
    from onnx.numpy_helper import from_array

    nodes.append(make_node("Constant", [], [name], value=from_array(values)))
    return name


def _rename(graph: Any, name: str, new: str) -> None:
    """Call the value *name* by a *new* name in the nodes of *graph*, and in their own graphs."""
    for node in graph.node:
        for names in (node.input, node.output):
            for index, each in enumerate(names):
                if each == name:
                    names[index] = new
        for attribute in node.attribute:
            inner = [attribute.g] if attribute.HasField("g") else []
            for each in (*inner, *attribute.graphs):
                _rename(each, name, new)
