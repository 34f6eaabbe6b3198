"""What a session takes of the memory: every constant followed to the kernels that use it.

Measured with onnxruntime 1.31.1 (x86-64 with AVX-512, one intra-op
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
  (a 400 byte file can otherwise grow by 1 GiB per node). All that one pass folds is held
  until it ends, also what only went into the next: so their sizes are added up.
- `load_nbytes` presumes that freed blocks go back at once, which glibc does for blocks
  over M_MMAP_THRESHOLD only: set that to 1 MiB during the load. Left alone, its heap
  kept up to 2.4x of a plain 100 MB model, and 4x of a convolutional one, until a trim.
"""

from __future__ import annotations

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
    HALVES,
    STRING,
    Graph,
    Node,
    Value,
)
from workbench.backends.onnx.header.packing import PACKED, QUANTIZED, packed_nbytes

_CALLED_NODES_MAX = 250_000  # functions calling functions: two lines double the nodes
_NODE_NBYTES = 3 << 10
_SMALL_NBYTES = 1 << 20  # blocks below come from the heap, also during a load


# fp16 kernels of the CPU provider; everything else is computed in fp32
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


class Estimate:
    """Adds up what a session takes; the module's docstring has the measurements.

    Where there are *fp16_kernels*, as on a GPU, halves are used as they are.
    """

    def __init__(self, functions: Sequence[Graph], *, fp16_kernels: bool = False) -> None:
        self._fp16_kernels = fp16_kernels
        self._functions = {body.name: body for body in functions}
        self._level = self._calls = self._called_nodes = 0
        self._resident = self._parsed = self._small = 0
        # The body of a function exists as parsed, as a schema and as a template.
        self._replaced = 3 * sum(map(weights_nbytes, functions))
        self._largest = self._largest_parsed = 0  # of the copies on the way; of the tensors read
        self._nodes_resident = self._nodes_load = self._unknown_folds = 0
        self._grown: list[Value] = []
        self._dequantized: set[bytes] = set()
        self._largest_fold = 0

    @property
    def fold_limit_nbytes(self) -> int:
        """What a folded constant may take: those of unknown sizes little together."""
        share_nbytes = UNKNOWN_FOLDS_NBYTES // max(1, self._unknown_folds)
        return max(self._largest_fold, min(FOLD_LIMIT_NBYTES, share_nbytes))

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

    def graph(self, graph: Graph, outer: _Scope, depth: int) -> None:
        """Follow the constants of *graph*; *outer* are the scopes around it, inner first."""
        local: dict[bytes, Value | None] = dict(graph.values)
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

    def _nodes(self, nodes: Sequence[Node], scope: _Scope, depth: int) -> list[Value]:
        """Follow each node; returns the constants made on the way."""
        self._level += 1
        self._called_nodes += len(nodes) if self._calls else 0
        if self._called_nodes > _CALLED_NODES_MAX or self._level > 2 * DEPTH_MAX:
            raise Fault("its functions call too deep, or expand into too many nodes")
        made: list[Value] = []
        for node in nodes:
            made += self._node(node, scope, depth)
        self._nodes_resident += len(nodes) * _NODE_NBYTES
        self._nodes_load += len(nodes) * 2 * _NODE_NBYTES
        self._level -= 1
        return made

    def _node(self, node: Node, scope: _Scope, depth: int) -> list[Value]:
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

    def _call(self, body: Graph, node: Node, scope: _Scope, depth: int) -> list[Value]:
        """A call is inlined: its constants exist once more per call."""
        self._calls += 1
        self._nodes_resident -= _NODE_NBYTES  # it goes, its nodes come
        self._nodes_load -= 2 * _NODE_NBYTES
        values = [_lookup(scope, name) for name in node.inputs]
        inner: dict[bytes, Value | None] = dict(zip(body.formals, values, strict=False))
        made = self._nodes(body.nodes, [inner], depth)
        for formal, actual in zip(body.results, node.outputs, strict=False):
            scope[0][actual] = inner.get(formal)
        self._calls -= 1
        return made

    def _constant(self, node: Node, scope: _Scope) -> Value:
        value = replace(node.values[0], forms={})
        # The node's attribute lives on for a while.
        self._replaced += 0 if self._calls else value.parsed_nbytes
        for output in node.outputs:
            scope[0][output] = value
        return value

    def _use(self, node: Node, values: Sequence[Value | None], scope: _Scope) -> list[Value]:
        """Constants go to a kernel in a form of its own, or into a folded constant."""
        if node.op == b"DequantizeLinear" and values[0]:
            self._dequantize(node, values[0], values[1:], scope)
            return []
        given = [value for value in values if value and not value.quantized]
        n_inputs = sum(map(bool, node.inputs))
        if len(given) == n_inputs and not node.domain and node.op not in NOT_FOLDED:
            return self._fold(node, given, scope)
        for index, value in enumerate(values):
            if value:
                self._consume(node, index, value)
        return []

    def _dequantize(
        self, node: Node, weight: Value, others: Sequence[Value | None], scope: _Scope
    ) -> None:
        """Weights stay quantized: the node melts into its consumer, or runs each time."""
        four_bits = BITS[weight.elem_type] < 8  # becomes a MatMulNBits, weights transposed
        self._replaced += weight.held_nbytes if four_bits else 0
        for value in filter(None, others):
            scales = four_bits and len(value.dims or ()) > 1
            self._hold(value, value.held_nbytes * (3 if scales else 1))
            self._replaced += value.held_nbytes if four_bits else 0
        self._hold(weight, 0)
        alias = replace(weight, quantized=weight.quantized or weight)
        for output in node.outputs:
            scope[0][output] = alias

    def _fold(self, node: Node, given: Sequence[Value], scope: _Scope) -> list[Value]:
        """All inputs are constant, so is the output; inputs nobody else needs go."""
        result = folded(node, given)
        for output in node.outputs:
            scope[0][output] = result
        if result.count < 0:
            self._unknown_folds += 1
            return []
        result.grown |= any(value.grown for value in given)
        if result.grown and result.nbytes > FOLD_LIMIT_NBYTES:
            self._grown.append(result)
            return []
        self._largest_fold = max(self._largest_fold, result.nbytes)
        return [result]

    def _hold(self, value: Value, nbytes: int, form: object = "raw") -> None:
        value.forms[form] = max(nbytes, value.forms.get(form, 0))

    def _consume(self, node: Node, index: int, value: Value) -> None:
        """Note the form in which this kernel holds its input."""
        if self._fp16_kernels and value.elem_type in HALVES:
            self._hold(value, value.held_nbytes)
            return
        how = PACKED.get((node.op, index), "")
        if value.quantized:  # through DequantizeLinear, which melts into the kernel
            value, how = value.quantized, QUANTIZED.get(how, "")
            how = how if node.inputs[0] in self._dequantized else ""
        half = value.elem_type in HALVES and node.op not in _MOVES and how != "scales"
        self._replaced += value.parsed_nbytes if half else 0
        packed = packed_nbytes(node, how, value)
        if packed is None:
            self._hold(value, value.held_nbytes * (2 if half else 1), "fp32" if half else "raw")
            return
        value.n_packs += 1
        self._hold(value, packed, (how, node.ints.get(b"transB"), node.ints.get(b"group")))
        if how == "8bit conv":
            self._largest = max(self._largest, 2 * value.held_nbytes)
        if how == "conv":
            self._reorder(value, packed, half=half)

    def _reorder(self, value: Value, packed: int, *, half: bool) -> None:
        """The old weights stay for a pass; buffer, string and tensor are of the new size."""
        self._replaced += value.held_nbytes * 2 if half else value.parsed_nbytes
        self._largest = max(self._largest, 3 * packed)
        self._nodes_resident += 16 << 10
        self._nodes_load += 32 << 10

    def _settle(self, value: Value, depth: int) -> None:
        """Add a constant whose consumers are all known."""
        self._parsed += value.parsed_nbytes
        self._largest_parsed = max(self._largest_parsed, value.parsed_nbytes, value.held_nbytes)
        # A subgraph keeps the raw tensor, packed or not, and so do the attributes around it.
        raw_too = depth > 0 and value.n_packs > 0
        self._resident += sum(value.forms.values()) + (depth + raw_too) * value.held_nbytes
        self._replaced += depth * value.held_nbytes
        if not value.forms or value.elem_type == STRING:
            self._replaced += value.held_nbytes if value.folded else value.parsed_nbytes
        twice = value.folded or (value.n_packs and value.elem_type in HALVES)
        copy = value.held_nbytes * (2 if twice else 1)
        if value.n_packs > 1:  # packed again, to find that it was packed already
            copy += max(value.forms.values())
        self._largest = max(self._largest, copy)
        self._small += 2 * value.held_nbytes if value.held_nbytes < _SMALL_NBYTES else 0


def _lookup(scope: _Scope, name: bytes) -> Value | None:
    for names in scope:
        if name in names:
            return names[name]
    return None
