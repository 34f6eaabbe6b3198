"""Reads the header of an ONNX file."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from workbench.backends.onnx.file_lease import held
from workbench.backends.onnx.header.division import Division, dangerous_divisions
from workbench.backends.onnx.header.estimate import FOLD_LIMIT_NBYTES, Estimator, weights_nbytes
from workbench.backends.onnx.header.fields import Fault, Files, Reader
from workbench.backends.onnx.header.graph import (
    Graph,
    Node,
    ValueInfo,
    domain_of,
    read_function,
    read_graph,
)
from workbench.backends.onnx.header.outline import outline
from workbench.backends.onnx.header.steady import is_steady
from workbench.errors import LoadFailed, reason_of
from workbench.stamps import Stamp, stamps

# A smaller file is read, not mapped: another process may truncate it, and reading beyond the
# end of a mapped file ends the process.
_READ_NBYTES = 4 << 20
_MANY = 1000

# In earlier versions every initializer was listed as an input too, and its value was fixed.
_IR_OF_DEFAULTS = 4

_GUARD_NBYTES = 32 << 10  # memory of the guard nodes of one division during the load
_REWRITTEN_FACTOR = 3  # times the file: its bytes as read, as rewritten, and as messages

_RECURRENT = frozenset((b"GRU", b"LSTM", b"RNN"))
_VOLUME = (1, 1, 1)

# Kernels that divide by a number which a request may set to 0 (1.31): domain, operator, index of
# the input, and which of its dimensions is the divisor; ``None``: its value.
_DIVISORS = (
    (b"", b"STFT", 2, 0),
    (b"", b"STFT", 3, None),
    (b"com.microsoft", b"DecoderMaskedMultiHeadAttention", 0, -1),
    (b"com.microsoft", b"GroupQueryAttention", 0, 0),
    (b"com.microsoft", b"GroupQueryAttention", 0, -1),
    (b"com.microsoft", b"GroupQueryAttention", 3, 0),
    (b"com.microsoft", b"MoE", 0, -1),
    (b"com.microsoft", b"MultiHeadAttention", 0, -1),
)
Divisor = tuple[str, int | None]

# Operators that pass the number in their first input on, and those whose output has its sizes from
# their inputs.
_PASSES = frozenset((b"Cast", b"Identity", b"Reshape", b"Squeeze", b"Unsqueeze"))
_KEEPS_SIZES = frozenset((b"Add", b"Cast", b"Div", b"Identity", b"Mul", b"Sub"))


@dataclass(frozen=True, slots=True)
class OnnxFile:
    """The header of an ONNX model, and estimates of the memory that it takes.

    *inputs* has no initializers; *defaults* are the initializers that a request may replace.
    *weights_nbytes* is the exact size of all constants, in the file or beside it (a sparse one
    counts as dense, because ONNX Runtime expands it). *resident_nbytes* is the memory of a
    session on the CPU; *load_nbytes* is an upper bound for any moment of loading and keeping
    it, if the session limits constant folding to *fold_limit_nbytes* (see ``estimate``).
    *unsure_nbytes*: what a session may hold beside *resident_nbytes*: constants of unknown size.
    *by_value*: the memory of a run may depend on the numbers in its inputs, not only on their
    shapes (see ``is_steady``). *takes_no_empty*: an empty input could end the process. So could a
    0 in *divisors*: an input, and which of its dimensions, or ``None`` for its value. *stamps*
    change when one of its files does. *divisions* could end the process, and must be guarded.
    """

    path: Path
    opset: int
    inputs: tuple[ValueInfo, ...]
    outputs: tuple[ValueInfo, ...]
    weights_nbytes: int
    resident_nbytes: int
    load_nbytes: int
    external_files: tuple[Path, ...]
    fold_limit_nbytes: int = FOLD_LIMIT_NBYTES
    unsure_nbytes: int = 0
    by_value: bool = False
    takes_no_empty: bool = False
    divisors: tuple[Divisor, ...] = ()
    stamps: tuple[Stamp, ...] = ()
    defaults: tuple[ValueInfo, ...] = ()
    divisions: tuple[Division, ...] = ()


def read_onnx_file(path: Path) -> OnnxFile:
    """Read the header of the ONNX model at *path*, and estimate its memory.

    Raises:
        LoadFailed: it is missing, is not an ONNX model, or claims data it does not have.

    """
    with _opened(path) as reader:
        return _model(path, reader)


def read_outline(path: Path) -> bytes:
    """The ONNX model at *path* without its weights (see ``outline``). Raises ``LoadFailed``."""
    with _opened(path) as reader:
        return outline(reader)


class OnnxFiles:
    """A cache of headers, each *completed*; used until its files change. Thread-safe."""

    def __init__(self, completed: Callable[[OnnxFile], OnnxFile]) -> None:
        self._completed = completed
        self._known: dict[Path, tuple[tuple[Stamp, ...], OnnxFile]] = {}

    def read(self, path: Path) -> OnnxFile:
        """As ``read_onnx_file``."""
        known = self._known.get(path)
        if known is not None and known[0] == stamps(path, *known[1].external_files):
            return known[1]
        before = stamps(path)
        file = self._completed(read_onnx_file(path))
        now = stamps(path, *file.external_files)
        file = replace(file, stamps=now or before or ())
        if now is not None and now[:1] == before:  # otherwise the file is being written
            if len(self._known) >= _MANY:
                self._known.clear()
            self._known[path] = now, file
        return file


@contextmanager
def _opened(path: Path) -> Iterator[Reader]:
    """A reader of the file at *path*, whose faults and errors are raised as ``LoadFailed``."""
    try:
        with path.open("rb") as file:
            nbytes = file.seek(0, 2)
            if not nbytes:
                raise Fault("the file is empty")
            if nbytes <= _READ_NBYTES:
                file.seek(0)
                yield Reader(file.read(nbytes), Files(path))
            else:
                with held(path), _mapped(file.fileno()) as data:
                    yield Reader(data, Files(path))
    except Fault as fault:
        raise LoadFailed(f"{str(path)!r} is not an ONNX model: {fault}") from None
    except OSError as error:
        raise LoadFailed(f"{str(path)!r} cannot be read: {reason_of(error)}") from error


def _mapped(number: int) -> mmap.mmap:
    try:
        return mmap.mmap(number, 0, access=mmap.ACCESS_READ)
    except ValueError:
        raise Fault("the file is empty") from None


def _model(path: Path, reader: Reader) -> OnnxFile:
    nbytes = len(reader.data)
    graphs: list[Graph] = []
    functions: list[Graph] = []
    ir_version = opset = 0
    for key, start, stop in reader.fields(0, nbytes):
        if key == 0x08:
            ir_version = start
        elif key == 0x42:
            opset = max(opset, _default_opset(reader, start, stop))
        elif key == 0x3A:
            graphs.append(read_graph(reader, start, stop))
        elif key == 0xCA:
            functions.append(read_function(reader, start, stop))
    if len(graphs) != 1:
        raise Fault("it has more than one graph" if graphs else "it has no graph")
    graph = graphs[0]
    if any(map(_has_empty_frames, (graph, *functions))):
        raise LoadFailed(
            f"{str(path)!r} has an STFT with frames of 0 samples, by which ONNX Runtime divides: "
            "give it a frame_length of 1 or more"
        )
    estimate = Estimator(graph, functions)
    weights = sum(map(weights_nbytes, [graph, *functions]))
    meta = max(0, nbytes - reader.data_nbytes)
    inputs = tuple(info for info in graph.inputs if info.name.encode() not in graph.values)
    defaults = tuple(info for info in graph.inputs if info.name.encode() in graph.values)
    if ir_version < _IR_OF_DEFAULTS:
        defaults = ()
    overridable = [info.name.encode() for info in defaults]
    divisions = dangerous_divisions(reader, graph, functions, overridable)
    guards_nbytes = len(divisions) * _GUARD_NBYTES
    rewritten_nbytes = _REWRITTEN_FACTOR * nbytes if divisions else 0
    return OnnxFile(
        path=path,
        opset=opset,
        inputs=inputs,
        defaults=defaults,
        outputs=tuple(graph.outputs),
        weights_nbytes=weights,
        resident_nbytes=max(weights, estimate.resident_nbytes(meta)) + guards_nbytes,
        load_nbytes=max(weights, estimate.load_nbytes(meta)) + guards_nbytes + rewritten_nbytes,
        external_files=tuple(sorted(reader.files.sizes)),
        fold_limit_nbytes=estimate.fold_limit_nbytes,
        unsure_nbytes=estimate.unsure_nbytes,
        by_value=not is_steady(graph, functions, overridable),
        takes_no_empty=any(map(_takes_no_empty, (graph, *functions))),
        divisors=tuple(_divisors(graph, [info.name for info in (*inputs, *defaults)])),
        divisions=divisions,
    )


def _takes_no_empty(graph: Graph) -> bool:
    """Whether a node is of a kind that ends the process if its input is empty (1.31).

    These are the recurrent ones, and a ``ConvTranspose`` of three dimensions.
    """
    return any(
        node.op in _RECURRENT
        or (node.op == b"ConvTranspose" and len(_kernel_shape(graph, node)) == 3)
        or any(map(_takes_no_empty, node.graphs))
        for node in graph.nodes
    )


def _divisors(graph: Graph, inputs: Sequence[str]) -> Iterator[Divisor]:
    """The divisors among the *inputs* of the model: what a node reads itself, or by ``_sources``.

    Others are not found; sizes that weights give are not 0.
    """
    made = _makers(graph)
    for node in graph.nodes:
        for domain, op, index, axis in _DIVISORS:
            if (node.domain, node.op) == (domain, op) and index < len(node.inputs):
                names = _sources(made, node.inputs[index], sizes=axis is not None)
                told = (name.decode("utf-8", "replace") for name in names)
                yield from ((name, axis) for name in told if name in inputs)
        for inner in node.graphs:
            yield from _divisors(inner, inputs)


def _makers(graph: Graph) -> dict[bytes, Node]:
    """The node that makes each value of *graph*."""
    return {name: node for node in graph.nodes for name in node.outputs}


def _sources(made: Mapping[bytes, Node], name: bytes, *, sizes: bool) -> list[bytes]:
    """*name*, and the values before it that it may be, or of which it may have its *sizes*."""
    found = {name: None}
    for each in (waiting := [name]):  # the list grows
        node = made.get(each)
        if node is None or node.domain or node.op not in (_KEEPS_SIZES if sizes else _PASSES):
            continue
        new = [given for given in node.inputs[: None if sizes else 1] if given not in found]
        found.update(dict.fromkeys(new))
        waiting += new
    return list(found)


def _has_empty_frames(graph: Graph) -> bool:
    """Whether the file says that the frames of an ``STFT`` have no samples: it ends the process."""
    transforms = [node for node in graph.nodes if node.op == b"STFT" and not node.domain]
    if transforms:
        made = _makers(graph)
        known = {name: node.values[0] for name, node in made.items() if node.values} | graph.values
        for node in transforms:
            window, length = [*node.inputs, b"", b""][2:4]
            lengths = map(known.get, _sources(made, length, sizes=False))
            windows = map(known.get, _sources(made, window, sizes=True))
            if any(each and each.ints == (0,) for each in lengths):
                return True
            if any(each and each.dims == (0,) for each in windows):
                return True
    return any(_has_empty_frames(inner) for node in graph.nodes for inner in node.graphs)


def _kernel_shape(graph: Graph, node: Node) -> tuple[int, ...]:
    """The shape of a convolution's kernel; ``_VOLUME`` if the file does not tell."""
    weights = graph.values.get(node.inputs[1]) if len(node.inputs) > 1 else None
    known = weights is not None and all(info.name != weights.name for info in graph.inputs)
    from_weights = weights.dims[2:] if weights is not None and known and weights.dims else _VOLUME
    return node.ints.get(b"kernel_shape", from_weights)


def _default_opset(reader: Reader, at: int, end: int) -> int:
    domain, version = b"", 0
    for key, start, stop in reader.fields(at, end):
        if key == 0x0A:
            domain = domain_of(reader.data[start:stop])
        elif key == 0x10:
            version = start
    return 0 if domain else version
