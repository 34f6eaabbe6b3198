"""The graph of an ONNX file: its nodes, its constants without their numbers, its inputs.

Field numbers are those of the public onnx.proto3.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from workbench.backends.onnx.header.fields import Fault, Reader, signed

DEPTH_MAX = 32  # protobuf itself allows 100 nested messages, and a subgraph takes three
_INT64_MAX = 2**63 - 1
FLOAT, INT32, INT64, STRING, HALVES = 1, 6, 7, 8, (10, 16)

# TensorProto.DataType -> bits of an element; a string is counted by its content
BITS = {1: 32, 2: 8, 3: 8, 4: 16, 5: 16, 6: 32, 7: 64, 8: 0, 9: 8, 10: 16, 11: 64, 12: 32}
BITS |= {13: 64, 14: 64, 15: 128, 16: 16, 17: 8, 18: 8, 19: 8, 20: 8, 21: 4, 22: 4, 23: 4}
BITS |= {24: 8, 25: 2, 26: 2, 27: 6, 28: 6}

LABELS = (b"classlabels_int64s", b"classlabels_strings")  # attributes of a ZipMap
NO_SEQUENCE = (
    "which no protocol carries: end the model with ConcatFromSequence, or with one SequenceAt for "
    "each tensor"
)

# Keys of the fields that hold the value of a Constant without a tensor: one number, a list
_LABEL_KEYS = (0x40, 0x42, 0x4A)
_LISTS = {b"float": (0x15, 0x3A, 0x3D), b"int": (0x18, 0x42, 0x40), b"string": (0x22, 0x4A)}
# Key of a typed data field of TensorProto -> (bytes a number takes in the file at
# least, bytes it takes once parsed)
_TYPED = {0x22: (4, 4), 0x25: (5, 4), 0x2A: (1, 4), 0x28: (2, 4), 0x3A: (1, 8), 0x38: (2, 8)}
_TYPED |= {0x52: (8, 8), 0x51: (9, 8), 0x5A: (1, 8), 0x58: (2, 8)}


@dataclass(frozen=True, slots=True)
class ValueInfo:
    """An input or output of the model, as the file declares it.

    *elem_type* is a TensorProto.DataType (0: unknown, or not a tensor); *dims* is
    None for an unknown rank, and in it a str is a symbol, None an unnamed dimension.
    *kind* is "tensor", "sparse", "sequence", "map" or "optional".
    """

    name: str
    elem_type: int
    dims: tuple[int | str | None, ...] | None
    kind: str


@dataclass(slots=True)
class Value:
    """A constant.

    *count*: its elements, -1 if unknown; *held_nbytes*: the raw tensor in memory;
    *parsed_nbytes*: its protobuf form, 0 if external; *ints*: the numbers
    of a small one of integers; *forms*: the bytes that kernels hold of it, by form; *n_packs*: the
    kernels that pack it.
    """

    name: str
    elem_type: int
    dims: tuple[int, ...] | None
    count: int
    nbytes: int
    held_nbytes: int
    parsed_nbytes: int = 0
    ints: tuple[int, ...] | None = None
    forms: dict[object, int] = field(default_factory=dict)
    n_packs: int = 0
    folded: bool = False


@dataclass(slots=True)
class Node:
    """An operator, what it reads and writes, and what of its attributes matters here.

    *n_labels*: the classes that a ZipMap names.
    """

    op: bytes = b""
    domain: bytes = b""
    inputs: list[bytes] = field(default_factory=list)
    outputs: list[bytes] = field(default_factory=list)
    ints: dict[bytes, tuple[int, ...]] = field(default_factory=dict)
    values: list[Value] = field(default_factory=list)
    graphs: list[Graph] = field(default_factory=list)
    is_same_size: bool = False  # it pads by itself
    n_labels: int = 0


@dataclass(slots=True)
class Graph:
    """A graph, or the body of a function (whose *inputs* are only names)."""

    name: tuple[bytes, bytes] = (b"", b"")
    nodes: list[Node] = field(default_factory=list)
    values: dict[bytes, Value] = field(default_factory=dict)
    inputs: list[ValueInfo] = field(default_factory=list)
    outputs: list[ValueInfo] = field(default_factory=list)
    formals: list[bytes] = field(default_factory=list)
    results: list[bytes] = field(default_factory=list)
    inner: list[tuple[int, int]] = field(default_factory=list)  # where value_info is in the file


def read_tensor(reader: Reader, at: int, end: int) -> Value:
    """Read a TensorProto: everything but its numbers. Raises ``Fault``."""
    dims: list[int] = []
    single: dict[int, tuple[int, int]] = {}
    typed: list[tuple[int, int, int]] = []
    strings_nbytes: list[int] = []
    entries: dict[str, str] = {}
    for key, start, stop in reader.fields(at, end):
        if key in (0x08, 0x0A):
            dims += reader.numbers(key, start, stop)
        elif key in _TYPED:
            typed.append((key, start, stop))
        elif key == 0x32:
            strings_nbytes.append(stop - start)
        elif key == 0x6A:
            entries.update([read_entry(reader, start, stop)])
        else:  # 0x10 data_type, 0x42 name, 0x4A raw_data, 0x70 data_location
            single[key] = (start, stop)
    name, elem_type = reader.text(*single.get(0x42, (0, 0))), single.get(0x10, (0, 0))[0]
    raw = single.get(0x4A, (0, 0))
    reader.data_nbytes += raw[1] - raw[0] + sum(stop - start for _, start, stop in typed)
    if elem_type == STRING:
        return _strings(reader, name, dims, strings_nbytes)
    value = _shaped(name, elem_type, dims)
    if single.get(0x70, (0, 0))[0] == 1:
        reader.files.claim(name, entries, value.nbytes)
    else:
        _check_inline(value, raw[1] - raw[0], typed)
    value.ints = _small_ints(reader, value, raw, typed)
    return value


def read_entry(reader: Reader, at: int, end: int) -> tuple[str, str]:
    """Read a StringStringEntryProto: key and value. Raises ``Fault``."""
    found = {key: reader.text(start, stop) for key, start, stop in reader.fields(at, end)}
    return found.get(0x0A, ""), found.get(0x12, "")


def _shaped(name: str, elem_type: int, dims: Sequence[int]) -> Value:
    if elem_type not in BITS:
        raise Fault(f"tensor {name!r} has the unknown element type {elem_type}")
    count = 1
    for dim in dims:
        count *= dim
        if dim < 0 or count * 16 > _INT64_MAX:
            raise Fault(f"tensor {name!r} has impossible dimensions: {list(dims[:8])}")
    nbytes = (count * BITS[elem_type] + 7) // 8
    return Value(name, elem_type, tuple(dims), count, nbytes, nbytes)


def _strings(reader: Reader, name: str, dims: Sequence[int], strings_nbytes: list[int]) -> Value:
    """A tensor of text: a std::string takes 32 bytes and its block; in a message 32 more."""
    value = _shaped(name, STRING, dims)
    if len(strings_nbytes) < value.count:
        raise Fault(f"tensor {name!r} has less data than its dimensions say")
    value.nbytes = sum(strings_nbytes)
    reader.data_nbytes += value.nbytes + 2 * len(strings_nbytes)
    blocks_nbytes = sum(32 + n for n in strings_nbytes if n > 15)
    value.held_nbytes = 32 * len(strings_nbytes) + blocks_nbytes
    value.parsed_nbytes = 64 * len(strings_nbytes) + blocks_nbytes
    return value


def _check_inline(value: Value, raw_nbytes: int, typed: list[tuple[int, int, int]]) -> None:
    """Refuse dimensions that claim more data than there is; note the parsed size of the data."""
    need = value.nbytes if BITS[value.elem_type] < 8 else value.count
    need *= 2 if value.elem_type in (14, 15) else 1  # complex: two numbers
    room = sum((stop - start) // _TYPED[key][0] for key, start, stop in typed)
    if raw_nbytes < value.nbytes and room < need:
        raise Fault(f"tensor {value.name!r} has less data than its dimensions say")
    value.parsed_nbytes = raw_nbytes
    for key, start, stop in typed:
        least, parsed = _TYPED[key]
        most = (stop - start) // least
        # Varints have up to 10 bytes: more numbers than needed are not expected.
        value.parsed_nbytes += parsed * (min(most, need) if most <= 11 * need else most)


def _small_ints(
    reader: Reader, value: Value, raw: tuple[int, int], typed: list[tuple[int, int, int]]
) -> tuple[int, ...] | None:
    """The numbers of an int64 or int32 tensor: up to 16 of them, which may be a shape."""
    if value.elem_type not in (INT32, INT64) or value.count > 16:
        return None
    if raw[1] - raw[0] == value.nbytes:
        form = f"<{value.count}{'q' if value.elem_type == INT64 else 'i'}"
        numbers: tuple[int, ...] = struct.unpack(form, reader.data[slice(*raw)])
        return numbers
    found = [reader.numbers(*span) for span in typed if span[2] - span[1] < 200]
    return found[0] if len(found) == 1 and len(found[0]) == value.count else None


def _sparse(reader: Reader, at: int, end: int) -> Value:
    """Read a SparseTensorProto. A session holds it as a dense tensor, which may be large."""
    values = indices = None
    dims: list[int] = []
    for key, start, stop in reader.fields(at, end):
        if key == 0x0A:
            values = read_tensor(reader, start, stop)
        elif key == 0x12:
            indices = read_tensor(reader, start, stop)
        elif key in (0x18, 0x1A):
            dims += reader.numbers(key, start, stop)
    if values is None:
        raise Fault("a sparse tensor has no values")
    dense = _shaped(values.name, values.elem_type, dims)
    dense.held_nbytes = max(dense.nbytes, 32 * dense.count * (values.elem_type == STRING))
    dense.parsed_nbytes = dense.held_nbytes + values.parsed_nbytes
    dense.parsed_nbytes += indices.parsed_nbytes if indices else 0
    return dense


def _node(reader: Reader, at: int, end: int, depth: int) -> Node:
    node = Node()
    data = reader.data
    for key, start, stop in reader.fields(at, end):
        if key == 0x0A:
            node.inputs.append(data[start:stop])
        elif key == 0x12:
            node.outputs.append(data[start:stop])
        elif key == 0x22:
            node.op = data[start:stop] + node.op  # 0x42, an overload, comes later
        elif key == 0x2A:
            _attribute(reader, start, stop, node, depth)
        elif key == 0x3A:
            node.domain = domain_of(data[start:stop])
        elif key == 0x42:
            node.op += data[start:stop]
    return node


def domain_of(name: bytes) -> bytes:
    """The domain of operators called *name*; the default one has two names."""
    return b"" if name == b"ai.onnx" else name


def _attribute(reader: Reader, at: int, end: int, node: Node, depth: int) -> None:
    """Read an AttributeProto and add its numbers, tensors and graphs to *node*."""
    name = b""
    lists: list[tuple[int, int, int]] = []
    for key, start, stop in reader.fields(at, end):
        if key == 0x0A:
            name = reader.data[start:stop]
        elif key in (0x2A, 0x52):
            node.values.append(read_tensor(reader, start, stop))
        elif key in (0xB2, 0xBA):
            node.values.append(_sparse(reader, start, stop))
        elif key in (0x32, 0x5A):
            node.graphs.append(read_graph(reader, start, stop, depth + 1))
        elif key == 0x22 and name == b"auto_pad":
            node.is_same_size = reader.data[start:stop].startswith(b"SAME")
        else:
            lists.append((key, start, stop))
    if name.startswith(b"value_"):  # value_floats and its like, of Constant only
        node.values += _listed(reader, name, lists)
        return
    if name in LABELS:
        node.n_labels += sum(_n_listed(reader, *each) for each in lists if each[0] in _LABEL_KEYS)
    ints = [span for span in lists if span[0] == 0x18 or span[0] in (0x40, 0x42)]
    if ints and all(key == 0x18 or stop - start <= 256 for key, start, stop in ints):
        node.ints[name] = tuple(number for span in ints for number in reader.numbers(*span))


def _listed(reader: Reader, name: bytes, lists: Sequence[tuple[int, int, int]]) -> list[Value]:
    """The value of a Constant node that has no tensor, but a number, a string, or a list."""
    word = name.removeprefix(b"value_")
    spans = [span for span in lists if span[0] in _LISTS.get(word.removesuffix(b"s"), ())]
    reader.data_nbytes += sum(stop - start for key, start, stop in spans if key != 0x18)
    if word.startswith(b"string"):
        nbytes = [stop - start for _, start, stop in spans]
        return [_strings(reader, "", [len(nbytes)], nbytes)]
    if not spans:
        return []
    count = sum(_n_listed(reader, *span) for span in spans)
    elem_type = FLOAT if word.startswith(b"float") else INT64
    value = _shaped("", elem_type, [count] if word.endswith(b"s") else [])
    value.parsed_nbytes = value.nbytes
    if elem_type == INT64 and count <= 16:
        value.ints = tuple(number for span in spans for number in reader.numbers(*span))
    return [value]


def _n_listed(reader: Reader, key: int, start: int, stop: int) -> int:
    """How many numbers, or strings, a field or a run of fields of AttributeProto holds."""
    if key in (0x15, 0x18, 0x4A):
        return 1
    if key in (0x3A, 0x3D):
        return (stop - start) // (4 if key == 0x3A else 5)
    # A varint ends with a byte below 128, as does its key.
    ends = reader.data[start:stop].translate(None, bytes(range(128, 256)))
    return len(ends) // (2 if key == 0x40 else 1)


def read_graph(reader: Reader, at: int, end: int, depth: int = 0) -> Graph:
    """Read the GraphProto in [at, end). Raises ``Fault``."""
    if depth > DEPTH_MAX:
        raise Fault(f"its subgraphs are more than {DEPTH_MAX} deep")
    graph = Graph()
    for key, start, stop in reader.fields(at, end):
        if key == 0x0A:
            graph.nodes.append(_node(reader, start, stop, depth))
        elif key in (0x2A, 0x7A):
            value = (read_tensor if key == 0x2A else _sparse)(reader, start, stop)
            graph.values[value.name.encode()] = value
        elif key == 0x5A:
            graph.inputs.append(_value_info(reader, start, stop))
        elif key == 0x62:
            graph.outputs.append(_value_info(reader, start, stop))
        elif key == 0x6A:
            graph.inner.append((start, stop))
    graph.results = [info.name.encode() for info in graph.outputs]
    return graph


def without_zip_maps(graph: Graph) -> tuple[ValueInfo, ...]:
    """The outputs of *graph*, where that of a ZipMap is a tensor of one column a class."""
    zipped = {n.outputs[0]: n.n_labels for n in graph.nodes if n.op == b"ZipMap" and n.outputs}
    return tuple(
        ValueInfo(info.name, FLOAT, ("rows", zipped[info.name.encode()]), "tensor")
        if info.name.encode() in zipped
        else info
        for info in graph.outputs
    )


def read_function(reader: Reader, at: int, end: int) -> Graph:
    """Read the FunctionProto in [at, end). Raises ``Fault``."""
    body, name, domain, overload = Graph(), b"", b"", b""
    for key, start, stop in reader.fields(at, end):
        if key == 0x0A:
            name = reader.data[start:stop]
        elif key == 0x22:
            body.formals.append(reader.data[start:stop])
        elif key == 0x2A:
            body.results.append(reader.data[start:stop])
        elif key == 0x3A:
            body.nodes.append(_node(reader, start, stop, 0))
        elif key == 0x52:
            domain = domain_of(reader.data[start:stop])
        elif key == 0x6A:
            overload = reader.data[start:stop]
    body.name = (domain, name + overload)
    return body


def elem_types(reader: Reader, graph: Graph) -> dict[bytes, int]:
    """The element types that *graph* declares of values in it, which few need. Raises ``Fault``."""
    found = (_value_info(reader, *span) for span in graph.inner)
    return {info.name.encode(): info.elem_type for info in found}


def _value_info(reader: Reader, at: int, end: int) -> ValueInfo:
    """Read a ValueInfoProto: name, and what its TypeProto tells."""
    name, found = "", ValueInfo("", 0, None, "tensor")
    for key, start, stop in reader.fields(at, end):
        if key == 0x0A:
            name = reader.text(start, stop)
        elif key == 0x12:
            for kind, inner, inner_stop in reader.fields(start, stop):
                if kind in (0x0A, 0x42):
                    found = _tensor_type(reader, inner, inner_stop, kind)
                elif kind in (0x22, 0x2A, 0x4A):
                    word = {0x22: "sequence", 0x2A: "map", 0x4A: "optional"}[kind]
                    found = ValueInfo("", 0, None, word)
    return replace(found, name=name)


def _tensor_type(reader: Reader, at: int, end: int, kind: int) -> ValueInfo:
    elem_type, dims = 0, None
    for key, start, stop in reader.fields(at, end):
        if key == 0x08:
            elem_type = start
        elif key == 0x12:
            shape = reader.fields(start, stop)
            dims = tuple(_dimension(reader, a, b) for k, a, b in shape if k == 0x0A)
    return ValueInfo("", elem_type, dims, "tensor" if kind == 0x0A else "sparse")


def _dimension(reader: Reader, at: int, end: int) -> int | str | None:
    """A number, a symbol, or None; some exporters write -1 for None, as onnxruntime reads it."""
    found: int | str | None = None
    for key, start, stop in reader.fields(at, end):
        if key == 0x08:
            found = signed(start) if signed(start) >= 0 else None
        elif key == 0x12:
            found = reader.text(start, stop) or None
    return found
