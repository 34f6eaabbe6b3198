"""What can be known of an ONNX model before it is loaded: names, shapes, weights, memory.

The file is mapped and its protobuf messages are skipped through; tensor data is
never touched (but for shapes of up to 16 numbers), so the time follows the number
of nodes, not the size. Field numbers are those of the public onnx.proto3; a *key*
is ``field number << 3 | wire type``. Three steps, top to bottom of this module:

1. `_Reader` and the functions after it turn bytes into `_Graph`, `_Node`, `_Value`;
2. `_Estimate` follows every constant to the kernels that use it;
3. `read_onnx_file` puts both together, and makes every fault a `LoadFailed`.

The estimate. Measured with onnxruntime 1.31.1 (x86-64 with AVX-512, one intra-op
thread, arena off) on 2026-11-21, anonymous memory of a fresh process, about 150 models:

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

import mmap
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PureWindowsPath

__all__ = ["OnnxFile", "ValueInfo", "read_onnx_file"]

_FIELDS_MAX = 5_000_000  # about two seconds of reading
_DEPTH_MAX = 32  # protobuf itself stops at 100 messages, three to a subgraph
_CALLED_NODES_MAX = 250_000  # functions calling functions: two lines double the nodes
_INT64_MAX = 2**63 - 1
_FOLD_LIMIT_NBYTES = 16 << 20
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
    """A constant. *held_nbytes*: the raw tensor in memory; *parsed_nbytes*: its protobuf
    form (0 if external); *forms*: what the kernels hold of it, by form.
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
        self._roots = (model.parent.resolve(), model.resolve().parent)
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
        target = path.resolve()
        if not any(target.is_relative_to(root) for root in self._roots):
            raise _Fault(f"tensor {tensor!r} is outside of the model's folder: {location!r}")
        return path


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
        found = []
        while start < stop:
            value, start = self.varint(start + (key & 7 == 0), stop)
            found.append(_signed(value))
        self._left -= len(found)
        return tuple(found)


def _signed(value: int) -> int:
    return value - 2**64 if value > _INT64_MAX else value


def _tensor(reader: _Reader, at: int, end: int) -> _Value:
    """Read a TensorProto: everything but its numbers."""
    dims: list[int] = []
    name, elem_type, raw, external = "", 0, (0, -1), False
    typed: list[tuple[int, int, int]] = []
    strings_nbytes: list[int] = []
    entries: dict[str, str] = {}
    for key, start, stop in reader.fields(at, end):
        if key in (0x08, 0x0A):
            dims += reader.numbers(key, start, stop)
        elif key == 0x10:
            elem_type = start
        elif key == 0x42:
            name = reader.text(start, stop)
        elif key == 0x4A:
            raw = (start, stop)
        elif key in _TYPED:
            typed.append((key, start, stop))
        elif key == 0x32:
            strings_nbytes.append(stop - start)
        elif key == 0x6A:
            entries.update([_entry(reader, start, stop)])
        elif key == 0x70:
            external = start == 1
    if elem_type == _STRING:
        return _strings(name, dims, strings_nbytes)
    value = _shaped(name, elem_type, dims)
    if external:
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
            raise _Fault(f"tensor {name!r} has impossible dimensions: {str(list(dims[:8]))}")
    nbytes = (count * _BITS[elem_type] + 7) // 8
    return _Value(name, elem_type, tuple(dims), count, nbytes, nbytes)


def _strings(name: str, dims: Sequence[int], strings_nbytes: list[int]) -> _Value:
    """Measured: a std::string takes 32 bytes and its block; parsed, a pointer and more."""
    value = _shaped(name, _STRING, dims)
    if len(strings_nbytes) < value.count:
        raise _Fault(f"tensor {name!r} has less data than its dimensions say")
    value.nbytes = sum(strings_nbytes)
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
    value.parsed_nbytes = max(raw_nbytes, 0)
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
        return struct.unpack(f"<{value.count}q", reader.data[raw[0] : raw[1]])
    numbers = [reader.numbers(*span) for span in typed if span[2] - span[1] < 200]
    return numbers[0] if len(numbers) == 1 and len(numbers[0]) == value.count else None


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
    dense.parsed_nbytes = values.parsed_nbytes + (indices.parsed_nbytes if indices else 0)
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
            node.op = data[start:stop]
        elif key == 0x2A:
            _attribute(reader, start, stop, node, depth)
        elif key == 0x3A:
            node.domain = _domain(data[start:stop])
    return node


def _domain(name: bytes) -> bytes:
    return b"" if name == b"ai.onnx" else name


def _n_varints(data: bytes, keyed: bool) -> int:
    """How many numbers *data* holds: each ends with a byte below 128, as does its key."""
    return len(data.translate(None, bytes(range(128, 256)))) // (2 if keyed else 1)


def _attribute(reader: _Reader, at: int, end: int, node: _Node, depth: int) -> None:
    """Add what an AttributeProto holds of interest to its *node*."""
    name, n_floats, n_ints = b"", 0, 0
    strings_nbytes: list[int] = []
    ints: list[int] = []
    for key, start, stop in reader.fields(at, end):
        if key == 0x0A:
            name = reader.data[start:stop]
        elif key in (0x18, 0x40, 0x42):
            few = key == 0x18 or stop - start <= 256
            ints += reader.numbers(key, start, stop) if few else ()
            n_ints += 1 if key == 0x18 else _n_varints(reader.data[start:stop], key == 0x40)
        elif key in (0x3A, 0x3D):
            n_floats += (stop - start) // (4 if key == 0x3A else 5)
        elif key in (0x22, 0x4A):
            strings_nbytes.append(stop - start)
        elif key in (0x2A, 0x52):
            node.values.append(_tensor(reader, start, stop))
        elif key in (0xB2, 0xBA):
            node.values.append(_sparse(reader, start, stop))
        elif key in (0x32, 0x5A):
            node.graphs.append(_graph(reader, start, stop, depth + 1))
    node.ints[name] = tuple(ints)
    if name.startswith(b"value_"):  # of Constant, the only operator with such names
        node.values += _listed(name, n_floats, ints, n_ints, strings_nbytes)


def _listed(
    name: bytes, n_floats: int, ints: Sequence[int], n_ints: int, strings_nbytes: list[int]
) -> list[_Value]:
    """The value of a Constant node that has no tensor, but numbers or strings."""
    if name in (b"value_float", b"value_floats"):
        return [_parsed(_shaped("", _FLOAT, [n_floats] if name[-1:] == b"s" else []))]
    if name in (b"value_int", b"value_ints"):
        value = _parsed(_shaped("", _INT64, [n_ints] if name[-1:] == b"s" else []))
        value.ints = tuple(ints) if 0 < len(ints) <= 16 else None
        return [value]
    if name in (b"value_string", b"value_strings"):
        return [_strings("", [len(strings_nbytes)], strings_nbytes)]
    return []


def _parsed(value: _Value) -> _Value:
    value.parsed_nbytes = value.nbytes
    return value


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


# Which input a kernel packs, by how.
_PACKED: dict[bytes, dict[int, str]] = {
    **dict.fromkeys((b"MatMul", b"Gemm", b"FusedMatMul", b"FusedGemm"), {1: "float"}),
    **dict.fromkeys((b"Conv", b"FusedConv"), {1: "conv"}),
    **dict.fromkeys(
        (b"MatMulInteger", b"MatMulIntegerToFloat", b"DynamicQuantizeMatMul"), {1: "8bit"}
    ),
    **dict.fromkeys((b"QLinearMatMul", b"QGemm"), {3: "8bit"}),
    b"QLinearConv": {3: "8bit conv"},
    **dict.fromkeys((b"LSTM", b"GRU"), {1: "rnn", 2: "rnn"}),
    b"MatMulNBits": {2: "scales"},
}
# fp16 kernels of the CPU provider; everything else is computed in fp32
_MOVES = frozenset(
    b"Cast Concat ConstantOfShape Expand Flatten Gather GatherElements GatherND Identity Reshape "
    b"Shape Size Slice Split Squeeze Transpose Unsqueeze".split()
)
# What folding a node with constant inputs yields: as many elements as its first input ...
_SAME_COUNT = frozenset(
    b"Abs Cast Ceil Cos Erf Exp Flatten Floor Identity Log Neg Not Reciprocal Relu Reshape Round "
    b"Sigmoid Sign Sin Slice Split Sqrt Squeeze Tanh Transpose Unsqueeze".split()
)
# ... as its inputs broadcast against each other ...
_BROADCAST = frozenset(
    b"Add And Div Equal Greater GreaterOrEqual Less LessOrEqual Max Min Mod Mul Or Pow Sub Sum Where "
    b"Xor PRelu".split()
)
# ... or as the numbers in them say. Other nodes: at most the product of their inputs.
_BY_VALUE = frozenset(
    b"AffineGrid BlackmanWindow CenterCropPad Col2Im ConstantOfShape Conv ConvTranspose DFT Expand "
    b"HammingWindow HannWindow ImageDecoder MelWeightMatrix OneHot Pad Range Resize STFT Tile "
    b"Upsample".split()
)
_NOT_FOLDED = frozenset(
    b"Bernoulli DequantizeLinear If Loop Multinomial QuantizeLinear RandomNormal RandomNormalLike "
    b"RandomUniform RandomUniformLike Scan SequenceMap".split()
)
_INTS_KEPT = frozenset((b"Identity", b"Cast", b"Squeeze", b"Unsqueeze", b"Reshape"))

_Scope = list[dict[bytes, _Value | None]]


class _Estimate:
    """Adds up what a session takes. The constants in it are explained at the module's top."""

    def __init__(self, functions: Sequence[_Graph]) -> None:
        self._functions = {body.name: body for body in functions}
        self._called_nodes = 0
        self.weights_nbytes = 0
        self.resident = self.replaced = self.parsed = self.largest = self.largest_parsed = 0
        self.nodes_resident = self.nodes_load = self.small = 0
        self.fold_limit = _FOLD_LIMIT_NBYTES
        self.unknown_folds = 0
        self.grown: list[_Value] = []

    def graph(self, graph: _Graph, outer: _Scope, depth: int) -> None:
        """Follow the constants of *graph*; *outer* are the scopes around it, inner first."""
        local: dict[bytes, _Value | None] = dict(graph.values)
        owned = list(graph.values.values())
        scope = [local, *outer]
        owned += self._nodes(graph.nodes, scope, depth, 0)
        for name in graph.results:
            if value := local.get(name):
                self._hold(value, value.held_nbytes)
        for value in owned:
            self._settle(value, depth)

    def _nodes(self, nodes: Sequence[_Node], scope: _Scope, depth: int, calls: int) -> list[_Value]:
        """Follow each node; returns the constants made on the way."""
        made: list[_Value] = []
        for node in nodes:
            self.nodes_resident += 4 << 10
            self.nodes_load += 6 << 10
            values = [_lookup(scope, name) for name in node.inputs]
            body = self._functions.get((node.domain, node.op))
            if body:
                made += self._call(body, node, values, scope, depth, calls)
                continue
            for graph in node.graphs:
                self.nodes_resident += 12 << 10
                self.nodes_load += 16 << 10
                self.graph(graph, scope, depth + 1)
            if node.op == b"Constant" and node.values:
                made.append(self._constant(node, scope, calls))
            elif any(values):
                made += self._use(node, values, scope)
        return made

    def _call(
        self,
        body: _Graph,
        node: _Node,
        values: Sequence[_Value | None],
        scope: _Scope,
        depth: int,
        calls: int,
    ) -> list[_Value]:
        """A call is inlined: its constants exist once more per call."""
        self._called_nodes += len(body.nodes) + 1
        if self._called_nodes > _CALLED_NODES_MAX or calls > _DEPTH_MAX:
            raise _Fault("its functions are too deep, or expand into too many nodes")
        inner: dict[bytes, _Value | None] = dict(zip(body.formals, values, strict=False))
        made = self._nodes(body.nodes, [inner], depth, calls + 1)
        for formal, actual in zip(body.results, node.outputs, strict=False):
            scope[0][actual] = inner.get(formal)
        return made

    def _constant(self, node: _Node, scope: _Scope, calls: int) -> _Value:
        value = replace(node.values[0], forms={}, n_packs=0)
        self.replaced += value.parsed_nbytes  # the node's attribute lives on for a while
        for output in node.outputs[:1]:
            scope[0][output] = value
        return value

    def _use(self, node: _Node, values: Sequence[_Value | None], scope: _Scope) -> list[_Value]:
        if node.op == b"DequantizeLinear" and values[0]:
            self._dequantize(node, values, scope)
            return []
        given = [value for value, name in zip(values, node.inputs, strict=True) if name]
        if not node.domain and node.op not in _NOT_FOLDED and not node.graphs:
            constants = [value for value in given if value and not value.quantized]
            if len(constants) == len(given):
                return self._fold(node, constants, scope)
        for index, value in enumerate(values):
            if value:
                self._consume(node, index, value)
        return []

    def _dequantize(self, node: _Node, values: Sequence[_Value | None], scope: _Scope) -> None:
        """Weights stay quantized: the node melts into its consumer, or runs each time."""
        weight = values[0]
        assert weight
        four_bits = _BITS[weight.elem_type] < 8
        for value in values[1:]:
            if value:  # blockwise scales are kept as they are, packed, and as sums
                copies = 3 if four_bits and len(value.dims or ()) > 1 else 1
                self._hold(value, value.held_nbytes * copies)
                self.replaced += value.held_nbytes if four_bits else 0
        self.replaced += weight.held_nbytes if four_bits else 0
        alias = replace(weight, quantized=weight.quantized or weight, forms={})
        if not weight.forms:
            self._hold(weight, 0)
        for output in node.outputs[:1]:
            scope[0][output] = alias

    def _fold(self, node: _Node, given: Sequence[_Value], scope: _Scope) -> list[_Value]:
        """All inputs are constant, and so is the output; the inputs go, if nobody else uses them."""
        result = _folded(node, given)
        for output in node.outputs:
            scope[0][output] = result
        if node.op in _SAME_COUNT or node.op == b"Concat":
            self.fold_limit = max(self.fold_limit, result.nbytes)
        elif result.dims is None and result.nbytes == 0:
            self.unknown_folds += 1
        elif result.nbytes > _FOLD_LIMIT_NBYTES:
            self.grown.append(result)
            return []
        return [result]

    def _hold(self, value: _Value, nbytes: int, form: object = "raw") -> None:
        value.forms[form] = max(nbytes, value.forms.get(form, 0))

    def _consume(self, node: _Node, index: int, value: _Value) -> None:
        """Note the form in which this kernel holds its input."""
        how = _PACKED.get(node.op, {}).get(index, "")
        source = value.quantized
        if source:
            index_1 = _PACKED.get(node.op, {}).get(1, "") if index == 1 else ""
            how = {"float": "8bit", "conv": "8bit conv"}.get(index_1, "")
            value = source
        size = 4 if value.elem_type in (_FLOAT, *_HALVES) else 1
        half = value.elem_type in _HALVES and node.op not in _MOVES and node.op != b"MatMulNBits"
        packed = _packed_nbytes(node, how, value, size)
        if half:
            self.replaced += value.held_nbytes
        if packed is None:
            self._hold(value, value.held_nbytes * (2 if half else 1), "fp32" if half else "raw")
            return
        value.n_packs += 1
        transposed = node.ints.get(b"transB", ())
        self._hold(value, packed, (how, transposed, node.ints.get(b"group", ())))
        if how == "conv":
            self._reorder(value, packed, half)

    def _reorder(self, value: _Value, packed: int, half: bool) -> None:
        """The old weights stay for a pass; a string, a buffer and a tensor are of the new size."""
        self.replaced += value.held_nbytes * 2 if half else value.parsed_nbytes
        self.largest = max(self.largest, 3 * packed)
        self.nodes_resident += 16 << 10
        self.nodes_load += 32 << 10

    def _settle(self, value: _Value, depth: int) -> None:
        """Add a constant whose consumers are all known."""
        forms_nbytes = sum(value.forms.values())
        self.weights_nbytes += 0
        self.parsed += value.parsed_nbytes
        self.largest_parsed = max(self.largest_parsed, value.parsed_nbytes, value.held_nbytes)
        self.resident += forms_nbytes + depth * value.held_nbytes
        self.replaced += depth * value.held_nbytes
        if not value.forms or value.elem_type == _STRING:
            self.replaced += max(value.parsed_nbytes, value.held_nbytes)
        copies = 2 if value.n_packs > 1 else 1
        self.largest = max(self.largest, copies * max(value.forms.values(), default=0))
        if value.held_nbytes < _SMALL_NBYTES:
            self.small += value.held_nbytes
