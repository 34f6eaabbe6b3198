"""Steady graphs: the time and memory of a run depend only on the shapes of its inputs.

A graph is steady only if all its operators are listed here. Others may depend on values: one branch
of an If may take a thousand times as long as the other, the number of rounds of a Loop is an input,
RoiAlign takes as many samples as a box has pixels, and operators of later versions are unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from workbench.backends.onnx.header.graph import Graph, Node

BY_SHAPE = frozenset(
    b"""
    Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh Attention AveragePool
    BatchNormalization Bernoulli BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast CastLike
    Ceil Celu Clip Concat Constant Conv ConvInteger ConvTranspose Cos Cosh CumSum DeformConv
    DepthToSpace DequantizeLinear Det Div Dropout DynamicQuantizeLinear Einsum Elu Equal Erf Exp
    EyeLike Flatten Floor Gather GatherElements GatherND Gelu Gemm GlobalAveragePool GlobalLpPool
    GlobalMaxPool Greater GreaterOrEqual GridSample GroupNormalization HardSigmoid HardSwish
    Hardmax Identity InstanceNormalization IsInf IsNaN LRN LayerNormalization LeakyRelu Less
    LessOrEqual Log LogSoftmax LpNormalization LpPool MatMul MatMulInteger Max MaxPool MaxRoiPool
    Mean MeanVarianceNormalization Min Mish Mod Mul Multinomial Neg NegativeLogLikelihoodLoss Not
    Or PRelu Pow QLinearConv QLinearMatMul QuantizeLinear RMSNormalization RandomNormal
    RandomNormalLike RandomUniform RandomUniformLike Reciprocal ReduceL1 ReduceL2 ReduceLogSum
    ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu
    Reshape ReverseSequence RotaryEmbedding Round ScatterElements ScatterND Scatter Selu
    Shape Shrink Sigmoid Sign Sin Sinh Size Slice Softmax SoftmaxCrossEntropyLoss Softplus Softsign
    SpaceToDepth Split Sqrt Squeeze Sub Sum Swish Tan Tanh ThresholdedRelu TopK Transpose Trilu
    Unsqueeze Where Xor
    """.split()
)
_OF_ML = frozenset(
    b"""
    ArrayFeatureExtractor Binarizer FeatureVectorizer Imputer LabelEncoder LinearClassifier
    LinearRegressor Normalizer OneHotEncoder SVMClassifier SVMRegressor Scaler TreeEnsemble
    TreeEnsembleClassifier TreeEnsembleRegressor ZipMap
    """.split()
)
_OF_MICROSOFT = frozenset(
    b"""
    BiasGelu BiasSoftmax DynamicQuantizeMatMul EmbedLayerNormalization FastGelu FusedConv FusedGemm
    FusedMatMul Gelu MatMulInteger16 MatMulIntegerToFloat MatMulNBits QAttention QGemm QLinearAdd
    QLinearAveragePool QLinearConcat QLinearConv QLinearGlobalAveragePool QLinearLeakyRelu
    QLinearMul QLinearSigmoid QLinearSoftmax QuickGelu SkipLayerNormalization
    SkipSimplifiedLayerNormalization
    """.split()
)
_LISTED = {b"": BY_SHAPE, b"ai.onnx.ml": _OF_ML, b"com.microsoft": _OF_MICROSOFT}

# These are steady only if the inputs in this range, begin and end, are constants.
_ALL, _SECOND_ON, _LENGTHS = (0, None), (1, None), (4, 5)
_BY_CONSTANTS = {
    **dict.fromkeys(b"BlackmanWindow ConstantOfShape HammingWindow HannWindow Range".split(), _ALL),
    **dict.fromkeys(
        b"CenterCropPad Col2Im DFT Expand OneHot Pad Resize Tile Upsample".split(), _SECOND_ON
    ),
    **dict.fromkeys(b"GRU LSTM RNN".split(), _LENGTHS),
}


def is_steady(graph: Graph, functions: Iterable[Graph], overridable: Collection[bytes]) -> bool:
    """True if runs of *graph*, which may call the model's own *functions*, follow the shapes.

    *overridable*: initializers that a request may replace.
    """
    functions = tuple(functions)
    called = frozenset(function.name for function in functions)
    return all(_follows_shapes(each, called, overridable) for each in (graph, *functions))


def _follows_shapes(
    graph: Graph, called: frozenset[tuple[bytes, bytes]], overridable: Collection[bytes]
) -> bool:
    known = frozenset([*graph.values, b""]).difference(overridable)
    known |= {name for node in graph.nodes if node.op == b"Constant" for name in node.outputs}
    return all(_is_listed(node, known, called) for node in graph.nodes)


def _is_listed(node: Node, known: frozenset[bytes], called: frozenset[tuple[bytes, bytes]]) -> bool:
    if not node.domain and node.op in _BY_CONSTANTS:
        begin, end = _BY_CONSTANTS[node.op]
        return known.issuperset(node.inputs[begin:end])
    if (node.domain, node.op) in called:
        return True
    return node.op in _LISTED.get(node.domain, ())
