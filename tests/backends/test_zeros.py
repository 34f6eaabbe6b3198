"""Sizes and numbers, above all zeros, that end the process in the engine."""

import re
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx
import pytest
from elsewhere import Elsewhere
from onnx_models import source, written

from workbench.backends.onnx import backend, runtime
from workbench.backends.onnx.header.file import read_onnx_file
from workbench.backends.onnx_tiers.write import MODEL, write_prepared
from workbench.errors import InvalidRequest, LoadFailed
from workbench.tensor import DATATYPES, Tensor

# a graph of inputs whose rank the file does not say, shapes that end the process, and others
RANKS = {
    "Concat": ("(float[] x, float[] y) => (float[] z) { z = Concat <axis = 1> (x, y) }",
               [(0,), (2, 2)], [(2, 0), (2, 2)]),
    "a last axis": ("(float[] x, float[] y) => (float[] z) { z = Concat <axis = -2> (x, y) }",
                    [(2, 2), (0,)], [(2, 2), (0, 2)]),
    "before it": (("(float[] x, float[] y) => (float[] z) { a = Neg(y) b = Add(x, x) "
                  "z = Concat <axis = 1> (b, a) }"), [(0,), (2, 2)], [(2, 0), (2, 2)]),
    "ConvInteger": ("(uint8[] x, uint8[] y) => (int32[] z) { z = ConvInteger(x, y) }",
                    [(1, 1, 3, 3), ()], [(1, 1, 3, 3), (1, 1, 2, 2)]),
    "DFT": ("(float[] x) => (float[] z) { z = DFT(x) }", [()], [(1, 4, 1)]),
    "AffineGrid": ("(float[] x, int64[] y) => (float[] z) { z = AffineGrid(x, y) }",
                   [(1, 2, 3), ()], None),
}  # fmt: skip

_RANDOM = {name: np.ones((1, 6, size), np.float32) for name, size in (("w6", 1), ("r6", 2))}
_RANDOM |= {name: np.ones((1, 8, size), np.float32) for name, size in (("w8", 1), ("r8", 2))}
_RANDOM |= {"k": np.ones((1, 1, 2, 2, 2), np.float32), "end": np.array([99], np.int64)}
_RANDOM |= {"one": np.array([1], np.int64), "step": np.array(4, np.int64)}
_SOUND = "float[1, n, 1] x"
_FRAMES = {"x": [1, 16, 1]}
_FUNCTION = '<domain: "d", opset_import: ["": 17]> F (x, s, f) => (r) { r = STFT (x, s, , f) }'
_BRANCH = """If (yes) <
    then_branch = a () => (float[a, b, c, d] t) { t = NODE },
    else_branch = b () => (float[a, b, c, d] e) { e = NODE }
>"""
_TURNED = "b = Transpose <perm = [1, 0, 2]> (a)"
_ZERO = "got 0 as its frame_length, which the engine cannot take"
_EMPTY = "got an empty tensor, which the engine cannot take"
_OBLONG = "got matrices that are not square, which the engine cannot take"
_SMALL = "got sizes below those of its window, which the engine cannot take"
CASES = {
    "an input": (f"{_SOUND}, int64 f", "y = STFT (x, step, , f)", {"f": 0}, _ZERO, {"f": 4}),
    "a product": (
        f"{_SOUND}, int64 f", "a = Mul (f, f) [s] y = STFT (x, step, , a)", {"f": 0},
        f"STFT 's' {_ZERO}", {"f": 2},
    ),
    "a size": (
        f"{_SOUND}, float[k] z", "f = Size (z) y = STFT (x, step, , f)", {"z": [0]}, _ZERO,
        {"z": [4]},
    ),
    "a shape": (
        f"{_SOUND}, float[k] z", "f = Shape (z) y = STFT (x, step, , f)", {"z": [0]}, _ZERO,
        {"z": [4]},
    ),
    "a window": (
        f"{_SOUND}, float[k] z", "y = STFT (x, step, z)", {"z": [0]}, _EMPTY, {"z": [4]}
    ),
    "a window of a length": (
        f"{_SOUND}, int64 f", "z = HannWindow (f) y = STFT (x, step, z)", {"f": 0}, _EMPTY,
        {"f": 4},
    ),
    "a branch": (
        f"{_SOUND}, int64 f, bool yes",
        "y = " + _BRANCH.replace("NODE", "STFT (x, step, , f)"), {"f": 0, "yes": 1}, _ZERO,
        {"f": 4, "yes": 1},
    ),
    "a function": (f"{_SOUND}, int64 f", "y = d.F (x, step, f)", {"f": 0}, _ZERO, {"f": 4}),
    "a GRU of a part": (
        "float[s, n, 1] v",
        "a = Slice (v, one, end) b = Relu (a) [g] y, h = GRU <hidden_size = 2> (b, w6, r6)",
        {"v": [1, 1, 1]}, f"GRU 'g' {_EMPTY}", {"v": [2, 1, 1]},
    ),
    "a LSTM of a part": (
        "float[n, s, 1] v",
        f"a = Slice (v, one, end) {_TURNED} y, h = LSTM <hidden_size = 2> (b, w8, r8)",
        {"v": [1, 1, 1]}, f"LSTM 'y' {_EMPTY}",
        {"v": [2, 1, 1]},
    ),
    "a GRU in a branch": (
        "float[s, n, 1] v, bool yes",
        "a = Slice (v, one, end) y = "
        + _BRANCH.replace("NODE", "GRU <hidden_size = 2> (a, w6, r6)"),
        {"v": [1, 1, 1], "yes": 0}, f"GRU 'e' {_EMPTY}", {"v": [2, 1, 1], "yes": 0},
    ),
    "a volume of a part": (
        "float[1, 1, d, e, f] v", "a = Slice (v, one, end, two) y = ConvTranspose (a, k)",
        {"v": [1, 1, 1, 2, 2]}, f"ConvTranspose 'y' {_EMPTY}", {"v": [1, 1, 2, 2, 2]},
    ),
    "a batch that is not first": (
        "float[n, b, k] v, float[b, k, m] w",
        "y = com.microsoft.FusedMatMul <transBatchA = 1> (v, w)",
        {"v": [0, 2, 3], "w": [2, 3, 4]}, f"FusedMatMul 'y' {_EMPTY}",
        {"v": [5, 2, 3], "w": [2, 3, 4]},
    ),
    "an image below the window": (
        "float[n, 1, d, e] v",
        "a = Relu (v) y = AveragePool <kernel_shape = [3, 3], strides = [2, 2]> (a)",
        {"v": [1, 1, 1, 5]}, f"AveragePool 'y' {_SMALL}", {"v": [1, 1, 2, 5]},
    ),
    "a sound below the window": (
        "float[n, 1, d] v",
        "y = MaxPool <kernel_shape = [4], dilations = [2], pads = [1, 2]> (v)",
        {"v": [1, 1, 3]}, f"MaxPool 'y' {_SMALL}", {"v": [1, 1, 4]},
    ),
    "a matrix": (
        "float[n, m] v", "y = com.microsoft.Inverse (v)", {"v": [2, 3]}, _OBLONG, {"v": [3, 3]}
    ),
    "an empty matrix": (
        "float[n, m] v", "y = com.microsoft.Inverse (v)", {"v": [0, 5]}, _OBLONG, {"v": [1, 1]}
    ),
    "matrices that were turned": (
        "float[b, n, m] v", f"a = Identity (v) {_TURNED} y = com.microsoft.Inverse (b)",
        {"v": [2, 4, 3]}, f"Inverse 'y' {_OBLONG}", {"v": [4, 2, 4]},
    ),
}  # fmt: skip


def case(name: str, path: Path) -> Path:
    inputs, nodes = CASES[name][:2]
    weights = _RANDOM | {"two": np.array([2], np.int64)}
    used = {each: array for each, array in weights.items() if each in nodes or each in _FUNCTION}
    functions = _FUNCTION if "d.F" in nodes else ""
    return written(path, f"({inputs}) => (float y) {{ {nodes} }}", functions, weights=used)


@pytest.mark.parametrize("name", CASES)
def test_no_size_ends_the_process(elsewhere: Elsewhere, tmp_path: Path, name: str) -> None:
    """Such a request is refused with the node's name, and others are answered as ever."""
    path = case(name, tmp_path / "m.onnx")
    *_, zero, told, other = CASES[name]
    refused, answered = (elsewhere.run(path, _FRAMES | feed) for feed in (zero, other))
    assert refused.startswith("m:1 refused its inputs: ")
    assert refused.endswith(told)
    assert re.fullmatch(r"\([1-9, ]+\)", answered)


@pytest.mark.parametrize("name", CASES)
def test_guarded_models_are_valid(tmp_path: Path, name: str) -> None:
    """The nodes that are added make a valid model."""
    file = read_onnx_file(case(name, tmp_path / "m.onnx"))
    assert len(file.guards) == (2 if "branch" in name else 1)
    onnx.checker.check_model(onnx.load_from_string(backend.guarded(file)))


HARMLESS = {
    "a constant length": (_SOUND, "f = Constant <value_int = 4> () y = STFT (x, step, , f)"),
    "one that was cast": (
        _SOUND, "f = Constant <value_int = 4> () g = Cast <to = 6> (f) y = STFT (x, step, , g)"
    ),
    "an input of a GRU": ("float[s, n, 1] v", "y, h = GRU <hidden_size = 2> (v, w6, r6)"),
    "one that is full if the input is": (
        "float[n, s, 1] v",
        f"""a = Relu (v) {_TURNED} g, h = GRU <hidden_size = 2> (b, w6, r6)
        c = Reshape (g, shape) y, i, j = LSTM <hidden_size = 2> (c, w8, r8)""",
    ),
    "an image of one size": (
        "float[n, 1, 9, 9] v", "y = MaxPool <kernel_shape = [3, 3], strides = [2, 2]> (v)"
    ),
    "a window as large as its step": (
        "float[n, 1, d, e] v", "y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (v)"
    ),
    "a padded window": (
        "float[n, 1, d, e] v", "y = AveragePool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (v)"
    ),
    "a window padded by itself": (
        "float[n, 1, d, e] v", 'y = MaxPool <kernel_shape = [3, 3], auto_pad = "SAME_UPPER"> (v)'
    ),
    "an image": ("float[1, 1, d, e] v", "a = Slice (v, one, end) y = ConvTranspose (a, k2)"),
}  # fmt: skip


@pytest.mark.parametrize("name", HARMLESS)
def test_harmless_models_stay_as_they_are(tmp_path: Path, name: str) -> None:
    """A model that cannot compute such a zero from a request that is let in is not rewritten."""
    inputs, nodes = HARMLESS[name]
    weights = _RANDOM | {"shape": np.array([-1, 1, 1]), "k2": np.ones((1, 1, 2, 2), np.float32)}
    used = {each: array for each, array in weights.items() if each in nodes}
    path = written(tmp_path / "m.onnx", f"({inputs}) => (float y) {{ {nodes} }}", weights=used)
    file = read_onnx_file(path)
    assert file.guards == ()
    assert backend.runnable(file, runtime.engine().SessionOptions()) == str(path)


@pytest.mark.parametrize(
    ("nodes", "given", "y"),
    [
        (
            "a = Transpose <perm = [1, 0, 2]> (x) y = MatMul (a, w)",
            {"x": [0, 2, 3], "w": [2, 3, 4]}, (2, 0, 4),
        ),
        (
            "a = Transpose <perm = [1, 2, 0]> (x) y = MatMul (a, w)",
            {"x": [0, 2, 3], "w": [2, 0, 4]}, (2, 3, 4),
        ),
        (
            "a = Transpose <perm = [1, 0, 2]> (w) y = MatMul (x, a)",
            {"x": [2, 5, 0], "w": [0, 2, 4]}, (2, 5, 4),
        ),
        (
            """a = Transpose <perm = [2, 0, 1]> (x) b = Transpose <perm = [2, 1, 0]> (a)
            y = MatMul (b, w)""", {"x": [0, 2, 3], "w": [2, 3, 4]}, (2, 0, 4)
        ),
    ],
)  # fmt: skip
def test_batches_that_are_turned(
    elsewhere: Elsewhere, tmp_path: Path, nodes: str, given: dict[str, object], y: tuple[int, ...]
) -> None:
    """They may be empty: the engine's fused product, which would end the process, is not used."""
    graph = f"(float[a, b, c] x, float[d, e, f] w) => (float[g, h, i] y) {{ {nodes} }}"
    path = written(tmp_path / "m.onnx", graph)
    assert elsewhere.run(path, given) == str(y)
    prepared = tmp_path / "prepared"
    prepared.mkdir()
    with suppress(LoadFailed):  # its trial has no inputs that fit each other
        write_prepared(read_onnx_file(path), prepared)
    used = {node.op_type for node in onnx.load(prepared / MODEL).graph.node}
    assert used == {"Transpose", "MatMul"}


@pytest.mark.parametrize("where", ["NODE", _BRANCH.replace("a, b, c, d", "n, 8")])
def test_a_normalization_without_a_bias(elsewhere: Elsewhere, tmp_path: Path, where: str) -> None:
    """An empty name in place of the bias is left out, as the load would end the process."""
    node = "LayerNormalization (x, w,,)"
    graph = f"(float[n, 8] x, bool yes) => (float[n, 8] y) {{ y = {where.replace('NODE', node)} }}"
    path = written(tmp_path / "m.onnx", graph, weights={"w": np.ones(8, np.float32)})
    assert elsewhere.run(path, {"x": [2, 8], "yes": True}) == "(2, 8)"
    onnx.checker.check_model(onnx.load_from_string(backend.guarded(read_onnx_file(path))))


@pytest.mark.parametrize(
    ("node", "lacks"),
    [
        ("com.microsoft.Attention <num_heads = 2> (x, x)", "bias"),
        ("com.microsoft.AttnLSTM <hidden_size = 2> (x, x, x)", "QW"),
        ("com.microsoft.QMoE (x, x, x, x, x, x,,)", "fc2_scales"),
    ],
)
@pytest.mark.parametrize("where", ["NODE", _BRANCH])
def test_an_input_without_which_the_process_ends(
    tmp_path: Path, node: str, lacks: str, where: str
) -> None:
    """A file whose node lacks an input that the kernel reads all the same is not loaded."""
    nodes = where.replace("NODE", node)
    path = written(tmp_path / "m.onnx", f"(float[n, m] x, bool yes) => (float y) {{ y = {nodes} }}")
    told = rf"^m:1 has a com\.microsoft\.\w+ without {lacks}, which .* reads anyway: give it one$"
    with pytest.raises(LoadFailed, match=told):
        backend.OnnxBackend().load(source(path))


def test_empty_operands_of_einsum(elsewhere: Elsewhere, tmp_path: Path) -> None:
    """They are refused, since the engine would divide by their sizes in some equations."""
    graph = """(float[a, b] x, float[c, d] v) => (float[a, c] y) {
        y = Einsum <equation = "ab,cb->ac"> (x, v)
    }"""
    path = written(tmp_path / "m.onnx", graph)
    told = "input 'x' of m:1 is empty, shape [2, 0], which the engine cannot take in an Einsum, a "
    assert elsewhere.run(path, {"x": [2, 0], "v": [3, 0]}).startswith(told)
    assert elsewhere.run(path, {"x": [2, 4], "v": [3, 4]}) == "(2, 3)"


def test_an_empty_batch_beside_another(elsewhere: Elsewhere, tmp_path: Path) -> None:
    """Batches of one name are of one size if one is empty: the engine relies on it, and divides."""
    nodes = "a = Add (x, v) y = LayerNormalization (a, w)"
    graph = f"(float[n, s, 8] x, float[n, s, 8] v) => (float[n, s, 8] y) {{ {nodes} }}"
    path = written(tmp_path / "m.onnx", graph, weights={"w": np.ones(8, np.float32)})
    full, empty = [2, 3, 8], [0, 3, 8]
    told = "inputs 'x', 'v' of m:1 have batches of different sizes, one of them 0"
    assert elsewhere.run(path, {"x": full, "v": empty}).startswith(told)
    assert elsewhere.run(path, {"x": empty, "v": full}).startswith(told)
    assert elsewhere.run(path, {"x": empty, "v": empty}) == "(0, 3, 8)"
    assert elsewhere.run(path, {"x": full, "v": [1, 3, 8]}) == "(2, 3, 8)"


def test_a_circle_of_nodes(tmp_path: Path) -> None:
    """A file whose nodes read each other is refused at its load."""
    nodes = "f = Identity (g) g = Identity (f) y = STFT (x, step, , f)"
    path = written(tmp_path / "m.onnx", f"({_SOUND}, int64 step) => (float y) {{ {nodes} }}")
    with pytest.raises(LoadFailed):
        backend.OnnxBackend().load(source(path))


@pytest.mark.parametrize("case", RANKS)
def test_too_few_dimensions(tmp_path: Path, case: str) -> None:
    """A shape with fewer dimensions than an operator reads is refused; others are run."""
    graph, wrong, right = RANKS[case]
    session = backend.OnnxBackend().load(source(written(tmp_path / "m.onnx", graph, opset=20)))
    kinds = [spec.datatype for spec in session.signature.inputs.values()]
    for shapes in filter(None, (wrong, right)):
        arrays = [
            np.ones(shape, DATATYPES[kind].dtype) for shape, kind in zip(shapes, kinds, strict=True)
        ]
        inputs = {
            name: Tensor(kind, array)
            for name, kind, array in zip("xy", kinds, arrays, strict=False)
        }
        if shapes is right:
            assert session.run(inputs, ["z"])
            continue
        with pytest.raises(InvalidRequest, match="the engine takes no fewer dimensions than"):
            session.run(inputs, ["z"])
