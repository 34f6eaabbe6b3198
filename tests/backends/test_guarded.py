"""Divisions of integers that end the process in the engine, found and guarded."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.defs
import pytest
from onnx import TensorProto
from onnx_models import source, written
from other_process import python

from workbench.backends.onnx import backend
from workbench.backends.onnx.header.division import _KnownValue, _result
from workbench.backends.onnx.header.file import read_onnx_file
from workbench.backends.onnx.header.graph import Node
from workbench.errors import LoadFailed, RunFailed
from workbench.tensor import DATATYPES, Tensor

INT32, INT64 = TensorProto.INT32, TensorProto.INT64


def model(path: Path, graph: str, functions: str = "", **more: Any) -> Path:
    """A model that takes ``a`` and ``b`` and gives ``y``, all INT32, unless *graph* says so."""
    if not graph.startswith("("):
        graph = f"(int32[n] a, int32[n] b) => (int32[n] y) {graph}"
    return written(path, graph, functions, **more)


LEAST = {"INT32": -(2**31), "INT64": -(2**63)}
ANSWER = [-3, LEAST["INT32"]]


def case(
    graph: str, answer: list[int] = ANSWER, **more: Any
) -> tuple[Callable[[Path], Path], list[int]]:
    """Writes that model to a path; its answer to a = 7 and the least, b = -2 and -1."""
    return lambda path: model(path, graph, **more), answer


def typed(elem_type: str, nodes: str) -> str:
    return f"({elem_type}[n] a, {elem_type}[n] b) => ({elem_type}[n] y) {{ {nodes} }}"


DIV, MOD = "{ [divide] y = Div(a, b) }", "{ y = Mod(a, b) }"
TWICE = "{ z = Div(a, b) y = Mod(z, b) }"
BRANCH = """yes = Constant <value = bool {1}> ()
    y = If (yes) <
        then_branch = divided () => (int32[n] t) { t = Div(a, b) },
        else_branch = same () => (int32[n] e) { e = Identity(a) }
    >"""
FUNCTION = '<domain: "d", opset_import: ["": 17]> F (p, q) => (r) { r = Div(p, q) }'
UNTYPED = "{ c = com.microsoft.Odd(a) [divide] z = Div(c, c) y = Cast <to = 6> (z) }"
DANGEROUS = {
    "Div INT32": case(DIV),
    "Div INT64": case(typed("int64", "y = Div(a, b)"), [-3, LEAST["INT64"]]),
    "Mod INT32": case(MOD, [-1, 0]),
    "Mod INT64": case(typed("int64", "y = Mod(a, b)"), [-1, 0]),
    "two": case(TWICE, [-1, 0]),
    "operator set 9": case(DIV, opset=9),
    "a constant -1": case(
        f"(int32[n] a) => (int32[n] y) <int32[2] b = {{3, -1}}> {DIV}", [2, LEAST["INT32"]]
    ),
    "a default -1": case(DIV, weights={"b": np.array([3], np.int32)}),
    "a constant dividend": case(
        f"(int32[n] b) => (int32[n] y) <int32[2] a = {{5, {LEAST['INT32']}}}> {DIV}",
        [-2, LEAST["INT32"]],
    ),
    "a reciprocal that the engine fuses": case(
        "<int32[1] one = {1}> { c = Div(one, b) y = Mul(a, c) }", [0, LEAST["INT32"]]
    ),
    "a reciprocal that it fuses once it is folded": case(
        "<int32[1] one = {1}> { s = Shape(one) t = Cast <to = 6> (s) c = Div(t, b) y = Mul(a, c) }",
        [0, LEAST["INT32"]],
    ),
    "computed on the way": case("{ c = Neg(b) d = Neg(c) y = Div(a, d) }"),
    "a branch": case(f"{{ {BRANCH} }}"),
    "a loop": case(
        f"""{{
            once = Constant <value = int64[1] {{1}}> ()
            s_end, all = Loop (once, , a) <
                body = turn (int64 i, bool c, int32[n] s) => (bool d, int32[n] t, int32[n] y) {{
                    {BRANCH}
                    d = Identity(c)
                    t = Identity(s)
                }}
            >
            flat = Constant <value = int64[1] {{-1}}> ()
            y = Reshape(all, flat)
        }}"""
    ),
    "a function": case("{ y = d.F(a, b) }", functions=FUNCTION),
    "a sequence, whose type is not followed": case(
        """{
            at = Constant <value = int64 {0}> ()
            s = SequenceConstruct(a)
            c = SequenceAt(s, at)
            u = SequenceConstruct(b)
            d = SequenceAt(u, at)
            z = Div(c, d)
            y = Identity(z)
        }"""
    ),
}

_CHILD = """
import json, sys
from pathlib import Path
import numpy as np
from onnx_models import source
from workbench.backends.onnx.backend import OnnxBackend
from workbench.backends.onnx.header.file import read_onnx_file
from workbench.model import TensorSpec
from workbench.tensor import DATATYPES, Tensor
for path in sorted(Path(sys.argv[1]).iterdir()):
    wanted = "ab" if read_onnx_file(path).defaults else ""
    specs = tuple(TensorSpec(name, "INT32", (-1,)) for name in wanted)
    session = OnnxBackend().load(source(path, inputs=specs))
    feed = {}
    for name, spec in session.signature.inputs.items():
        dtype = DATATYPES[spec.datatype].dtype
        least = np.iinfo(dtype).min
        numbers = {"a": [7, least], "b": [-2, -1]}[name]
        feed[name] = Tensor(spec.datatype, np.array(numbers, dtype))
    print(json.dumps(session.run(feed, ["y"])[0].array.tolist()), flush=True)
"""


def test_no_request_ends_the_process(tmp_path: Path) -> None:
    """The least integer by -1 is the least, with the remainder 0, wherever the division is."""
    for index, (write, _) in enumerate(DANGEROUS.values()):
        write(tmp_path / f"{index:02}.onnx")
    lines = map(json.loads, python(_CHILD, tmp_path).stdout.splitlines())
    got = dict(zip(DANGEROUS, lines, strict=True))
    assert got == {name: answer for name, (_, answer) in DANGEROUS.items()}


@pytest.mark.parametrize("datatype", LEAST)
@pytest.mark.parametrize("op", ["Div", "Mod"])
def test_guarded_divisions_are_exact(tmp_path: Path, datatype: str, op: str) -> None:
    """What has a quotient has the same as ever, and the same remainder."""
    path = model(tmp_path / "m.onnx", typed(datatype.lower(), f"y = {op}(a, b)"))
    session = backend.OnnxBackend().load(source(path))
    least, dtype = LEAST[datatype], datatype.lower()
    numbers = [-128, -127, -3, -2, -1, 0, 1, 2, 3, 127, least, least + 1, -least - 1]
    pairs = [(a, b) for a in numbers for b in numbers if b and (a, b) != (least, -1)]
    a, b = (np.array(column, dtype) for column in zip(*pairs, strict=True))
    (answer,) = session.run({"a": Tensor(datatype, a), "b": Tensor(datatype, b)}, ["y"])
    if op == "Div":
        exact = [abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1) for x, y in pairs]
    else:
        exact = [x % y for x, y in pairs]
    assert answer.array.tolist() == exact


def test_zero_is_an_error(tmp_path: Path) -> None:
    """A divisor of zero is the engine's error, which names the node, guarded or not."""
    session = backend.OnnxBackend().load(source(model(tmp_path / "m.onnx", DIV)))
    one, zero = (Tensor("INT32", np.array([n], np.int32)) for n in (1, 0))
    with pytest.raises(RunFailed, match=r"Name:'divide'.*division by zero"):
        session.run({"a": one, "b": zero}, ["y"])


HARMLESS = {
    "floats": case(typed("float", "y = Div(a, b)")),
    "INT16": case(typed("int16", "y = Div(a, b)")),
    "UINT32": case(typed("uint32", "y = Mod(a, b)")),
    "the C remainder": case("{ y = Mod <fmod = 1> (a, b) }"),
    "a constant divisor": case(f"(int32[n] a) => (int32[n] y) <int32[3] b = {{2, 0, -7}}> {DIV}"),
    "a constant dividend": case(f"(int32[n] b) => (int32[n] y) <int32[2] a = {{1000, -1}}> {DIV}"),
    "a constant node": case(
        "(int64[n] a) => (int64[n] y) { b = Constant <value_int = 8> () y = Div(a, b) }"
    ),
    "a default of old, which is none": case(
        DIV, weights={"b": np.array([3], np.int32)}, ir_version=3
    ),
    "shapes": case(
        """(int32[n] a, int32[n] b) => (int64[n] y) <int64[1] at = {1}> {
            a_shape = Shape(a)
            b_shape = Shape(b)
            c = Concat <axis = 0> (a_shape, b_shape)
            d = Gather <axis = 0> (c, at)
            e = Cast <to = 7> (d)
            y = Div(a_shape, e)
        }"""
    ),
    "floats on the way": case(
        "{ c = Cast <to = 1> (a) d = Sqrt(c) z = Div(d, c) y = Cast <to = 6> (z) }"
    ),
    "an operator of another domain, of floats": case(
        "(float[n] a) => (float[n] y) { c = com.microsoft.Gelu(a) z = Div(c, c) y = Neg(z) }"
    ),
    "a type that the file tells": case(f"<float[n] c> {UNTYPED}"),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_harmless_models_stay_as_they_are(tmp_path: Path, name: str) -> None:
    """A model whose divisions cannot end the process is loaded as it is, by its path."""
    file = read_onnx_file(HARMLESS[name][0](tmp_path / "m.onnx"))
    assert file.guards == ()
    assert backend.runnable(file, None) == str(file.path)


@pytest.mark.parametrize("name", DANGEROUS)
def test_dangerous_models_are_rewritten(tmp_path: Path, name: str) -> None:
    """Others are rewritten, into models that are valid, and their memory is counted."""
    path = DANGEROUS[name][0](tmp_path / "m.onnx")
    file = read_onnx_file(path)
    assert len(file.guards) == (2 if name == "two" else 1)
    content = backend.guarded(file)
    onnx.checker.check_model(onnx.load_from_string(content))
    assert file.load_nbytes >= 3 * path.stat().st_size + (32 << 10)


@pytest.mark.parametrize(
    ("other", "quotient"), [("INT64", [-(2**61), 1]), ("FP32", [-(2.0**61), -1.5])]
)
def test_the_types_of_two_calls(tmp_path: Path, other: str, quotient: list[float]) -> None:
    """A function that is called with two types is guarded for both, and exact."""
    kind = {"INT64": "int64", "FP32": "float"}[other]
    path = model(
        tmp_path / "m.onnx",
        f"(int32[n] a, int32[n] b, {kind}[n] c, {kind}[n] d) => (int32[n] y, {kind}[n] z)"
        "{ y = d.F(a, b) z = d.F(c, d) }",
        FUNCTION,
    )
    assert [division.elem_type for division in read_onnx_file(path).guards] == [0]
    session = backend.OnnxBackend().load(source(path))
    dtype = DATATYPES[other].dtype
    feed = {
        "a": Tensor("INT32", np.array([8, 9], np.int32)),
        "b": Tensor("INT32", np.array([-1, 2], np.int32)),
        "c": Tensor(other, np.array([2**62, 3], dtype)),
        "d": Tensor(other, np.array([-2, 2 if other == "INT64" else -2], dtype)),
    }
    small, large = session.run(feed, ["y", "z"])
    assert (small.array.tolist(), large.array.tolist()) == ([-8, 4], quotient)


@pytest.mark.parametrize(
    ("opset", "graph", "cure"),
    [
        (8, DIV, "operator set 9 or later$"),
        (13, UNTYPED, "operator set 15 or later, or save it with the types of its values$"),
    ],
)
def test_what_cannot_be_guarded(tmp_path: Path, opset: int, graph: str, cure: str) -> None:
    """A model whose operator set has no guard is refused, with the node's name and the cure."""
    path = model(tmp_path / "m.onnx", graph, opset=opset)
    with pytest.raises(LoadFailed, match=f"Div node 'divide' may divide.*{cure}"):
        backend.OnnxBackend().load(source(path))


def test_weights_beside_a_guarded_model(tmp_path: Path) -> None:
    """A guarded model finds its files of weights."""
    weights = {"w": np.arange(100, dtype=np.int32)}
    path = model(tmp_path / "m.onnx", "{ c = Add(b, w) y = Div(a, c) }", weights=weights)
    made = onnx.load(path)
    onnx.save_model(made, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    session = backend.OnnxBackend().load(source(path))
    feed = {name: Tensor("INT32", np.full(100, 8, np.int32)) for name in "ab"}
    (answer,) = session.run(feed, ["y"])
    assert answer.array.tolist() == [8 // (8 + n) for n in range(100)]


def test_a_file_that_changes_meanwhile(tmp_path: Path) -> None:
    """A file that is another one when it is guarded is not loaded."""
    path = model(tmp_path / "m.onnx", TWICE)
    file = read_onnx_file(path)
    for graph in (DIV, "{ z = Div(a, b) y = Add(z, z) }"):
        model(path, graph)
        with pytest.raises(LoadFailed, match="changed"):
            backend.guarded(file)


TYPES = {"tensor(float)": TensorProto.FLOAT, "tensor(int32)": INT32, "tensor(int64)": INT64}
SCHEMAS = [
    schema
    for schema in onnx.defs.get_all_schemas_with_history()
    if schema.domain in {"", "ai.onnx.ml"} and schema.name not in {"If", "Loop", "Scan"}
]


@pytest.mark.parametrize(("number", "elem_type"), TYPES.items())
def test_types_are_those_of_the_operators(number: str, elem_type: int) -> None:
    """No operator of ONNX gives an integer that is taken for something else, nor the reverse."""
    for schema in SCHEMAS:
        allowed = {each.type_param_str: each.allowed_type_strs for each in schema.type_constraints}
        made = Node(op=schema.name.encode(), domain=schema.domain.encode())
        for letter in {given.type_str for given in schema.inputs}:
            if number not in allowed.get(letter, [letter]):
                continue
            inputs = [
                _KnownValue(elem_type if given.type_str == letter else 0) for given in schema.inputs
            ]
            for index, output in enumerate(schema.outputs):
                found = _result(made, index, inputs).elem_type
                possible = allowed.get(output.type_str, [output.type_str])
                if output.type_str == letter:
                    possible = [number]
                where = (schema.name, schema.since_version, index, letter)
                if found in {INT32, INT64}:
                    assert [TYPES.get(name) for name in possible] == [found], where
                elif found:
                    assert not {"tensor(int32)", "tensor(int64)"} & set(possible), where
