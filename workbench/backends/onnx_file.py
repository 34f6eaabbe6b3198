"""What can be known of an ONNX model before it is loaded: names, shapes, weights, memory.

The file is mapped and its protobuf messages are skipped through; tensor data is
never touched (but for shapes of up to 16 numbers), so the time follows the number
of nodes, not the size. Field numbers are those of the public onnx.proto3; a *key*
is ``field number << 3 | wire type``. Three steps, top to bottom of this module:

1. `_Reader` and the functions after it turn bytes into `_Graph`, `_Node`, `_Value`;
2. `_Estimate` follows every constant to the kernels that use it;
3. `read_onnx_file` puts both together, and makes every fault a `LoadFailed`.

The estimate. Measured with onnxruntime 1.31.1 (x86-64 with AVX-512, one intra-op
thread, arena off) on 2026-11-21, anonymous memory of a fresh process, about 125 models:

- A weight is held once per *form* its kernels want. The forms that are not the raw
  bytes: float B matrices, packed to columns in multiples of 16 (so [K, 1] takes 16x);
  8-bit B matrices, the same, and K in multiples of 4; 2-D Conv in NCHWc, channels padded
  to 16; fp16 that must be computed in fp32 (2x); scales of 4-bit MatMul (3x). In a
  subgraph of depth d there are d more raw copies.
- While loading: packing goes tensor by tensor (one more copy of the largest, two if
  it is shared); Conv reordering, fp16 casts and folding keep the old weights till the
  pass ends, and Conv needs three more copies of its largest; Constant nodes exist twice.
- A node takes 3-4 kB, one that holds a subgraph about 20 kB more, a Conv 20-40 kB.
- Folded constants are bounded only if the session is given
  ``optimization.constant_folding_max_output_size_in_bytes = fold_limit_nbytes``
  (a 400 byte file can otherwise grow by 1 GiB per node).
- `load_nbytes` presumes that freed blocks go back at once, which glibc does for blocks
  over M_MMAP_THRESHOLD only: set that to 1 MiB during the load. Left alone, its heap
  kept up to 2.4x of a plain 100 MB model, and 4x of a convolutional one, until a trim.
"""

from __future__ import annotations

import math
import mmap
import os
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PureWindowsPath

from workbench.errors import LoadFailed

__all__ = ["OnnxFile", "ValueInfo", "read_onnx_file"]

_FIELDS_MAX = 3_000_000  # a few seconds of reading, at worst
_DEPTH_MAX = 32  # protobuf itself stops at 100 messages, three to a subgraph
_CALLED_NODES_MAX = 250_000  # functions calling functions: two lines double the nodes
_INT64_MAX = 2**63 - 1
_FOLD_LIMIT_NBYTES = 16 << 20
_NODE_NBYTES = 3 << 10
_SMALL_NBYTES = 1 << 20  # blocks below come from the heap, also during a load
_FLOAT, _INT64, _STRING, _HALVES = 1, 7, 8, (10, 16)

# TensorProto.DataType -> bits of an element; a string is counted by its content
_BITS = {1: 32, 2: 8, 3: 8, 4: 16, 5: 16, 6: 32, 7: 64, 8: 0, 9: 8, 10: 16, 11: 64, 12: 32}
_BITS |= {13: 64, 14: 64, 15: 128, 16: 16, 17: 8, 18: 8, 19: 8, 20: 8, 21: 4, 22: 4, 23: 4}
_BITS |= {24: 8, 25: 2, 26: 2, 27: 6, 28: 6}

# Repeated numbers that are not packed come one by one, each with its key: a tree
# ensemble has millions. One regular expression skips such a run at C speed.
_VARINTS = rb"(?:%b[\x80-\xff]{0,9}+[\x00-\x7f])*+"
_RUNS = {key: re.compile(_VARINTS % re.escape(bytes([key]))) for key in (0x28, 0x38, 0x40, 0x58)}
_RUNS |= {
    key: re.compile(rb"(?:%b.{4})*+" % re.escape(bytes([key])), re.DOTALL) for key in (0x25, 0x3D)
}
_RUNS |= {0x51: re.compile(rb"(?:Q.{8})*+", re.DOTALL)}
# What holds the value of a Constant without a tensor: the single field, the list, the run
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


@dataclass(frozen=True, slots=True)
class OnnxFile:
    """An ONNX model, by its header.

    *inputs* leaves initializers out. *weights_nbytes* is the exact size of every
    constant, wherever it is stored (a sparse one counts dense, for so it is held).
    *resident_nbytes* is what a session on the CPU holds; *load_nbytes* is an upper
    bound for any moment of loading and holding it, if the session limits constant
    folding to *fold_limit_nbytes* (see the module's docstring).
    """

    path: Path
    nbytes: int
    ir_version: int
    opset: int
    inputs: tuple[ValueInfo, ...]
    outputs: tuple[ValueInfo, ...]
    weights_nbytes: int
    resident_nbytes: int
    load_nbytes: int
    external_files: tuple[Path, ...]
    fold_limit_nbytes: int = _FOLD_LIMIT_NBYTES


class _Fault(Exception):
    """What is wrong with the file; `read_onnx_file` adds its name."""


@dataclass(slots=True)
class _Value:
    """A constant.

    *count*: its elements, -1 if unknown; *held_nbytes*: the raw tensor in memory;
    *parsed_nbytes*: its protobuf form, 0 if external; *ints*: its numbers if it may be
    a shape; *quantized*: what DequantizeLinear made this of; *forms*: what kernels hold
    of it, by form; *grown*: folded into more elements than there were.
    """

    name: str
    elem_type: int
    dims: tuple[int, ...] | None
    count: int
    nbytes: int
    held_nbytes: int
    parsed_nbytes: int = 0
    ints: tuple[int, ...] | None = None
    quantized: _Value | None = None
    forms: dict[object, int] = field(default_factory=dict)
    n_packs: int = 0
    folded: bool = False
    grown: bool = False


@dataclass(slots=True)
class _Node:
    op: bytes = b""
    domain: bytes = b""
    inputs: list[bytes] = field(default_factory=list)
    outputs: list[bytes] = field(default_factory=list)
    ints: dict[bytes, tuple[int, ...]] = field(default_factory=dict)
    values: list[_Value] = field(default_factory=list)
    graphs: list[_Graph] = field(default_factory=list)


@dataclass(slots=True)
class _Graph:
    """A graph, or the body of a function (whose *inputs* are only names)."""

    name: tuple[bytes, bytes] = (b"", b"")
    nodes: list[_Node] = field(default_factory=list)
    values: dict[bytes, _Value] = field(default_factory=dict)
    inputs: list[ValueInfo] = field(default_factory=list)
    outputs: list[ValueInfo] = field(default_factory=list)
    formals: list[bytes] = field(default_factory=list)
    results: list[bytes] = field(default_factory=list)


class _Files:
    """The files with external data: each is looked at once, and must lie in the folder."""

    def __init__(self, model: Path) -> None:
        self._folder = model.parent
        # As onnxruntime does: a model that is itself a link may have its data next
        # to its target (the layout of a Hugging Face cache).
        self._roots = (_real(model.parent), _real(model).parent)
        self.sizes: dict[Path, int] = {}

    def claim(self, tensor: str, entries: dict[str, str], need_nbytes: int) -> None:
        """Check that the file holds *need_nbytes* where *entries* say."""
        location = entries.get("location", "")
        path = self._inside(tensor, location)
        if path not in self.sizes:
            if not path.is_file():
                raise _Fault(f"tensor {tensor!r} is in {location!r}, which is missing")
            self.sizes[path] = path.stat().st_size
        offset = _number(tensor, entries.get("offset", "0"))
        length = _number(tensor, entries.get("length", "") or str(need_nbytes))
        if length < need_nbytes or offset + length > self.sizes[path]:
            raise _Fault(f"tensor {tensor!r} needs {need_nbytes} bytes, {location!r} has fewer")

    def _inside(self, tensor: str, location: str) -> Path:
        windows = PureWindowsPath(location)  # knows both kinds of slashes, and drives
        if not location or "\0" in location or windows.anchor or ".." in windows.parts:
            raise _Fault(f"tensor {tensor!r} is outside of the model's folder: {location!r}")
        path = self._folder / location
        target = _real(path)
        if not any(target.is_relative_to(root) for root in self._roots):
            raise _Fault(f"tensor {tensor!r} is outside of the model's folder: {location!r}")
        return path


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))  # Path.resolve raises for a loop of links


def _number(tensor: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise _Fault(f"tensor {tensor!r} has a bad offset or length: {text[:30]!r}")
    return int(text)


class _Reader:
    """A bounded walk over protobuf messages: every length is checked, every field counted."""

    def __init__(self, data: mmap.mmap, files: _Files) -> None:
        self.data = data
        self.files = files
        self._left = _FIELDS_MAX
        self.data_nbytes = 0  # of the file, what is numbers of constants

    def varint(self, at: int, end: int) -> tuple[int, int]:
        """The number at *at*, and the offset behind it."""
        value = shift = 0
        for i in range(at, min(end, at + 10)):
            byte = self.data[i]
            value |= (byte & 127) << shift
            if byte < 128:
                return value & (2**64 - 1), i + 1
            shift += 7
        raise _Fault("a number is cut off or too long")

    def fields(self, at: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yield (key, start, stop) of each field of the message in [at, end).

        For a single number, *start* is the number itself; for a run of numbers that
        are not packed the span holds their keys too.
        """
        data = self.data
        while at < end:
            self._left -= 1
            if self._left < 0:
                raise _Fault(f"it has more than {_FIELDS_MAX:,} fields")
            key, start = data[at], at
            at += 1
            if key > 127:
                key, at = self.varint(start, end)
            wire = key & 7
            if wire == 2:
                size = data[at] if at < end else 128
                at += 1
                if size > 127:
                    size, at = self.varint(at - 1, end)
                start, at = at, at + size
                if at > end:
                    raise _Fault("a length points past the end (is it truncated?)")
                yield key, start, at
            elif key in _RUNS and (run := _RUNS[key].match(data, start, end)):
                at = max(run.end(), start + 1)
                if at == start + 1:
                    raise _Fault("a number is cut off or too long")
                yield key, start, at
            else:
                start, at = self._number_field(key, at, end)
                yield key, start, at

    def _number_field(self, key: int, at: int, end: int) -> tuple[int, int]:
        wire = key & 7
        if key < 8 or wire not in (0, 1, 5):
            raise _Fault("its bytes are no protobuf message")
        if wire == 0:
            return self.varint(at, end)
        stop = at + (8 if wire == 1 else 4)
        if stop > end:
            raise _Fault("a number is cut off or too long")
        return at, stop

    def text(self, start: int, stop: int) -> str:
        return self.data[start:stop].decode("utf-8", "replace")

    def numbers(self, key: int, start: int, stop: int) -> tuple[int, ...]:
        """The signed numbers of a repeated field: packed, a run of single ones, or one."""
        if key & 7 == 0 and key not in _RUNS:
            return (_signed(start),)
        if stop - start > 10_000:
            raise _Fault("a list of dimensions is too long")
        found = []
        while start < stop:
            value, start = self.varint(start + (key & 7 == 0), stop)
            found.append(_signed(value))
        return tuple(found)


def _signed(value: int) -> int:
    return value - 2**64 if value > _INT64_MAX else value


def _tensor(reader: _Reader, at: int, end: int) -> _Value:
    """Read a TensorProto: everything but its numbers."""
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
            entries.update([_entry(reader, start, stop)])
        else:  # 0x10 data_type, 0x42 name, 0x4A raw_data, 0x70 data_location
            single[key] = (start, stop)
    name, elem_type = reader.text(*single.get(0x42, (0, 0))), single.get(0x10, (0, 0))[0]
    raw = single.get(0x4A, (0, 0))
    reader.data_nbytes += raw[1] - raw[0] + sum(stop - start for _, start, stop in typed)
    if elem_type == _STRING:
        return _strings(reader, name, dims, strings_nbytes)
    value = _shaped(name, elem_type, dims)
    if single.get(0x70, (0, 0))[0] == 1:
        reader.files.claim(name, entries, value.nbytes)
    else:
        _check_inline(value, raw[1] - raw[0], typed)
    value.ints = _small_ints(reader, value, raw, typed)
    return value


def _entry(reader: _Reader, at: int, end: int) -> tuple[str, str]:
    found = {key: reader.text(start, stop) for key, start, stop in reader.fields(at, end)}
    return found.get(0x0A, ""), found.get(0x12, "")


def _shaped(name: str, elem_type: int, dims: Sequence[int]) -> _Value:
    if elem_type not in _BITS:
        raise _Fault(f"tensor {name!r} has the unknown element type {elem_type}")
    count = 1
    for dim in dims:
        count *= dim
        if dim < 0 or count * 16 > _INT64_MAX:
            raise _Fault(f"tensor {name!r} has impossible dimensions: {list(dims[:8])}")
    nbytes = (count * _BITS[elem_type] + 7) // 8
    return _Value(name, elem_type, tuple(dims), count, nbytes, nbytes)


def _strings(reader: _Reader, name: str, dims: Sequence[int], strings_nbytes: list[int]) -> _Value:
    """Measured: a std::string takes 32 bytes and its block; parsed, a pointer and more."""
    value = _shaped(name, _STRING, dims)
    if len(strings_nbytes) < value.count:
        raise _Fault(f"tensor {name!r} has less data than its dimensions say")
    value.nbytes = sum(strings_nbytes)
    reader.data_nbytes += value.nbytes + 2 * len(strings_nbytes)
    blocks_nbytes = sum(32 + n for n in strings_nbytes if n > 15)
    value.held_nbytes = 32 * len(strings_nbytes) + blocks_nbytes
    value.parsed_nbytes = 64 * len(strings_nbytes) + blocks_nbytes
    return value


def _check_inline(value: _Value, raw_nbytes: int, typed: list[tuple[int, int, int]]) -> None:
    """Believe the dimensions only as far as there is data, and count its parsed size."""
    need = value.nbytes if _BITS[value.elem_type] < 8 else value.count
    need *= 2 if value.elem_type in (14, 15) else 1  # complex: two numbers
    room = sum((stop - start) // _TYPED[key][0] for key, start, stop in typed)
    if raw_nbytes < value.nbytes and room < need:
        raise _Fault(f"tensor {value.name!r} has less data than its dimensions say")
    value.parsed_nbytes = raw_nbytes
    for key, start, stop in typed:
        least, parsed = _TYPED[key]
        most = (stop - start) // least
        # Varints have up to 10 bytes: more numbers than needed are not expected.
        value.parsed_nbytes += parsed * (min(most, need) if most <= 11 * need else most)


def _small_ints(
    reader: _Reader, value: _Value, raw: tuple[int, int], typed: list[tuple[int, int, int]]
) -> tuple[int, ...] | None:
    """The numbers of an int64 tensor that may be a shape: up to 16 of them."""
    if value.elem_type != _INT64 or value.count > 16:
        return None
    if raw[1] - raw[0] == value.nbytes:
        numbers: tuple[int, ...] = struct.unpack(f"<{value.count}q", reader.data[slice(*raw)])
        return numbers
    found = [reader.numbers(*span) for span in typed if span[2] - span[1] < 200]
    return found[0] if len(found) == 1 and len(found[0]) == value.count else None


def _sparse(reader: _Reader, at: int, end: int) -> _Value:
    """Read a SparseTensorProto. A session holds it dense, whatever the file's size."""
    values = indices = None
    dims: list[int] = []
    for key, start, stop in reader.fields(at, end):
        if key == 0x0A:
            values = _tensor(reader, start, stop)
        elif key == 0x12:
            indices = _tensor(reader, start, stop)
        elif key in (0x18, 0x1A):
            dims += reader.numbers(key, start, stop)
    if values is None:
        raise _Fault("a sparse tensor has no values")
    dense = _shaped(values.name, values.elem_type, dims)
    dense.held_nbytes = max(dense.nbytes, 32 * dense.count * (values.elem_type == _STRING))
    dense.parsed_nbytes = dense.held_nbytes + values.parsed_nbytes
    dense.parsed_nbytes += indices.parsed_nbytes if indices else 0
    return dense


def _node(reader: _Reader, at: int, end: int, depth: int) -> _Node:
    node = _Node()
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
            node.domain = _domain(data[start:stop])
        elif key == 0x42:
            node.op += data[start:stop]
    return node


def _domain(name: bytes) -> bytes:
    return b"" if name == b"ai.onnx" else name


def _attribute(reader: _Reader, at: int, end: int, node: _Node, depth: int) -> None:
    """Add what an AttributeProto holds of interest to its *node*."""
    name = b""
    lists: list[tuple[int, int, int]] = []
    for key, start, stop in reader.fields(at, end):
        if key == 0x0A:
            name = reader.data[start:stop]
        elif key in (0x2A, 0x52):
            node.values.append(_tensor(reader, start, stop))
        elif key in (0xB2, 0xBA):
            node.values.append(_sparse(reader, start, stop))
        elif key in (0x32, 0x5A):
            node.graphs.append(_graph(reader, start, stop, depth + 1))
        else:
            lists.append((key, start, stop))
    if name.startswith(b"value_"):  # value_floats and its like, of Constant only
        node.values += _listed(reader, name, lists)
        return
    ints = [span for span in lists if span[0] == 0x18 or span[0] in (0x40, 0x42)]
    if ints and all(key == 0x18 or stop - start <= 256 for key, start, stop in ints):
        node.ints[name] = tuple(number for span in ints for number in reader.numbers(*span))


def _listed(reader: _Reader, name: bytes, lists: Sequence[tuple[int, int, int]]) -> list[_Value]:
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
    elem_type = _FLOAT if word.startswith(b"float") else _INT64
    value = _shaped("", elem_type, [count] if word.endswith(b"s") else [])
    value.parsed_nbytes = value.nbytes
    if elem_type == _INT64 and count <= 16:
        value.ints = tuple(number for span in spans for number in reader.numbers(*span))
    return [value]


def _n_listed(reader: _Reader, key: int, start: int, stop: int) -> int:
    """How many numbers a field or a run of fields of AttributeProto holds."""
    if key in (0x15, 0x18):
        return 1
    if key in (0x3A, 0x3D):
        return (stop - start) // (4 if key == 0x3A else 5)
    # A varint ends with a byte below 128, as does its key.
    ends = reader.data[start:stop].translate(None, bytes(range(128, 256)))
    return len(ends) // (2 if key == 0x40 else 1)


def _graph(reader: _Reader, at: int, end: int, depth: int = 0) -> _Graph:
    if depth > _DEPTH_MAX:
        raise _Fault(f"its subgraphs are more than {_DEPTH_MAX} deep")
    graph = _Graph()
    for key, start, stop in reader.fields(at, end):
        if key == 0x0A:
            graph.nodes.append(_node(reader, start, stop, depth))
        elif key in (0x2A, 0x7A):
            value = (_tensor if key == 0x2A else _sparse)(reader, start, stop)
            graph.values[value.name.encode()] = value
        elif key == 0x5A:
            graph.inputs.append(_value_info(reader, start, stop))
        elif key == 0x62:
            graph.outputs.append(_value_info(reader, start, stop))
    graph.results = [info.name.encode() for info in graph.outputs]
    return graph


def _function(reader: _Reader, at: int, end: int) -> _Graph:
    body, name, domain, overload = _Graph(), b"", b"", b""
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
            domain = _domain(reader.data[start:stop])
        elif key == 0x6A:
            overload = reader.data[start:stop]
    body.name = (domain, name + overload)
    return body


def _value_info(reader: _Reader, at: int, end: int) -> ValueInfo:
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


def _tensor_type(reader: _Reader, at: int, end: int, kind: int) -> ValueInfo:
    elem_type, dims = 0, None
    for key, start, stop in reader.fields(at, end):
        if key == 0x08:
            elem_type = start
        elif key == 0x12:
            shape = reader.fields(start, stop)
            dims = tuple(_dimension(reader, a, b) for k, a, b in shape if k == 0x0A)
    return ValueInfo("", elem_type, dims, "tensor" if kind == 0x0A else "sparse")


def _dimension(reader: _Reader, at: int, end: int) -> int | str | None:
    """A number, a symbol, or None; some exporters write -1 for None, as onnxruntime reads it."""
    found: int | str | None = None
    for key, start, stop in reader.fields(at, end):
        if key == 0x08:
            found = _signed(start) if _signed(start) >= 0 else None
        elif key == 0x12:
            found = reader.text(start, stop) or None
    return found


def _up16(n: int) -> int:
    return -(-n // 16) * 16


# Which inputs (operator, index) a kernel packs, and how.
_PACKED = {
    **dict.fromkeys([(b"MatMul", 1), (b"Gemm", 1)], "float"),
    **dict.fromkeys([(b"FusedMatMul", 1), (b"FusedGemm", 1)], "float"),
    **dict.fromkeys([(b"Conv", 1), (b"FusedConv", 1)], "conv"),
    **dict.fromkeys([(b"MatMulInteger", 1), (b"MatMulIntegerToFloat", 1)], "8bit"),
    **dict.fromkeys([(b"DynamicQuantizeMatMul", 1), (b"QLinearMatMul", 3), (b"QGemm", 3)], "8bit"),
    (b"QLinearConv", 3): "8bit conv",
    **dict.fromkeys([(b"LSTM", 1), (b"LSTM", 2), (b"GRU", 1), (b"GRU", 2)], "rnn"),
    (b"MatMulNBits", 2): "scales",
    (b"Attention", 1): "attention",
}
# The same between DequantizeLinear and QuantizeLinear
_QUANTIZED = {"float": "8bit", "conv": "8bit conv"}
# fp16 kernels of the CPU provider; everything else is computed in fp32
_MOVES = frozenset(
    b"Cast Concat ConstantOfShape Expand Flatten Gather GatherElements GatherND Identity "
    b"Reshape Shape Size Slice Split Squeeze Transpose Unsqueeze".split()
)
# What folding a node with constant inputs yields: as many elements as its first input ...
_RESHAPES = frozenset(b"Flatten Reshape Slice Split Squeeze Unsqueeze".split())
_SAME_COUNT = _RESHAPES | frozenset(
    b"Abs Cast Ceil Cos Erf Exp Floor Identity Log Neg Not Reciprocal Relu Round Sigmoid Sign "
    b"Sin Sqrt Tanh Transpose".split()
)
# ... as its inputs broadcast against each other ...
_BROADCAST = frozenset(
    b"Add And Div Equal Greater GreaterOrEqual Less LessOrEqual Max Min Mod Mul Or PRelu Pow Sub "
    b"Sum Where Xor".split()
)
# ... as the numbers in them say. All others: at most the product of their inputs.
_BY_INTS = frozenset(b"ConstantOfShape Expand Reshape Tile".split())
_BY_VALUE = _BY_INTS | frozenset(
    b"AffineGrid BlackmanWindow CenterCropPad Col2Im Conv ConvTranspose DFT HammingWindow "
    b"HannWindow ImageDecoder MelWeightMatrix OneHot Pad Range Resize STFT Upsample".split()
)
_NOT_FOLDED = frozenset(
    b"Bernoulli DequantizeLinear If Loop Multinomial QuantizeLinear RandomNormal "
    b"RandomNormalLike RandomUniform RandomUniformLike Scan SequenceMap".split()
)
_INTS_KEPT = frozenset((b"Identity", b"Cast", b"Squeeze", b"Unsqueeze", b"Reshape"))

_Scope = list[dict[bytes, _Value | None]]


def _weights_nbytes(graph: _Graph) -> int:
    """All constants of a graph or a function's body, and of the subgraphs in it."""
    total = sum(value.nbytes for value in graph.values.values())
    for node in graph.nodes:
        if node.op == b"Constant":
            total += sum(value.nbytes for value in node.values)
        total += sum(map(_weights_nbytes, node.graphs))
    return total


class _Estimate:
    """Adds up what a session takes; the module's docstring has the measurements."""

    def __init__(self, functions: Sequence[_Graph]) -> None:
        self._functions = {body.name: body for body in functions}
        self._level = self._calls = self._called_nodes = 0
        self._resident = self._parsed = self._small = 0
        # The body of a function exists as parsed, as a schema and as a template.
        self._replaced = 3 * sum(map(_weights_nbytes, functions))
        self._largest = self._largest_parsed = 0  # of the copies on the way; of the tensors read
        self._nodes_resident = self._nodes_load = self._unknown_folds = 0
        self._grown: list[_Value] = []
        self._dequantized: set[bytes] = set()
        self.fold_limit_nbytes = _FOLD_LIMIT_NBYTES

    def resident_nbytes(self, meta_nbytes: int) -> int:
        """Held once loaded. *meta_nbytes*, the file less its numbers, takes up to 4x."""
        return (1 << 17) + self._resident + self._nodes_resident + 4 * meta_nbytes

    def load_nbytes(self, meta_nbytes: int) -> int:
        """The most at any moment: while parsing, or while kernels are made.

        A tree ensemble's lists took 12x of the file; blocks too small to be mapped
        wait in the heap; 4 MiB went to buffers, less in small files.
        """
        parsing = self._parsed + self._largest_parsed
        making = self._resident + self._replaced + self._largest
        making += self._unknown_folds * self.fold_limit_nbytes
        fixed = (1 << 20) + min(4 << 20, self._parsed)
        loose = self._small + self._nodes_load + 13 * meta_nbytes + fixed
        return max(parsing, making) * 102 // 100 + loose

    def graph(self, graph: _Graph, outer: _Scope, depth: int) -> None:
        """Follow the constants of *graph*; *outer* are the scopes around it, inner first."""
        local: dict[bytes, _Value | None] = dict(graph.values)
        owned = [*graph.values.values(), *self._nodes(graph.nodes, [local, *outer], depth)]
        for name in graph.results:
            if value := local.get(name):
                self._hold(value, value.held_nbytes)
        for value in owned:
            self._settle(value, depth)
        if depth == 0:  # the limit is known only now
            for value in self._grown:
                if value.nbytes <= self.fold_limit_nbytes:
                    self._settle(value, depth)

    def _nodes(self, nodes: Sequence[_Node], scope: _Scope, depth: int) -> list[_Value]:
        """Follow each node; returns the constants made on the way."""
        self._level += 1
        self._called_nodes += len(nodes) if self._calls else 0
        if self._called_nodes > _CALLED_NODES_MAX or self._level > 2 * _DEPTH_MAX:
            raise _Fault("its functions call too deep, or expand into too many nodes")
        made: list[_Value] = []
        for node in nodes:
            made += self._node(node, scope, depth)
        self._nodes_resident += len(nodes) * _NODE_NBYTES
        self._nodes_load += len(nodes) * 2 * _NODE_NBYTES
        self._level -= 1
        return made

    def _node(self, node: _Node, scope: _Scope, depth: int) -> list[_Value]:
        body = self._functions.get((node.domain, node.op)) if self._functions else None
        if body:
            return self._call(body, node, scope, depth)
        for graph in node.graphs:
            self._nodes_resident += 12 << 10
            self._nodes_load += 16 << 10
            self.graph(graph, scope, depth + 1)
        if node.op == b"Constant" and node.values:
            return [self._constant(node, scope)]
        if node.op == b"DequantizeLinear":
            self._dequantized.update(node.outputs)
        values = [_lookup(scope, name) for name in node.inputs]
        return self._use(node, values, scope) if any(values) else []

    def _call(self, body: _Graph, node: _Node, scope: _Scope, depth: int) -> list[_Value]:
        """A call is inlined: its constants exist once more per call."""
        self._calls += 1
        self._nodes_resident -= _NODE_NBYTES  # it goes, its nodes come
        self._nodes_load -= 2 * _NODE_NBYTES
        values = [_lookup(scope, name) for name in node.inputs]
        inner: dict[bytes, _Value | None] = dict(zip(body.formals, values, strict=False))
        made = self._nodes(body.nodes, [inner], depth)
        for formal, actual in zip(body.results, node.outputs, strict=False):
            scope[0][actual] = inner.get(formal)
        self._calls -= 1
        return made

    def _constant(self, node: _Node, scope: _Scope) -> _Value:
        value = replace(node.values[0], forms={})
        # The node's attribute lives on for a while.
        self._replaced += 0 if self._calls else value.parsed_nbytes
        for output in node.outputs:
            scope[0][output] = value
        return value

    def _use(self, node: _Node, values: Sequence[_Value | None], scope: _Scope) -> list[_Value]:
        """Constants go to a kernel in a form of its own, or into a folded constant."""
        if node.op == b"DequantizeLinear" and values[0]:
            self._dequantize(node, values[0], values[1:], scope)
            return []
        given = [value for value in values if value and not value.quantized]
        n_inputs = sum(map(bool, node.inputs))
        if len(given) == n_inputs and not node.domain and node.op not in _NOT_FOLDED:
            return self._fold(node, given, scope)
        for index, value in enumerate(values):
            if value:
                self._consume(node, index, value)
        return []

    def _dequantize(
        self, node: _Node, weight: _Value, others: Sequence[_Value | None], scope: _Scope
    ) -> None:
        """Weights stay quantized: the node melts into its consumer, or runs each time."""
        four_bits = _BITS[weight.elem_type] < 8  # becomes a MatMulNBits, weights transposed
        self._replaced += weight.held_nbytes if four_bits else 0
        for value in filter(None, others):
            scales = four_bits and len(value.dims or ()) > 1
            self._hold(value, value.held_nbytes * (3 if scales else 1))
            self._replaced += value.held_nbytes if four_bits else 0
        self._hold(weight, 0)
        alias = replace(weight, quantized=weight.quantized or weight)
        for output in node.outputs:
            scope[0][output] = alias

    def _fold(self, node: _Node, given: Sequence[_Value], scope: _Scope) -> list[_Value]:
        """All inputs are constant, so is the output; inputs nobody else needs go."""
        result = _folded(node, given)
        for output in node.outputs:
            scope[0][output] = result
        if result.count < 0:
            self._unknown_folds += 1
            return []
        result.grown |= any(value.grown for value in given)
        if result.grown and result.nbytes > _FOLD_LIMIT_NBYTES:
            self._grown.append(result)
            return []
        self.fold_limit_nbytes = max(self.fold_limit_nbytes, result.nbytes)
        return [result]

    def _hold(self, value: _Value, nbytes: int, form: object = "raw") -> None:
        value.forms[form] = max(nbytes, value.forms.get(form, 0))

    def _consume(self, node: _Node, index: int, value: _Value) -> None:
        """Note the form in which this kernel holds its input."""
        how = _PACKED.get((node.op, index), "")
        if value.quantized:  # through DequantizeLinear, which melts into the kernel
            value, how = value.quantized, _QUANTIZED.get(how, "")
            how = how if node.inputs[0] in self._dequantized else ""
        half = value.elem_type in _HALVES and node.op not in _MOVES and how != "scales"
        self._replaced += value.parsed_nbytes if half else 0
        packed = _packed_nbytes(node, how, value)
        if packed is None:
            self._hold(value, value.held_nbytes * (2 if half else 1), "fp32" if half else "raw")
            return
        value.n_packs += 1
        self._hold(value, packed, (how, node.ints.get(b"transB"), node.ints.get(b"group")))
        if how == "8bit conv":
            self._largest = max(self._largest, 2 * value.held_nbytes)
        if how == "conv":
            self._reorder(value, packed, half=half)

    def _reorder(self, value: _Value, packed: int, *, half: bool) -> None:
        """The old weights stay for a pass; buffer, string and tensor are of the new size."""
        self._replaced += value.held_nbytes * 2 if half else value.parsed_nbytes
        self._largest = max(self._largest, 3 * packed)
        self._nodes_resident += 16 << 10
        self._nodes_load += 32 << 10

    def _settle(self, value: _Value, depth: int) -> None:
        """Add a constant whose consumers are all known."""
        self._parsed += value.parsed_nbytes
        self._largest_parsed = max(self._largest_parsed, value.parsed_nbytes, value.held_nbytes)
        # A subgraph keeps the raw tensor, packed or not, and so do the attributes around it.
        raw_too = depth > 0 and value.n_packs > 0
        self._resident += sum(value.forms.values()) + (depth + raw_too) * value.held_nbytes
        self._replaced += depth * value.held_nbytes
        if not value.forms or value.elem_type == _STRING:
            self._replaced += value.held_nbytes if value.folded else value.parsed_nbytes
        copy = value.held_nbytes * (2 if value.n_packs and value.elem_type in _HALVES else 1)
        if value.n_packs > 1:  # packed again, to find that it was packed already
            copy += max(value.forms.values())
        self._largest = max(self._largest, copy)
        self._small += 2 * value.held_nbytes if value.held_nbytes < _SMALL_NBYTES else 0


def _lookup(scope: _Scope, name: bytes) -> _Value | None:
    for names in scope:
        if name in names:
            return names[name]
    return None


def _packed_nbytes(node: _Node, how: str, value: _Value) -> int | None:
    """The size of the form that the kernel makes of its input; None if it takes it raw."""
    dims, bits = value.dims, _BITS[value.elem_type]
    floats = value.elem_type in (_FLOAT, *_HALVES)
    if not how or dims is None or bits < 8 or floats == how.startswith("8bit"):
        return None
    if how in ("conv", "8bit conv"):
        group = max((1, *node.ints.get(b"group", ())))
        return (_nchwc_nbytes if how == "conv" else _qconv_nbytes)(dims, group)
    if how == "scales":
        plain = value.elem_type == _FLOAT and node.ints.get(b"accuracy_level") != (4,)
        return value.held_nbytes * (1 if plain else 3)
    return _matrix_nbytes(node, how, dims)


def _matrix_nbytes(node: _Node, how: str, dims: Sequence[int]) -> int | None:
    """A matrix [K, N] is packed with N in multiples of 16, an 8-bit one with K in those of 4."""
    if how == "rnn":
        return dims[0] * _up16(dims[1]) * dims[2] * 4 if len(dims) == 3 else None
    if len(dims) != 2:
        return None
    if how == "attention":
        heads = 3 * max((1, *node.ints.get(b"num_heads", ())))
        return dims[0] * heads * _up16(-(-dims[1] // heads)) * 4
    k, n = reversed(dims) if node.ints.get(b"transB") == (1,) else dims
    return _up16(n) * (4 * k if how == "float" else -(-k // 4) * 4 + 4)


def _nchwc_nbytes(dims: Sequence[int], group: int) -> int | None:
    """Conv weights [M, C / group, H, W] in blocks of 16 channels; None: left as they are."""
    if len(dims) != 4:
        return None
    m, c, height, width = dims
    if group > 1 and c == 1 and m == group:  # depthwise
        return _up16(m) * height * width * 4
    if group > 1:
        blocked = c % 16 == 0 and (m // group) % 16 == 0
        return math.prod(dims) * 4 if blocked else None
    if c >= 16 and c % 4:
        return None
    return _up16(m) * (c if c < 16 else _up16(c)) * height * width * 4


def _qconv_nbytes(dims: Sequence[int], group: int) -> int | None:
    """8-bit Conv weights: one packed matrix per group, but for depthwise ones."""
    m, k = dims[0] // group if dims else 0, math.prod(dims[1:])
    if len(dims) < 3 or (group > 1 and m == 1):
        return None
    return group * _up16(m) * (-(-k // 4) * 4 + 4)


def _folded(node: _Node, given: Sequence[_Value]) -> _Value:
    """The constant that a node with constant inputs becomes; its count is -1 if unknown."""
    elem_type, dims = _folded_type(node, given), _folded_dims(node, given)
    counts = [value.count for value in given]
    count, exact = -1 if dims is None else math.prod(dims), True
    if dims is None and min(counts) >= 0 and node.op not in _BY_VALUE:
        exact = node.op in _SAME_COUNT or node.op == b"Concat"
        count = counts[0] if node.op in _SAME_COUNT else sum(counts)
        count = count if exact else math.prod(counts)
    nbytes = count * (_BITS.get(elem_type, 64) or 256) // 8
    if count < 0 or count > _INT64_MAX or (nbytes > _FOLD_LIMIT_NBYTES and not exact):
        return _Value("", elem_type, None, -1, 0, 0, folded=True, grown=True)
    ints, grown = _folded_ints(node, given), count > sum(counts)
    return _Value("", elem_type, dims, count, nbytes, nbytes, ints=ints, folded=True, grown=grown)


def _folded_type(node: _Node, given: Sequence[_Value]) -> int:
    if node.op == b"Cast":
        return (*node.ints.get(b"to", ()), 0)[0]
    if node.op == b"ConstantOfShape":
        return node.values[0].elem_type if node.values else _FLOAT
    if node.op in (b"Shape", b"Size"):
        return _INT64
    return given[-1 if node.op == b"Where" else 0].elem_type


def _folded_ints(node: _Node, given: Sequence[_Value]) -> tuple[int, ...] | None:
    """Numbers that may become a shape, through the nodes that exporters put around them."""
    if node.op in _INTS_KEPT:
        return given[0].ints
    if node.op == b"Concat" and all(value.ints is not None for value in given):
        return tuple(number for value in given for number in value.ints or ())[:64]
    return None


def _folded_dims(node: _Node, given: Sequence[_Value]) -> tuple[int, ...] | None:
    """The dimensions of a folded constant, where they are easy to tell."""
    first, ints = given[0].dims, given[-1].ints
    if first is not None and node.op in (b"Shape", b"Size"):
        return (len(first),) if node.op == b"Shape" else ()
    if first is not None and node.op == b"Transpose":
        perm = node.ints.get(b"perm") or tuple(range(len(first)))[::-1]
        valid = sorted(perm) == list(range(len(first)))
        return tuple(first[axis] for axis in perm) if valid else None
    if node.op in _BROADCAST:
        return _broadcast([value.dims for value in given])
    if ints is not None and node.op in _BY_INTS and all(0 <= n < 2**40 for n in ints):
        return _dims_by_ints(node.op, given[0], ints)
    return first if node.op in _SAME_COUNT - _RESHAPES else None


def _dims_by_ints(op: bytes, data: _Value, ints: tuple[int, ...]) -> tuple[int, ...] | None:
    if op == b"ConstantOfShape":
        return ints
    if op == b"Expand":
        return _broadcast([data.dims, ints])
    if op == b"Reshape":
        return ints if math.prod(ints) == data.count else None
    if data.dims is not None and len(data.dims) == len(ints):  # Tile
        return tuple(a * b for a, b in zip(data.dims, ints, strict=True))
    return None


def _broadcast(shapes: Sequence[tuple[int, ...] | None]) -> tuple[int, ...] | None:
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(shapes):
        return None
    rank = max(map(len, known))
    padded = [(1,) * (rank - len(shape)) + shape for shape in known]
    return tuple(max(column) if min(column) else 0 for column in zip(*padded, strict=True))


def read_onnx_file(path: Path) -> OnnxFile:
    """Read the header of the ONNX model at *path*, and estimate its memory.

    Raises:
        LoadFailed: it is missing, is not an ONNX model, or claims data it does not have.

    """
    try:
        return _read(path)
    except _Fault as fault:
        raise LoadFailed(f"{path.name!r} is not an ONNX model: {fault}") from None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise LoadFailed(f"{path.name!r} cannot be read: {reason}") from error


def _read(path: Path) -> OnnxFile:
    with path.open("rb") as file:
        nbytes = file.seek(0, 2)
        if not nbytes:
            raise _Fault("the file is empty")
        with mmap.mmap(file.fileno(), nbytes, access=mmap.ACCESS_READ) as data:
            return _model(path, _Reader(data, _Files(path)), nbytes)


def _model(path: Path, reader: _Reader, nbytes: int) -> OnnxFile:
    graphs: list[_Graph] = []
    functions: list[_Graph] = []
    ir_version = opset = 0
    for key, start, stop in reader.fields(0, nbytes):
        if key == 0x08:
            ir_version = start
        elif key == 0x42:
            opset = max(opset, _default_opset(reader, start, stop))
        elif key == 0x3A:
            graphs.append(_graph(reader, start, stop))
        elif key == 0xCA:
            functions.append(_function(reader, start, stop))
    if len(graphs) != 1:
        raise _Fault("it has more than one graph" if graphs else "it has no graph")
    graph, estimate = graphs[0], _Estimate(functions)
    weights = sum(map(_weights_nbytes, [graph, *functions]))
    estimate.graph(graph, [], 0)
    meta = max(0, nbytes - reader.data_nbytes)
    return OnnxFile(
        path=path,
        nbytes=nbytes,
        ir_version=ir_version,
        opset=opset,
        inputs=tuple(info for info in graph.inputs if info.name.encode() not in graph.values),
        outputs=tuple(graph.outputs),
        weights_nbytes=weights,
        resident_nbytes=max(weights, estimate.resident_nbytes(meta)),
        load_nbytes=max(weights, estimate.load_nbytes(meta)),
        external_files=tuple(sorted(reader.files.sizes)),
        fold_limit_nbytes=estimate.fold_limit_nbytes,
    )


def _default_opset(reader: _Reader, at: int, end: int) -> int:
    domain, version = b"", 0
    for key, start, stop in reader.fields(at, end):
        if key == 0x0A:
            domain = _domain(reader.data[start:stop])
        elif key == 0x10:
            version = start
    return 0 if domain else version
