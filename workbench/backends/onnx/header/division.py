"""Integer divisions that could end the process.

Measured with onnxruntime 1.28 and 1.31 on x86-64: INT32 and INT64 ``Div``, and ``Mod`` with
``fmod=0``, of the least number by -1 raise SIGFPE, which ends the process. INT8 and INT16
wrap, and a divisor of zero is refused with an error.

A division of 1 is dangerous as well if its quotient is multiplied by a number: ONNX Runtime
fuses both into a division of that number.

A division is harmless if its divisor is never -1: a constant, or a size or position (``Shape``,
``NonZero``, ``ArgMax``), also after its elements were moved. It is harmless too if its dividend
is a constant that is neither 1 nor the least number. Types are followed through the operators
of ONNX from the types of inputs and constants; a type that stays unknown counts as an integer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from workbench.backends.onnx.header.fields import Reader
from workbench.backends.onnx.header.graph import Graph, Node, Value, elem_types

_INT32, _INT64, _NO_INTEGER = 6, 7, -1
_DIVISIONS = (b"Div", b"Mod")
_COUNT_OF = {_INT32: 2**32, _INT64: 2**64}  # of the numbers of a type

# Output types by operator; the output of any other has the type of its first input. A test
# compares these with the schemas of the onnx package.
# INT64, 0 or more
_COUNTS = frozenset(b"ArgMax ArgMin NonMaxSuppression NonZero SequenceLength Shape Size".split())
_COUNTS_BESIDE = frozenset(b"MaxPool StringSplit TopK Unique".split())  # from the second output on
_INT32_SUMS = frozenset((b"ConvInteger", b"MatMulInteger"))
_NO_INTEGERS = frozenset(
    b"DequantizeLinear Equal FeatureVectorizer Greater GreaterOrEqual Less LessOrEqual "
    b"LinearRegressor Normalizer OneHotEncoder OptionalHasElement QuantizeLinear RandomNormal "
    b"RandomNormalLike RandomUniform RandomUniformLike SVMRegressor Scaler TfIdfVectorizer "
    b"TreeEnsembleRegressor".split()
)
_BY_ATTRIBUTE = {
    **dict.fromkeys((b"BitCast", b"Cast"), b"to"),
    **dict.fromkeys((b"Bernoulli", b"EyeLike", b"Multinomial"), b"dtype"),
    **dict.fromkeys(
        b"BlackmanWindow HammingWindow HannWindow MelWeightMatrix".split(), b"output_datatype"
    ),
}
_BY_INPUT = {b"CastLike": 1, b"OneHot": 2, b"Where": 1}
_UNKNOWN = frozenset(
    b"CastMap CategoryMapper ConcatFromSequence DictVectorizer LabelEncoder LinearClassifier "
    b"Optional OptionalGetElement SVMClassifier SequenceAt SequenceConstruct SequenceEmpty "
    b"SequenceMap SplitToSequence TreeEnsembleClassifier ZipMap".split()
)
_OF_SUBGRAPHS = frozenset((b"If", b"Loop", b"Scan"))  # the type of their subgraphs' results
# Operators of other domains whose first output is floating point
_FLOATING = frozenset(
    b"Attention BiasDropout BiasGelu BiasSoftmax BiasSplitGelu DecoderMaskedMultiHeadAttention "
    b"DecoderMaskedSelfAttention DynamicQuantizeMatMul EmbedLayerNormalization FastGelu FusedConv "
    b"FusedGemm FusedMatMul Gelu GroupNorm GroupQueryAttention LongformerAttention "
    b"MatMulIntegerToFloat MatMulNBits MoE MultiHeadAttention NhwcConv PackedAttention "
    b"PackedMultiHeadAttention QAttention QuickGelu RelativePositionBias RotaryEmbedding "
    b"SkipGroupNorm SkipLayerNormalization SkipSimplifiedLayerNormalization".split()
)
# Operators that only move elements of their first input; Concat moves those of all
_MOVES = frozenset(
    b"Concat Expand Flatten Gather GatherElements GatherND Identity Reshape Slice Split Squeeze "
    b"Tile Transpose Unsqueeze".split()
)


@dataclass(frozen=True, slots=True, order=True)
class Division:
    """A ``Div`` or ``Mod`` whose operands are to be guarded.

    *path*: -1 for the main graph, else the function's index; the node's index; then, for each
    subgraph on the way down, its index among those of its node, and the index of a node in it.
    *elem_type*: INT32 (6) or INT64 (7) of TensorProto.DataType, 0 if unknown.
    """

    path: tuple[int, ...]
    elem_type: int


@dataclass(frozen=True, slots=True)
class _KnownValue:
    """Facts about a value: its type, and whether it may hold -1, or the least number or 1.

    *elem_type* is a TensorProto.DataType, 0 if unknown, -1 for any but INT32 and INT64.
    """

    elem_type: int = 0
    minus_one: bool = True
    least_or_one: bool = True


_ANY = _KnownValue()
_COUNT = _KnownValue(_INT64, minus_one=False)
_KnownScopes = list[dict[bytes, _KnownValue]]


def dangerous_divisions(
    reader: Reader, graph: Graph, functions: Sequence[Graph], overridable: Sequence[bytes] = ()
) -> tuple[Division, ...]:
    """The divisions of a model that could end the process; its *functions* must not recurse.

    The constants *overridable* may be given by a request.
    """
    if not any(_divides(body) for body in (graph, *functions)):
        return ()
    search = _Search(reader, functions)
    local = {info.name.encode(): _of_type(info.elem_type) for info in graph.inputs}
    local |= {name: _of_constant(value) for name, value in graph.values.items()}
    local |= {name: _of_type(graph.values[name].elem_type) for name in overridable}
    search.body(graph, [local], (-1,))
    return search.found()


def _divides(graph: Graph) -> bool:
    return any(_is_division(node) or any(map(_divides, node.graphs)) for node in graph.nodes)


def _is_division(node: Node) -> bool:
    """True if *node* is a ``Div`` or integer ``Mod``; in a function, the call may set fmod."""
    if node.op not in _DIVISIONS or node.domain or len(node.inputs) != 2:
        return False
    return node.op == b"Div" or (node.op == b"Mod" and node.ints.get(b"fmod") != (1,))


class _Search:
    """Searches graphs, and the functions that they call once for each combination of types."""

    def __init__(self, reader: Reader, functions: Sequence[Graph]) -> None:
        self._types: dict[tuple[int, ...], set[int]] = {}  # of each division, by its path
        self._dangerous: set[tuple[int, ...]] = set()
        self._reader = reader
        self._functions = {body.name: (index, body) for index, body in enumerate(functions)}
        self._called: dict[tuple[int, tuple[_KnownValue, ...]], list[_KnownValue]] = {}
        self._declared: dict[int, dict[bytes, int]] = {}  # by id of the graph

    def found(self) -> tuple[Division, ...]:
        """The dangerous divisions so far; of those with several types the type is unknown."""
        types = {path: self._types[path] for path in sorted(self._dangerous)}
        return tuple(
            Division(path, next(iter(several)) if len(several) == 1 else 0)
            for path, several in types.items()
        )

    def body(self, graph: Graph, scope: _KnownScopes, path: tuple[int, ...]) -> list[_KnownValue]:
        """Search *graph*, whose own names are ``scope[0]``; return what is known of its results."""
        for index, node in enumerate(graph.nodes):
            given = [_lookup(scope, name) for name in node.inputs]
            if _is_division(node):
                self._divide(graph, node, given, (*path, index))
            made = self._node(node, given, scope, (*path, index))
            scope[0].update(zip(node.outputs, made, strict=False))
        return [_lookup(scope, name) for name in graph.results]

    def _divide(
        self, graph: Graph, node: Node, given: Sequence[_KnownValue], path: tuple[int, ...]
    ) -> None:
        dividend, divisor = given
        elem_type = dividend.elem_type or divisor.elem_type or self._declared_type(graph, node)
        self._types.setdefault(path, set()).add(elem_type)
        if divisor.minus_one and dividend.least_or_one and elem_type in (0, _INT32, _INT64):
            self._dangerous.add(path)

    def _declared_type(self, graph: Graph, node: Node) -> int:
        """The type of *node*'s operands and result, if the file declares any of them."""
        known = self._declared.get(id(graph))
        if known is None:
            known = {info.name.encode(): info.elem_type for info in graph.outputs}
            known |= elem_types(self._reader, graph)
            self._declared[id(graph)] = known
        types = (known.get(name, 0) for name in (*node.inputs, *node.outputs))
        return next(filter(None, types), 0)

    def _node(
        self, node: Node, given: list[_KnownValue], scope: _KnownScopes, path: tuple[int, ...]
    ) -> list[_KnownValue]:
        """Facts about each output of *node*."""
        found = self._functions.get((node.domain, node.op)) if self._functions else None
        outer = [] if found else scope  # a graph given to a function sees what is in there
        results = [
            self.body(graph, [_inputs(node, graph, given), *outer], (*path, index))
            for index, graph in enumerate(node.graphs)
        ]
        if found:
            return self._call(*found, given)
        if results and not node.domain and node.op in _OF_SUBGRAPHS:
            skipped = int(node.op == b"Loop")  # its condition; what the others hold is not known
            return [_of_type(known.elem_type) for known in results[0][skipped:]]
        return [_result(node, index, given) for index in range(len(node.outputs))]

    def _call(self, index: int, body: Graph, given: Sequence[_KnownValue]) -> list[_KnownValue]:
        key = index, tuple(given)
        if key not in self._called:
            local = dict(zip(body.formals, given, strict=False))
            self._called[key] = self.body(body, [local], (index,))
        return self._called[key]


def _lookup(scope: _KnownScopes, name: bytes) -> _KnownValue:
    for names in scope:
        if name in names:
            return names[name]
    return _ANY


@cache
def _of_type(elem_type: int) -> _KnownValue:
    """A value of which only its type is known."""
    return _KnownValue(elem_type)


def _inputs(node: Node, graph: Graph, given: Sequence[_KnownValue]) -> dict[bytes, _KnownValue]:
    """Facts about the names that a subgraph begins with."""
    local = {info.name.encode(): _of_type(info.elem_type) for info in graph.inputs}
    if node.op == b"Loop":  # its inputs after the first two are the state
        for info, known in zip(graph.inputs[2:], given[2:], strict=False):
            local[info.name.encode()] = _of_type(info.elem_type or known.elem_type)
        for info in graph.inputs[:1]:
            local[info.name.encode()] = _COUNT
    if node.op == b"Scan":
        for info, known in zip(graph.inputs, given, strict=False):
            local[info.name.encode()] = _of_type(info.elem_type or known.elem_type)
    return local | {name: _of_constant(value) for name, value in graph.values.items()}


def _of_constant(value: Value) -> _KnownValue:
    count = _COUNT_OF.get(value.elem_type)
    if count is None or value.ints is None:
        return _of_type(value.elem_type)
    # some files write negative numbers as large positive ones
    numbers = {number % count for number in value.ints}
    least_or_one = not numbers.isdisjoint((count // 2, 1))
    return _KnownValue(value.elem_type, minus_one=count - 1 in numbers, least_or_one=least_or_one)


def _result(node: Node, index: int, given: Sequence[_KnownValue]) -> _KnownValue:
    """Facts about output *index* of a *node* whose inputs are *given*."""
    op = node.op
    if node.domain not in (b"", b"ai.onnx.ml"):
        return _of_type(_NO_INTEGER) if index == 0 and op in _FLOATING else _ANY
    if op in (b"Constant", b"ConstantOfShape"):
        return _of_constant(node.values[0]) if node.values else _ANY
    if op in (_COUNTS_BESIDE if index else _COUNTS):
        return _COUNT
    if op in _MOVES:
        return _either(given if op == b"Concat" else given[:1])
    elem_type = _type(node, index, given)
    if op == b"Cast" and given and elem_type == given[0].elem_type:
        return given[0]
    return _of_type(elem_type)


def _either(moved: Sequence[_KnownValue]) -> _KnownValue:
    """Facts about a value whose elements are from any of the *moved*."""
    return _KnownValue(
        next((known.elem_type for known in moved if known.elem_type), 0),
        minus_one=any(known.minus_one for known in moved),
        least_or_one=any(known.least_or_one for known in moved),
    )


def _type(node: Node, index: int, given: Sequence[_KnownValue]) -> int:
    """The element type of output *index*; 0 if unknown."""
    op = node.op
    if op in _UNKNOWN:
        return _NO_INTEGER if index and op.endswith(b"Classifier") else 0
    if op in _INT32_SUMS:
        return _INT32
    if op in _NO_INTEGERS:
        return _NO_INTEGER
    if op in _BY_ATTRIBUTE:  # in a function, it may come from the call
        return (*node.ints.get(_BY_ATTRIBUTE[op], ()), 0)[0]
    source = _BY_INPUT.get(op, 0)
    return given[source].elem_type if source < len(given) else 0
