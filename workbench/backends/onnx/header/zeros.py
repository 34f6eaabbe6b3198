"""Sizes that end the process, above all zeros: kernels that do not check for them.

Found with onnxruntime 1.31.1, by each operator of ONNX with inputs made smaller: a division by
zero, or memory beyond an empty tensor. A zero of a request is refused before the run. One that the
graph may compute is guarded (``guarded``): the run fails in a node before that one. So is an
``Inverse``, which reads and writes beyond matrices that are not square.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from workbench.backends.onnx.header.graph import Graph, Node, Value
from workbench.backends.onnx.header.steady import BY_SHAPE

_INVERSE = b"com.microsoft", b"Inverse"
_POOLS = b"AveragePool", b"MaxPool"
_TURNED = b"transBatchA", b"transBatchB"
_RECURRENT = frozenset(b"AttnLSTM DynamicQuantizeLSTM GRU LSTM RNN".split())
_VOLUME = (1, 1, 1)

# Kernels that divide by a size of an input which a request may give, read beyond it or never end:
# domain, operator, index of the input, and the dimension.
_DIVISORS = (
    (b"", b"Attention", 1, -3),
    (b"", b"Conv", 0, 1),
    (b"com.microsoft", b"DecoderMaskedMultiHeadAttention", 0, -1),
    (b"com.microsoft", b"DynamicQuantizeMatMul", 0, -1),
    (b"com.microsoft", b"FusedConv", 0, 1),
    (b"com.microsoft", b"GroupQueryAttention", 0, 0),
    (b"com.microsoft", b"GroupQueryAttention", 0, -1),
    (b"com.microsoft", b"GroupQueryAttention", 3, 0),
    (b"com.microsoft", b"LinearAttention", 0, -1),
    (b"com.microsoft", b"LinearAttention", 1, -1),
    (b"com.microsoft", b"MoE", 0, -1),
    (b"com.microsoft", b"MultiHeadAttention", 0, -1),
    (b"com.microsoft", b"MultiHeadAttention", 2, -1),
    (b"com.microsoft", b"QAttention", 0, 0),
    (b"com.microsoft", b"QMoE", 0, -1),
    (b"com.microsoft", b"RotaryEmbedding", 0, -1),
)
Divisor = tuple[str, int]

# Kernels that read beyond the shape of an input with fewer dimensions than these, by its index. So
# does a Concat, beside a tensor of another rank, of an empty one that lacks its axis.
_LEAST_RANKS = {
    b"AffineGrid": {1: 1},
    b"Attention": {4: 4, 5: 4},
    b"ConvInteger": {0: 3, 1: 3},
    b"DFT": {0: 2},
    b"QLinearConv": {0: 3, 3: 3},
    b"STFT": {0: 2, 2: 1},
}

# Inputs that the schemas of com.microsoft call optional, and without which kernels of the CPU crash
_REQUIRED = {
    b"Attention": {2: "bias"},
    b"AttnLSTM": {8: "QW", 9: "MW", 10: "V", 11: "M"},
    b"QMoE": {3: "fc1_scales", 6: "fc2_scales"},
}

# Operators whose output has its sizes from their inputs
_KEEPS_SIZES = frozenset((b"Add", b"Cast", b"Div", b"Identity", b"Mul", b"Sub"))

# Operators that pass the elements of their first input on
_PASSES = frozenset((b"Cast", b"Identity", b"Reshape", b"Squeeze", b"Unsqueeze"))

# Operators whose output is not empty if none of their inputs is, and those where the first decides
_KEEPS_FULL = BY_SHAPE - {b"Multinomial", b"Shape", b"Slice", b"Split", b"TopK"} | _RECURRENT
_BY_FIRST = _RECURRENT | {b"Reshape"}


class Demand(Enum):
    """A node's demand of an input; the value says what it got otherwise."""

    NUMBER = "0 as its frame_length"
    ELEMENTS = "an empty tensor"
    SQUARES = "matrices that are not square"
    WINDOW = "sizes below those of its window"
    NAME = "an empty name, and is left out"


_STFT = ((2, Demand.ELEMENTS), (3, Demand.NUMBER))


class EmptyFrames(Exception):
    """An ``STFT`` whose frames have no samples, as the file says."""


@dataclass(frozen=True, slots=True, order=True)
class Fragile:
    """A node that ends the process if one of its *inputs* is not as it needs it.

    *path*: as ``Division.path``. *inputs*: their indices, and what is needed. *least*: the sizes
    from the third on that an input needs for a window.
    """

    path: tuple[int, ...]
    inputs: tuple[tuple[int, Demand], ...]
    least: tuple[int, ...] = ()


def takes_no_empty(graph: Graph) -> bool:
    """True if a node is of a kind that ends the process if its input is empty.

    These are the recurrent ones, an ``Einsum``, and a ``ConvTranspose`` of three dimensions.
    """
    return any(
        _needs_full(graph, node)
        or (node.op == b"Einsum" and len(node.inputs) > 1)
        or any(map(takes_no_empty, node.graphs))
        for node in graph.nodes
    )


def lacking(graph: Graph) -> str:
    """A node without an input whose absence ends the process on the CPU, in words; else ``""``."""
    for node in graph.nodes:
        required = _REQUIRED.get(node.op, {}) if node.domain == b"com.microsoft" else {}
        for index, name in required.items():
            if not any(node.inputs[index : index + 1]):
                return f"a com.microsoft.{node.op.decode()} without {name}"
    return next(filter(None, map(lacking, (g for node in graph.nodes for g in node.graphs))), "")


def turns_batches(graph: Graph) -> bool:
    """True if a ``Transpose`` may move the first of three dimensions or more.

    ONNX Runtime makes a ``FusedMatMul`` of it and a ``MatMul``, which takes no empty batch then.
    """
    return any(
        (node.op == b"Transpose" and _moves_first(node.ints.get(b"perm", (2, 1, 0))))
        or any(map(turns_batches, node.graphs))
        for node in graph.nodes
    )


def _moves_first(perm: Sequence[int]) -> bool:
    return perm[:1] != (0,) and len(perm) != 2


def divisors(graph: Graph, inputs: Sequence[str]) -> Iterator[Divisor]:
    """The divisors among the *inputs* of the model, each with its dimension.

    A node reads them itself, or nodes between keep their sizes; those of a batch are followed
    through all. Others are not found; sizes that weights give are not 0.
    """
    made = _makers(graph)
    for node in graph.nodes:
        for domain, op, index, axis in _DIVISORS:
            if (node.domain, node.op) == (domain, op) and index < len(node.inputs):
                names = _sources(made, node.inputs[index], is_batch=axis == 0)
                told = (name.decode("utf-8", "replace") for name in names)
                yield from ((name, axis) for name in told if name in inputs)
        for inner in node.graphs:
            yield from divisors(inner, inputs)


def least_ranks(graph: Graph, inputs: Sequence[str]) -> Iterator[tuple[str, int]]:
    """The *inputs* of the model that need so many dimensions, for the file says no number of them.

    They are found as ``divisors`` are.
    """
    made = _makers(graph)
    for node in graph.nodes if inputs else ():
        needed = {} if node.domain else _LEAST_RANKS.get(node.op, {})
        if node.op == b"Concat":
            (axis,) = node.ints.get(b"axis", (0,))
            needed = dict.fromkeys(range(len(node.inputs)), axis + 1 if axis >= 0 else -axis)
        for index, rank in needed.items():
            for given in node.inputs[index : index + 1]:
                names = (name.decode("utf-8", "replace") for name in _sources(made, given))
                yield from ((name, rank) for name in names if name in inputs)
        for inner in node.graphs:
            yield from least_ranks(inner, inputs)


def fragile_nodes(
    graph: Graph, functions: Sequence[Graph], inputs: Collection[bytes]
) -> Iterator[Fragile]:
    """The nodes that may get an empty value made by other nodes, or a matrix that is not square.

    *inputs*: those of the model, constants that a request may replace among them. Raises
    ``EmptyFrames``.
    """
    yield from _Scope(graph, inputs, (-1,)).fragile()
    for index, body in enumerate(functions):
        yield from _Scope(body, (), (index,)).fragile()


class _Scope:
    """A graph at *path*, and what is known of the values that it sees.

    *given*: requests that give an empty one of them to a fragile node are refused.
    """

    def __init__(
        self,
        graph: Graph,
        given: Collection[bytes],
        path: tuple[int, ...],
        outer: _Scope | None = None,
    ) -> None:
        made = _makers(graph)
        constants = {name: node.values[0] for name, node in made.items() if node.values}
        constants |= {name: value for name, value in graph.values.items() if name not in given}
        hidden = {info.name.encode() for info in graph.inputs}
        self._graph, self._path = graph, path
        self.made: Mapping[bytes, Node] = made
        self.constants: Mapping[bytes, Value] = constants
        self.given = given
        if outer is not None:
            seen = outer.made.items()
            self.made = {name: node for name, node in seen if name not in hidden} | made
            self.constants = {**outer.constants, **constants}
            self.given = frozenset(given) - hidden

    def fragile(self) -> Iterator[Fragile]:
        """The fragile nodes of the graph, and of the graphs in it."""
        for index, node in enumerate(self._graph.nodes):
            path = (*self._path, index)
            if found := tuple(self._open(node)):
                yield Fragile(path, found)
            if max(least := _least_sizes(node), default=1) > 1:
                yield Fragile(path, ((0, Demand.WINDOW),), least)
            for number, inner in enumerate(node.graphs):
                yield from _Scope(inner, self.given, (*path, number), self).fragile()

    def _open(self, node: Node) -> Iterator[tuple[int, Demand]]:
        """The inputs of *node* that may be such that they end the process."""
        if node.op == b"STFT" and not node.domain:
            for index, need in _STFT:
                if any(node.inputs[index : index + 1]) and not self._has_frames(node.inputs[index]):
                    yield index, need
        elif (node.domain, node.op) == _INVERSE and node.inputs:
            yield 0, Demand.SQUARES
        elif node.op == b"LayerNormalization" and node.inputs[-1:] == [b""]:  # of the bias
            yield len(node.inputs) - 1, Demand.NAME
        elif node.op == b"FusedMatMul" and any(map(node.ints.get, _TURNED)):
            yield from ((index, Demand.ELEMENTS) for index in range(len(node.inputs)))
        elif node.inputs and _needs_full(self._graph, node) and not self._is_full(node.inputs[0]):
            yield 0, Demand.ELEMENTS

    def _has_frames(self, name: bytes) -> bool:
        """True if *name* is a constant, which is not 0 or empty. Raises ``EmptyFrames``."""
        made = {*self.made}  # a file may have circles
        while name in made and self.made[name].op in _PASSES and self.made[name].inputs:
            made.discard(name)
            name = self.made[name].inputs[0]
        value = self.constants.get(name)
        if value is not None and (value.ints == (0,) or value.dims == (0,)):
            raise EmptyFrames
        return value is not None

    def _is_full(self, name: bytes) -> bool:
        """True if *name* is empty only if an input of the model is."""
        found = {name}
        for each in (waiting := [name]):  # the list grows
            if each in self.constants or each in self.given:
                continue
            node = self.made.get(each)
            if node is None or node.domain or node.op not in _KEEPS_FULL:
                return False
            new = [given for given in node.inputs if given and given not in found]
            new = new[:1] if node.op in _BY_FIRST else new
            found.update(new)
            waiting += new
        return True


def _makers(graph: Graph) -> dict[bytes, Node]:
    """The node that makes each value of *graph*."""
    return {name: node for node in graph.nodes for name in node.outputs}


def _sources(made: Mapping[bytes, Node], name: bytes, *, is_batch: bool = False) -> list[bytes]:
    """The value *name*, and earlier values from which it may take its sizes or its batch size."""
    found = {name: None}
    for each in (waiting := [name]):  # the list grows
        node = made.get(each)
        if node is None or not (is_batch or (node.op in _KEEPS_SIZES and not node.domain)):
            continue
        new = [given for given in node.inputs if given not in found]
        found.update(dict.fromkeys(new))
        waiting += new
    return list(found)


def _least_sizes(node: Node) -> tuple[int, ...]:
    """The sizes, from the third on, with which the result of a pooling *node* is not empty."""
    if node.op not in _POOLS or node.is_same_size:
        return ()
    kernel = node.ints.get(b"kernel_shape", ())
    ones = (1,) * len(kernel)
    steps, spread = (node.ints.get(name, ones) for name in (b"strides", b"dilations"))
    pads = node.ints.get(b"pads", (0,) * 2 * len(kernel))
    return tuple(
        max(1, spread * (size - 1) + 2 - step - before - after)
        for size, step, spread, before, after in zip(
            kernel, steps, spread, pads, pads[len(kernel) :], strict=False
        )
    )


def _needs_full(graph: Graph, node: Node) -> bool:
    return node.op in _RECURRENT or (
        node.op == b"ConvTranspose" and len(_kernel_shape(graph, node)) == 3
    )


def _kernel_shape(graph: Graph, node: Node) -> tuple[int, ...]:
    """The shape of a convolution's kernel; ``_VOLUME`` if the file does not tell."""
    weights = graph.values.get(node.inputs[1]) if len(node.inputs) > 1 else None
    known = weights is not None and all(info.name != weights.name for info in graph.inputs)
    from_weights = weights.dims[2:] if weights is not None and known and weights.dims else _VOLUME
    return node.ints.get(b"kernel_shape", from_weights)
