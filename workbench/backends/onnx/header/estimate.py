"""An upper bound of the memory that a session takes, from the model's header alone.

It counts for the first load of a file: a load that runs alone is measured, and the measured
figures count from then on (``memory.watch``). The rules come from about 125 models, measured
with onnxruntime 1.31 on x86-64 (anonymous memory of a fresh process):

- A constant is held as it is if any kernel reads it so, and packed if any kernel packs it, with
  its sizes in multiples of 16 (so [K, 1] takes 16x). Without fp16 kernels, fp16 is computed in
  fp32 (2x). In a subgraph of depth d there are d more copies.
- While loading there is one more copy of the constant that is being packed, two if it is shared,
  three for a Conv. Conv reordering, fp16 casts and folding keep the old constants until all are
  done.
- A node takes 3 kB, one that holds a subgraph 12 kB more, a Conv 16 kB more; while loading, twice
  that.
- Constant folding is bounded only if the session is given
  ``optimization.constant_folding_max_output_size_in_bytes = fold_limit_nbytes`` (a 400 byte file
  can otherwise grow by 1 GiB per node). All that is folded is held until folding ends.
- Freed blocks must go back to the system at once, which glibc does for blocks over
  M_MMAP_THRESHOLD: the load sets that to 1 MiB (``heap``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from workbench.backends.onnx.header.fields import Fault
from workbench.backends.onnx.header.folding import (
    FOLD_LIMIT_NBYTES,
    NOT_FOLDED,
    UNKNOWN_FOLDS_NBYTES,
    folded,
)
from workbench.backends.onnx.header.graph import (
    BITS,
    DEPTH_MAX,
    FLOAT,
    HALVES,
    STRING,
    Graph,
    Node,
    Value,
)

_CALLED_NODES_MAX = 250_000  # functions calling functions: two lines double the nodes
_NODE_NBYTES, _GRAPH_NBYTES, _CONV_NBYTES = 3 << 10, 12 << 10, 16 << 10
_SMALL_NBYTES = 1 << 20  # smaller blocks come from the heap, also during a load

# The inputs (operator, index) that a kernel packs.
_CONVS = frozenset([(b"Conv", 1), (b"FusedConv", 1), (b"QLinearConv", 3)])
_PACKED = _CONVS | {
    *((op, 1) for op in b"MatMul Gemm FusedMatMul FusedGemm MatMulInteger LSTM GRU".split()),
    *((op, 1) for op in b"MatMulIntegerToFloat DynamicQuantizeMatMul Attention".split()),
    *((op, 2) for op in (b"LSTM", b"GRU")),
    *((op, 3) for op in (b"QLinearMatMul", b"QGemm")),
}
# The operators with fp16 kernels on the CPU.
_MOVES = frozenset(
    b"Cast Concat ConstantOfShape Expand Flatten Gather GatherElements GatherND Identity "
    b"Reshape Shape Size Slice Split Squeeze Transpose Unsqueeze".split()
)
_Scope = list[dict[bytes, Value | None]]


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

    def __init__(self, functions: Sequence[Graph]) -> None:
        self._functions = {body.name: body for body in functions}
        self._level = self._calls = self._called_nodes = 0
        self._held = self._parsed = self._small = self._nodes_nbytes = 0
        # The body of a function exists as parsed, as a schema and as a template.
        self._replaced = 3 * sum(map(weights_nbytes, functions))
        self._largest_copy = self._largest_parsed = self._largest_fold = 0
        self._unknown_folds = 0
        self._grown: list[Value] = []
        self._dequantized: set[bytes] = set()

    @property
    def fold_limit_nbytes(self) -> int:
        """The most that one folded constant may take; less if the sizes of many are unknown."""
        share_nbytes = UNKNOWN_FOLDS_NBYTES // max(1, self._unknown_folds)
        return max(self._largest_fold, min(FOLD_LIMIT_NBYTES, share_nbytes))

    def resident_nbytes(self, meta_nbytes: int) -> int:
        """Held once loaded. *meta_nbytes*: the file without its numbers, which takes up to 4x."""
        return (1 << 17) + self._held + self._nodes_nbytes + 4 * meta_nbytes

    def load_nbytes(self, meta_nbytes: int) -> int:
        """The most at any moment: while the file is parsed, or while kernels are made.

        The lists of a tree ensemble took 12x of the file; buffers took up to 4 MiB.
        """
        parsing = self._parsed + self._largest_parsed
        making = self._held + self._replaced + self._largest_copy
        making += self._unknown_folds * self.fold_limit_nbytes
        fixed = (1 << 20) + min(4 << 20, self._parsed)
        loose = self._small + 2 * self._nodes_nbytes + 13 * meta_nbytes + fixed
        return max(parsing, making) * 102 // 100 + loose

    def graph(self, graph: Graph, outer: _Scope, depth: int) -> None:
        """Add *graph*; *outer*: the names known in the graphs around it, the nearest first."""
        local: dict[bytes, Value | None] = dict(graph.values)
        owned = [*graph.values.values(), *self._nodes(graph.nodes, [local, *outer], depth)]
        for name in graph.results:
            if value := local.get(name):
                _hold(value, "raw", value.held_nbytes)
        if depth == 0:  # only now is the limit known
            owned += [value for value in self._grown if value.nbytes <= self.fold_limit_nbytes]
        for value in owned:
            self._settle(value, depth)

    def _nodes(self, nodes: Sequence[Node], scope: _Scope, depth: int) -> list[Value]:
        """Add each node; returns the constants that they make."""
        self._level += 1
        self._called_nodes += len(nodes) if self._calls else 0
        if self._called_nodes > _CALLED_NODES_MAX or self._level > 2 * DEPTH_MAX:
            raise Fault("its functions call too deep, or expand into too many nodes")
        made = [value for node in nodes for value in self._node(node, scope, depth)]
        self._nodes_nbytes += len(nodes) * _NODE_NBYTES
        self._level -= 1
        return made

    def _node(self, node: Node, scope: _Scope, depth: int) -> list[Value]:
        values = [_lookup(scope, name) for name in node.inputs]
        if body := self._functions.get((node.domain, node.op)):
            return self._call(body, node, values, scope, depth)
        for graph in node.graphs:
            self._nodes_nbytes += _GRAPH_NBYTES
            self.graph(graph, scope, depth + 1)
        if node.op == b"Constant" and node.values:
            made = replace(node.values[0], forms={})
            self._replaced += 0 if self._calls else made.parsed_nbytes  # as the node's attribute
            scope[0].update(dict.fromkeys(node.outputs, made))
            return [made]
        if node.op == b"DequantizeLinear":  # it becomes a part of the kernel that reads it
            scope[0].update(dict.fromkeys(node.outputs, values[0]))
            self._dequantized.update(node.outputs)
        elif self._is_folded(node, values):
            return self._fold(node, [value for value in values if value], scope)
        for index, value in enumerate(values):
            if value:
                self._consume(node, index, value)
        return []

    def _call(
        self, body: Graph, node: Node, values: list[Value | None], scope: _Scope, depth: int
    ) -> list[Value]:
        """A call of a function is replaced by its nodes, and their constants."""
        self._calls += 1
        inner: dict[bytes, Value | None] = dict(zip(body.formals, values, strict=False))
        made = self._nodes(body.nodes, [inner], depth)
        for formal, actual in zip(body.results, node.outputs, strict=False):
            scope[0][actual] = inner.get(formal)
        self._calls -= 1
        return made

    def _is_folded(self, node: Node, values: Sequence[Value | None]) -> bool:
        if node.domain or node.op in NOT_FOLDED or not any(values):
            return False
        constants = {name for name, value in zip(node.inputs, values, strict=True) if value}
        return (constants - self._dequantized).issuperset(filter(None, node.inputs))

    def _fold(self, node: Node, given: Sequence[Value], scope: _Scope) -> list[Value]:
        """All inputs are constant, so is the output; inputs that nothing else reads go."""
        result = folded(node, given)
        scope[0].update(dict.fromkeys(node.outputs, result))
        if result.count < 0:
            self._unknown_folds += 1
            return []
        if result.grown and result.nbytes > FOLD_LIMIT_NBYTES:
            self._grown.append(result)
            return []
        self._largest_fold = max(self._largest_fold, result.nbytes)
        return [result]

    def _consume(self, node: Node, index: int, value: Value) -> None:
        """Note in which form *node* holds *value*, its input *index*."""
        if node.op == b"DequantizeLinear" and not index:
            if BITS[value.elem_type] < 8:  # the matrix is transposed as a whole
                self._replaced += value.held_nbytes
            return
        factor = 1
        if value.elem_type in HALVES and node.op not in _MOVES:
            factor = 2
            self._replaced += value.parsed_nbytes
        if (node.op, index) in _PACKED and len(value.dims or ()) > 1 and BITS[value.elem_type] > 7:
            self._pack(node, index, value, 4 * value.count if factor == 2 else value.nbytes)
            return
        factor = 3 if _are_scales(node, index, value) else factor
        _hold(value, "raw" if factor == 1 else "converted", factor * value.held_nbytes)

    def _pack(self, node: Node, index: int, value: Value, nbytes: int) -> None:
        """The kernel holds *nbytes* of numbers in a form of its own."""
        value.n_packs += 1
        packed_nbytes = _packed_nbytes(node, value, nbytes)
        _hold(value, "packed", packed_nbytes)
        if (node.op, index) in _CONVS and len(value.dims or ()) == 4 and BITS[value.elem_type] > 8:
            self._largest_copy = max(self._largest_copy, 3 * packed_nbytes)
            self._replaced += value.parsed_nbytes
            self._nodes_nbytes += _CONV_NBYTES

    def _settle(self, value: Value, depth: int) -> None:
        """Add a constant, once it is known what reads it."""
        self._parsed += value.parsed_nbytes
        self._largest_parsed = max(self._largest_parsed, value.parsed_nbytes, value.held_nbytes)
        copies = depth + 1 if depth and value.n_packs else depth
        self._held += sum(value.forms.values()) + copies * value.held_nbytes
        self._replaced += depth * value.held_nbytes
        if not value.forms or value.elem_type == STRING:
            self._replaced += value.held_nbytes if value.folded else value.parsed_nbytes
        twice = value.folded or (value.n_packs and value.elem_type in HALVES)
        copy_nbytes = value.held_nbytes * (2 if twice else 1)
        if value.n_packs > 1:  # packed again, to find that it was packed already
            copy_nbytes += value.forms["packed"]
        self._largest_copy = max(self._largest_copy, copy_nbytes)
        self._small += 2 * value.held_nbytes if value.held_nbytes < _SMALL_NBYTES else 0


def _hold(value: Value, form: str, nbytes: int) -> None:
    value.forms[form] = max(nbytes, value.forms.get(form, 0))


def _lookup(scope: _Scope, name: bytes) -> Value | None:
    return next((names[name] for names in scope if name in names), None)


def _are_scales(node: Node, index: int, value: Value) -> bool:
    """Whether *value* is the scales of 4-bit weights, which are held three times."""
    if node.op == b"MatMulNBits":
        return index == 2 and (value.elem_type != FLOAT or node.ints.get(b"accuracy_level") == (4,))
    return node.op == b"DequantizeLinear" and index == 1 and len(value.dims or ()) > 1


def _packed_nbytes(node: Node, value: Value, nbytes: int) -> int:
    """The most that *value*, of *nbytes*, takes as a kernel packs it."""
    dims, item_nbytes = value.dims or (), nbytes // max(1, value.count)
    if (node.op, 1) in _CONVS or node.op == b"QLinearConv":
        group = max((1, *node.ints.get(b"group", ())))
        channels, rest = dims[0], math.prod(dims[2:])
        if item_nbytes == 1:  # a matrix for each group
            return group * _up16(channels // group) * (_up16(dims[1] * rest) + 16)
        return _up16(channels) * (dims[1] if dims[1] < 16 else _up16(dims[1])) * rest * item_nbytes
    *batch, rows, columns = dims
    if batch or node.ints.get(b"transB") == (1,):  # of an LSTM or GRU, the columns come first
        rows, columns = columns, rows
    rows = _up16(rows) + 16 if item_nbytes == 1 else rows
    return math.prod(batch) * rows * _up16(columns) * item_nbytes


def _up16(n: int) -> int:
    return -(-n // 16) * 16
