"""Reads the header of an ONNX file."""

from __future__ import annotations

import json
import mmap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from workbench.backends.onnx.file_lease import held
from workbench.backends.onnx.header.division import Division, dangerous_divisions
from workbench.backends.onnx.header.estimate import FOLD_LIMIT_NBYTES, Estimator, weights_nbytes
from workbench.backends.onnx.header.fields import ExternalFiles, Fault, Reader
from workbench.backends.onnx.header.graph import (
    Graph,
    ValueInfo,
    domain_of,
    read_entry,
    read_function,
    read_graph,
    without_zip_maps,
)
from workbench.backends.onnx.header.outline import outline
from workbench.backends.onnx.header.steady import is_steady
from workbench.backends.onnx.header.zeros import (
    Divisor,
    EmptyFrames,
    Fragile,
    divisors,
    fragile_nodes,
    lacking,
    least_ranks,
    takes_no_empty,
    turns_batches,
)
from workbench.errors import LoadFailed, reason_of
from workbench.stamps import Stamp, stamps

# A smaller file is read, not mapped: another process may truncate it, and reading beyond the
# end of a mapped file ends the process.
_READ_NBYTES = 4 << 20
_KNOWN_FILES = 1000
COLUMNS = "workbench.columns"
"""The key in a model's metadata of the names of its only input's columns, a list in JSON."""
_LFS = b"version https://git-lfs.github.com/"  # how its pointers begin

# In earlier versions every initializer was listed as an input too, and its value was fixed.
_IR_OF_DEFAULTS = 4

_GUARD_NBYTES = 32 << 10  # memory of the guard nodes of one node during the load
_OPSET_OF_GUARDS = 7  # before it, a division does not broadcast
_REWRITTEN_FACTOR = 3  # times the file: its bytes as read, as rewritten, and as messages


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
    0 in *divisors*: an input, and which of its dimensions. *stamps* change when one of its files
    does. *guards*: nodes that could end the process, and must be guarded. *zip_maps*: outputs are
    those of a ZipMap in the file, and tensors here. *turns_batches*, *lacking*, *least_ranks*: see
    the functions. *columns*: the names of the columns of the only input, if the file tells them.
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
    guards: tuple[Division | Fragile, ...] = ()
    turns_batches: bool = False
    lacking: str = ""
    least_ranks: tuple[tuple[str, int], ...] = ()
    zip_maps: bool = False
    columns: tuple[str, ...] = ()

    @property
    def is_rewritten(self) -> bool:
        """True if the engine gets another model than the one in the file."""
        return self.zip_maps or bool(self.guards)


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
        known = self._known.get(path)
        if known is not None and known[0] == stamps(path, *known[1].external_files):
            return known[1]
        before = stamps(path)
        file = self._completed(read_onnx_file(path))
        now = stamps(path, *file.external_files)
        file = replace(file, stamps=now or before or ())
        if now is not None and now[:1] == before:  # otherwise the file is being written
            if len(self._known) >= _KNOWN_FILES:
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
                content = file.read(nbytes)
                if content.startswith(_LFS):
                    raise Fault("it is a pointer of Git LFS: git lfs pull gets the model")
                yield Reader(content, ExternalFiles(path))
            else:
                with held(path), _mapped(file.fileno()) as data:
                    yield Reader(data, ExternalFiles(path))
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
    columns: tuple[str, ...] = ()
    for key, start, stop in reader.fields(0, nbytes):
        if key == 0x08:
            ir_version = start
        elif key == 0x42:
            opset = max(opset, _default_opset(reader, start, stop))
        elif key == 0x3A:
            graphs.append(read_graph(reader, start, stop))
        elif key == 0xCA:
            functions.append(read_function(reader, start, stop))
        elif key == 0x72 and COLUMNS.encode() in reader.data[start:stop]:
            columns = columns or _columns(*read_entry(reader, start, stop))
    if len(graphs) != 1:
        raise Fault("it has more than one graph" if graphs else "it has no graph")
    graph = graphs[0]
    estimate = Estimator(graph, functions)
    weights = sum(map(weights_nbytes, [graph, *functions]))
    meta = max(0, nbytes - reader.data_nbytes)
    inputs = tuple(info for info in graph.inputs if info.name.encode() not in graph.values)
    defaults = tuple(info for info in graph.inputs if info.name.encode() in graph.values)
    if ir_version < _IR_OF_DEFAULTS:
        defaults = ()
    overridable = [info.name.encode() for info in defaults]
    divisions = dangerous_divisions(reader, graph, functions, overridable)
    given = [info.name for info in (*inputs, *defaults)]
    unranked = [info.name for info in (*inputs, *defaults) if info.dims is None]
    fragile = _fragile(path, graph, functions, given) if opset >= _OPSET_OF_GUARDS else ()
    dims = [("", "") if info.dims is None else info.dims for info in (*inputs, *defaults)]
    if all(isinstance(dim, int) for each in dims for dim in each[1:]):  # only the batch is free
        fragile = tuple(each for each in fragile if not each.least)
    guards_nbytes = len(divisions + fragile) * _GUARD_NBYTES
    outputs = without_zip_maps(graph)
    zip_maps = outputs != tuple(graph.outputs)
    rewritten_nbytes = _REWRITTEN_FACTOR * nbytes if guards_nbytes or zip_maps else 0
    return OnnxFile(
        path=path,
        opset=opset,
        inputs=inputs,
        defaults=defaults,
        outputs=outputs,
        weights_nbytes=weights,
        resident_nbytes=max(weights, estimate.resident_nbytes(meta)) + guards_nbytes,
        load_nbytes=max(weights, estimate.load_nbytes(meta)) + guards_nbytes + rewritten_nbytes,
        external_files=tuple(sorted(reader.files.sizes)),
        fold_limit_nbytes=estimate.fold_limit_nbytes,
        unsure_nbytes=estimate.unsure_nbytes,
        by_value=not is_steady(graph, functions, overridable),
        takes_no_empty=any(map(takes_no_empty, (graph, *functions))),
        divisors=tuple(divisors(graph, given)),
        least_ranks=tuple(least_ranks(graph, unranked)),
        guards=(*divisions, *fragile),
        turns_batches=any(map(turns_batches, (graph, *functions))),
        lacking=next(filter(None, map(lacking, (graph, *functions))), ""),
        zip_maps=zip_maps,
        columns=columns,
    )


def _columns(key: str, value: str) -> tuple[str, ...]:
    """The names of columns in an entry of a model's metadata; none in one of another *key*."""
    if key != COLUMNS:
        return ()
    try:
        names = json.loads(value)
    except ValueError:
        return ()
    is_list = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return tuple(names) if is_list else ()


def _fragile(
    path: Path, graph: Graph, functions: Sequence[Graph], given: Sequence[str]
) -> tuple[Fragile, ...]:
    try:
        return tuple(fragile_nodes(graph, functions, [name.encode() for name in given]))
    except EmptyFrames:
        raise LoadFailed(
            f"{str(path)!r} has an STFT with frames of 0 samples, by which ONNX Runtime divides: "
            "give it a frame_length of 1 or more"
        ) from None


def _default_opset(reader: Reader, at: int, end: int) -> int:
    domain, version = b"", 0
    for key, start, stop in reader.fields(at, end):
        if key == 0x0A:
            domain = domain_of(reader.data[start:stop])
        elif key == 0x10:
            version = start
    return 0 if domain else version
