"""An upper bound of the memory that a session takes, from the model's header alone.

It counts for the first load of a file: a load that runs alone is measured, and the measured
figures count from then on (``memory.watch``). The rules come from about 125 models, measured
with onnxruntime 1.31 on x86-64 (anonymous memory of a fresh process); ``benchmarks/RESULTS.md``
has some of them, and says why no simpler rule will do.

- A constant is held as it is if a kernel reads it so, and packed if a kernel packs it, with its
  rows and columns in multiples of 16 (so [K, 1] takes 16x). Without fp16 kernels, fp16 is
  computed in fp32 (2x). In a subgraph of depth d there are d + 1 more copies.
- While loading there is one more copy of the constant that is being packed, two if it is shared,
  three for a Conv. Conv reordering, fp16 casts and folding keep the old constants until all are
  done.
- A node takes 3 kB, one that holds a subgraph 12 kB more, a Conv 16 kB more; while loading, twice
  that.
- A node whose inputs are all constant is folded into one, up to ``fold_limit_nbytes``, which the
  session is given (a 400 byte file can otherwise grow by 1 GiB per node). A result of unknown
  size counts as that much while loading; most turn out small, so once loaded it counts as it is
  measured (``memory.watch``). All that is folded is held until folding ends.
- Freed blocks must go back to the system at once, which glibc does for blocks over
  M_MMAP_THRESHOLD: the load sets that to 1 MiB (``heap``).
"""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest

from workbench.backends.onnx.header.fields import Fault
from workbench.backends.onnx.header.graph import BITS, DEPTH_MAX, HALVES, STRING, Graph, Node, Value

_INT64_MAX = 2**63 - 1
FOLD_LIMIT_NBYTES = 16 << 20
_UNKNOWN_FOLDS_NBYTES = 512 << 20  # of all results of unknown size together
_CALLED_NODES_MAX = 250_000  # functions calling functions: two lines double the nodes
_NODE_NBYTES, _GRAPH_NBYTES, _CONV_NBYTES = 3 << 10, 12 << 10, 16 << 10
_HEAP_NBYTES = 1 << 20  # smaller blocks come from the heap, also during a load

# The inputs (operator, index) that a kernel packs.
_CONVS = frozenset([(b"Conv", 1), (b"FusedConv", 1), (b"QLinearConv", 3)])
_PACKED = _CONVS | {
    *((op, 1) for op in b"MatMul Gemm FusedMatMul FusedGemm MatMulInteger LSTM GRU".split()),
    *((op, 1) for op in b"MatMulIntegerToFloat DynamicQuantizeMatMul Attention".split()),
    *((op, 2) for op in (b"LSTM", b"GRU")),
    *((op, 3) for op in (b"QLinearMatMul", b"QGemm")),
}
_SCALES = frozenset([(b"MatMulNBits", 2), (b"DequantizeLinear", 1)])  # held three times
# Those that move elements, and have fp16 kernels.
_MOVES = frozenset(
    b"Cast Concat Flatten Identity Reshape Slice Split Squeeze Transpose Unsqueeze".split()
)
_IN_HALVES = _MOVES | frozenset(
    b"ConstantOfShape Expand Gather GatherElements GatherND Shape Size".split()
)
# The result of a folded node has at most as many elements as its inputs together if it moves these,
# as its first input, as its inputs broadcast against each other, or as their product. The result of
# any other operator has an unknown size.
_AS_FIRST = frozenset(b"CumSum ScatterElements ScatterND Slice Split Trilu".split())
_BROADCAST = frozenset(
    b"Abs Add And Cast Ceil Cos Div Equal Erf Exp Floor Greater GreaterOrEqual Identity Less "
    b"LessOrEqual Log Max Min Mod Mul Neg Not Or PRelu Pow Reciprocal Relu Round Sigmoid Sign Sin "
    b"Sqrt Sub Sum Tanh Where Xor".split()
)
_PRODUCT = _BROADCAST | frozenset(
    b"ArgMax ArgMin Clip CumSum Einsum Gather GatherElements GatherND Gemm MatMul ReduceL1 "
    b"ReduceL2 ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare ScatterElements "
    b"ScatterND Shape Size Softmax Trilu".split()
)
# Never folded, or folded into the node that reads it.
_NOT_FOLDED = frozenset(
    b"Bernoulli DequantizeLinear If Loop Multinomial QuantizeLinear RandomNormal "
    b"RandomNormalLike RandomUniform RandomUniformLike Scan SequenceMap".split()
)
_ValueScope = ChainMap[bytes, Value | None]


def weights_nbytes(graph: Graph) -> int:
    """All constants of a graph or a function's body, and of the subgraphs in it."""
    total = sum(value.nbytes for value in graph.values.values())
    for node in graph.nodes:
        if node.op == b"Constant":
            total += sum(value.nbytes for value in node.values)
        total += sum(map(weights_nbytes, node.graphs))
    return total


class Estimator:
    """Adds up the bytes that a session takes, by the rules in the module's docstring."""

    def __init__(self, graph: Graph, functions: Sequence[Graph]) -> None:
        self._functions = {body.name: body for body in functions}
        self._level = self._calls = self._called_nodes = 0
        self._held = self._parsed = self._small = self._nodes_nbytes = 0
        # The body of a function exists as parsed, as a schema and as a template.
        self._replaced = 3 * sum(map(weights_nbytes, functions))
        self._largest_copy = self._largest_parsed = self._unknown_folds = 0
        self._largest_fold = 0
        self._dequantized: set[bytes] = set()
        self._graph(graph, ChainMap(), 0)
        share_nbytes = _UNKNOWN_FOLDS_NBYTES // max(1, self._unknown_folds)
        self.fold_limit_nbytes = max(self._largest_fold, min(FOLD_LIMIT_NBYTES, share_nbytes))
        """The most that one folded constant may take; less if the sizes of many are unknown."""
        self.unsure_nbytes = self._unknown_folds * self.fold_limit_nbytes
        """What folded constants of unknown size may take, for a moment or for good."""

    def resident_nbytes(self, meta_nbytes: int) -> int:
        """Held once loaded. *meta_nbytes*: the file without its numbers, which takes up to 4x."""
        return (1 << 17) + self._held + self._nodes_nbytes + 4 * meta_nbytes

    def load_nbytes(self, meta_nbytes: int) -> int:
        """The most at any moment: while the file is parsed, or while kernels are made.

        The lists of a tree ensemble took 12x of the file; buffers took up to 4 MiB.
        """
        parsing = self._parsed + self._largest_parsed
        making = self._held + self._replaced + self._largest_copy
        making += self.unsure_nbytes
        fixed = (1 << 20) + min(4 << 20, self._parsed)
        loose = self._small + 2 * self._nodes_nbytes + 13 * meta_nbytes + fixed
        return max(parsing, making) * 102 // 100 + loose

    def _graph(self, graph: Graph, outer: _ValueScope, depth: int) -> None:
        """Add *graph*; *outer*: the names known in the graphs around it."""
        scope = outer.new_child(dict(graph.values))
        made = self._nodes(graph.nodes, scope, depth)
        for name in graph.results:
            if value := scope.maps[0].get(name):
                value.forms[1] = value.held_nbytes
        for value in (*graph.values.values(), *made):
            self._settle(value, depth)

    def _nodes(self, nodes: Sequence[Node], scope: _ValueScope, depth: int) -> list[Value]:
        """Add each node; returns the constants that they make."""
        self._level += 1
        self._called_nodes += len(nodes) if self._calls else 0
        if self._called_nodes > _CALLED_NODES_MAX or self._level > 2 * DEPTH_MAX:
            raise Fault("its functions call too deep, or expand into too many nodes")
        made = [value for node in nodes for value in self._node(node, scope, depth)]
        self._nodes_nbytes += len(nodes) * _NODE_NBYTES
        self._level -= 1
        return made

    def _node(self, node: Node, scope: _ValueScope, depth: int) -> list[Value]:
        values = [scope.get(name) for name in node.inputs]
        if body := self._functions.get((node.domain, node.op)):
            return self._call(body, node, values, scope, depth)
        for graph in node.graphs:
            self._nodes_nbytes += _GRAPH_NBYTES
            self._graph(graph, scope, depth + 1)
        if node.op == b"Constant" and node.values:
            made = replace(node.values[0], forms={})
            self._replaced += 0 if self._calls else made.parsed_nbytes  # as the node's attribute
        elif self._is_folded(node, values):
            made = self._fold(node, [value for value in values if value])
        else:
            self._read(node, values, scope)
            return []
        scope.update(dict.fromkeys(node.outputs, made))
        return [made]

    def _call(
        self, body: Graph, node: Node, values: list[Value | None], scope: _ValueScope, depth: int
    ) -> list[Value]:
        """A call of a function is replaced by its nodes, and their constants."""
        self._calls += 1
        inner: _ValueScope = ChainMap(dict(zip(body.formals, values, strict=False)))
        made = self._nodes(body.nodes, inner, depth)
        results = (inner.get(name) for name in body.results)
        scope.update(zip(node.outputs, results, strict=False))
        self._calls -= 1
        return made

    def _is_folded(self, node: Node, values: Sequence[Value | None]) -> bool:
        if node.domain or node.op in _NOT_FOLDED or not any(values):
            return False
        names = (name for name, value in zip(node.inputs, values, strict=True) if not value)
        return not any(names) and self._dequantized.isdisjoint(node.inputs)

    def _fold(self, node: Node, given: Sequence[Value]) -> Value:
        """The constant that *node*, with the constant inputs *given*, becomes."""
        value = _fold(node, given)
        self._unknown_folds += value.count < 0
        self._largest_fold = max(self._largest_fold, value.nbytes)
        return value

    def _read(self, node: Node, values: Sequence[Value | None], scope: _ValueScope) -> None:
        """Note in which form *node*, which stays, holds its inputs *values*."""
        if node.op == b"DequantizeLinear":  # it becomes a part of the kernel that reads it
            weights = values[0] if values else None
            scope.update(dict.fromkeys(node.outputs, weights))
            self._dequantized.update(node.outputs)
            if weights and BITS[weights.elem_type] < 8:  # the matrix is transposed as a whole
                self._replaced += weights.held_nbytes
            values = [None, *values[1:]]
        for index, value in enumerate(values):
            if value:
                self._hold(node, index, value)

    def _hold(self, node: Node, index: int, value: Value) -> None:
        """Note in which form *node* holds *value*, its input *index*."""
        factor = 2 if value.elem_type in HALVES and node.op not in _IN_HALVES else 1
        self._replaced += value.parsed_nbytes if factor == 2 else 0
        rank = len(value.dims or (0, 0))
        if (node.op, index) in _PACKED and rank > 1 and _bits(value) > 7:
            conv = (node.op, index) in _CONVS
            packed_nbytes = factor * _packed_nbytes(node, value, conv=conv)
            value.forms["packed"] = max(packed_nbytes, value.forms.get("packed", 0))
            value.n_packs += 1
            if conv and rank == 4 and _bits(value) > 8:  # its elements are reordered
                self._largest_copy = max(self._largest_copy, 3 * packed_nbytes)
                self._replaced += value.parsed_nbytes
                self._nodes_nbytes += _CONV_NBYTES
        else:
            factor = 3 if (node.op, index) in _SCALES else factor
            value.forms[factor] = factor * value.held_nbytes

    def _settle(self, value: Value, depth: int) -> None:
        """Add a constant, once it is known what reads it."""
        held_nbytes = value.held_nbytes
        self._parsed += value.parsed_nbytes
        self._largest_parsed = max(self._largest_parsed, value.parsed_nbytes, held_nbytes)
        copies = depth + 1 if depth else 0
        self._held += sum(value.forms.values()) + copies * held_nbytes
        self._replaced += depth * held_nbytes
        if not value.forms or value.elem_type == STRING:  # nothing needs it as it is
            self._replaced += held_nbytes if value.folded else value.parsed_nbytes
        copy_nbytes = 2 * held_nbytes if value.folded or 2 in value.forms else held_nbytes
        if value.n_packs > 1:  # packed again, to find that it was packed already
            copy_nbytes += value.forms["packed"]
        self._largest_copy = max(self._largest_copy, copy_nbytes)
        self._small += 2 * held_nbytes if held_nbytes < _HEAP_NBYTES else 0


def _fold(node: Node, given: Sequence[Value]) -> Value:
    """The constant that *node*, with the constant inputs *given*, becomes; count -1: unknown."""
    elem_type = (*node.ints.get(b"to", ()), 0)[0] if node.op == b"Cast" else given[0].elem_type
    counts, dims = [value.count for value in given], _dims(node, given)
    count = -1
    if dims is not None:
        count = math.prod(dims)
    elif min(counts) >= 0 and node.op in _MOVES:
        count = sum(counts)
    elif min(counts) > 0 and node.op in _PRODUCT:  # an empty input may mean that all others stay
        count = math.prod(counts)
    nbytes = count * (BITS.get(elem_type, 64) or 256) // 8
    exact = (dims is not None or node.op in _MOVES) and count <= sum(counts)
    if not 0 <= count <= _INT64_MAX or (nbytes > FOLD_LIMIT_NBYTES and not exact):
        return Value("", elem_type, None, -1, 0, 0, folded=True)
    return Value("", elem_type, dims, count, nbytes, nbytes, folded=True)


def _dims(node: Node, given: Sequence[Value]) -> tuple[int, ...] | None:
    """The dimensions of a folded constant, or larger ones; ``None`` if they are hard to tell."""
    shapes = [value.dims for value in given if value.dims is not None]
    if len(shapes) < len(given):
        return None
    first, numbers, found = shapes[0], given[-1].ints, None
    if node.op in _BROADCAST:
        columns = zip_longest(*map(reversed, shapes), fillvalue=1)
        return tuple(max(column) if min(column) else 0 for column in columns)[::-1]
    if node.op in _AS_FIRST:  # or fewer
        found = first
    if node.op == b"Transpose":
        order = node.ints.get(b"perm") or tuple(reversed(range(len(first))))
        found = tuple(first[n] for n in order if n in range(len(first)))
    if node.op in (b"Squeeze", b"Unsqueeze") and (node.ints.get(b"axes") or numbers) == (0,):
        found = (1, *first) if node.op == b"Unsqueeze" else first[1:]
    if node.op == b"Concat" and {len(shape) for shape in shapes} == {len(first)} != {0}:
        axis = (*node.ints.get(b"axis", ()), 0)[0] % len(first)
        found = (*first[:axis], sum(shape[axis] for shape in shapes), *first[axis + 1 :])
    if node.op == b"Reshape" and numbers and min(numbers) > 0:
        found = numbers
    return found


def _bits(value: Value) -> int:
    return BITS.get(value.elem_type, 32)


def _packed_nbytes(node: Node, value: Value, *, conv: bool) -> int:
    """The most that *value* takes as a kernel packs it, its sizes in multiples of 16."""
    dims = value.dims or (value.count, 1)  # if they are unknown, at worst one column
    rows, columns = dims[:2] if conv else dims[-2:]
    count = max(1, rows * columns)
    if not conv and (len(dims) > 2 or node.ints.get(b"transB") == (1,)):  # of an LSTM or GRU too
        rows, columns = columns, rows
    if conv or _bits(value) < 16:
        rows = _up16(rows)
    return value.nbytes * rows * _up16(columns) // count


def _up16(n: int) -> int:
    return -(-n // 16) * 16
