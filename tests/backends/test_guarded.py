"""Divisions of integers that end the process in the engine, found and guarded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.defs
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import ONNX_TYPES, source

from workbench.backends.onnx import backend
from workbench.backends.onnx.header import read_onnx_file
from workbench.backends.onnx.header.division import _KnownValue, _result
from workbench.backends.onnx.header.graph import Node
from workbench.errors import LoadFailed, RunFailed
from workbench.tensor import DATATYPES, Tensor

INT32, INT64, FLOAT, BOOL = (
    TensorProto.INT32,
    TensorProto.INT64,
    TensorProto.FLOAT,
    TensorProto.BOOL,
)
LEAST = {"INT32": -(2**31), "INT64": -(2**63)}
node = helper.make_node


def value(name: str, elem_type: int = INT32, dims: Any = ("n",)) -> Any:
    return helper.make_tensor_value_info(name, elem_type, dims)


def weight(name: str, *numbers: int, dtype: Any = np.int32) -> Any:
    return numpy_helper.from_array(np.array(numbers, dtype), name)


def model(
    path: Path,
    nodes: Any,
    inputs: Any = None,
    outputs: Any = None,
    weights: Any = (),
    *,
    opset: int = 17,
    functions: Any = (),
    inner: Any = (),
    ir_version: int = 9,
) -> Path:
    """A model of *nodes* that takes ``a`` and ``b`` and gives ``y``, all INT32."""
    inputs = inputs or [value("a"), value("b")]
    graph = helper.make_graph(nodes, "test", inputs, outputs or [value("y")], list(weights))
    graph.value_info.extend(inner)
    domains = {"": opset, "d": 1, "com.microsoft": 1}
    opsets = [helper.make_opsetid(name, version) for name, version in domains.items()]
    made = helper.make_model(
        graph, opset_imports=opsets, ir_version=ir_version, functions=list(functions)
    )
    onnx.save(made, path)
    return path


def divide(op: str = "Div", a: str = "a", b: str = "b", y: str = "y", **attributes: Any) -> Any:
    return node(op, [a, b], [y], name=f"{op}/{y}", **attributes)


def typed(datatype: str) -> dict[str, Any]:
    elem_type = ONNX_TYPES[datatype]
    return {
        "inputs": [value("a", elem_type), value("b", elem_type)],
        "outputs": [value("y", elem_type)],
    }


def in_a_branch() -> Any:
    """An If, always true, that divides what is outside of it."""
    branches = [
        helper.make_graph([made], "branch", [], [value(made.output[0])])
        for made in (divide(y="t"), node("Identity", ["a"], ["e"]))
    ]
    yes = node("Constant", [], ["yes"], value=numpy_helper.from_array(np.array(1, bool)))
    return [yes, node("If", ["yes"], ["y"], then_branch=branches[0], else_branch=branches[1])]


def in_a_loop() -> Any:
    """A Loop of one turn, with a branch in it."""
    inner = in_a_branch()
    body = helper.make_graph(
        [*inner, node("Identity", ["c"], ["d"]), node("Identity", ["s"], ["t"])],
        "body",
        [value("i", INT64, []), value("c", BOOL, []), value("s")],
        [value("d", BOOL, []), value("t"), value("y")],
    )
    once = node("Constant", [], ["once"], value=weight("", 1, dtype=np.int64))
    first = node("Constant", [], ["first"], value=weight("", 0, dtype=np.int64))
    flat = node("Reshape", ["all", "flat"], ["y"])
    minus = node("Constant", [], ["flat"], value=weight("", -1, dtype=np.int64))
    return [once, first, minus, node("Loop", ["once", "", "a"], ["s_end", "all"], body=body), flat]


def function(nodes: Any) -> Any:
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("d", 1)]
    return helper.make_function("d", "F", ["p", "q"], ["r"], nodes, opsets)


CALL = node("F", ["a", "b"], ["y"], domain="d")
# by name: what is written, and the arguments of ``model``
DANGEROUS: dict[str, tuple[Any, dict[str, Any]]] = {
    "Div INT32": ([divide()], {}),
    "Div INT64": ([divide()], typed("INT64")),
    "Mod INT32": ([divide("Mod")], {}),
    "Mod INT64": ([divide("Mod")], typed("INT64")),
    "two": ([divide(y="z"), divide("Mod", a="z")], {}),
    "operator set 9": ([divide()], {"opset": 9}),
    "a constant -1": ([divide()], {"inputs": [value("a")], "weights": [weight("b", 3, -1)]}),
    "a default -1": ([divide()], {"weights": [weight("b", 3)]}),
    "a constant dividend": (
        [divide()],
        {"inputs": [value("b")], "weights": [weight("a", 5, LEAST["INT32"])]},
    ),
    "a reciprocal that the engine fuses": (
        [divide(a="one", y="c"), node("Mul", ["a", "c"], ["y"])],
        {"weights": [weight("one", 1)]},
    ),
    "a reciprocal that it fuses once it is folded": (
        [
            node("Shape", ["one"], ["s"]),
            node("Cast", ["s"], ["t"], to=INT32),
            divide(a="t", y="c"),
            node("Mul", ["a", "c"], ["y"]),
        ],
        {"weights": [weight("one", 1)]},
    ),
    "computed on the way": (
        [node("Neg", ["b"], ["c"]), node("Neg", ["c"], ["d"]), divide(b="d")],
        {},
    ),
    "a branch": (in_a_branch(), {}),
    "a loop": (in_a_loop(), {}),
    "a function": ([CALL], {"functions": [function([divide(a="p", b="q", y="r")])]}),
    "a sequence, whose type is not followed": (
        [
            node("SequenceConstruct", ["a"], ["s"]),
            node("Constant", [], ["zero"], value=weight("", 0, dtype=np.int64)),
            node("Squeeze", ["zero"], ["at"]),
            node("SequenceAt", ["s", "at"], ["c"]),
            node("SequenceConstruct", ["b"], ["u"]),
            node("SequenceAt", ["u", "at"], ["d"]),
            divide(a="c", b="d", y="z"),
            node("Identity", ["z"], ["y"]),
        ],
        {},
    ),
}

_CHILD = """
import json, sys
from pathlib import Path
import numpy as np
from onnx_models import source
from workbench.backends.onnx.backend import OnnxBackend
from workbench.backends.onnx.header import read_onnx_file
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
    print(json.dumps([path.stem, session.run(feed, ["y"])[0].array.tolist()]), flush=True)
"""


def test_no_request_ends_the_process(tmp_path: Path) -> None:
    """The least integer by -1 is the least, with the remainder 0, wherever the division is."""
    names = {f"{index:02}": name for index, name in enumerate(DANGEROUS)}
    for stem, name in names.items():
        nodes, arguments = DANGEROUS[name]
        model(tmp_path / f"{stem}.onnx", nodes, **arguments)
    run = subprocess.run(
        [sys.executable, "-c", _CHILD, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    lines = [eval(line) for line in run.stdout.splitlines()]
    assert run.returncode == 0, (lines, run.stderr[-1000:])
    got = {names[stem]: answer for stem, answer in lines}
    expected = {name: [-3, LEAST["INT32"]] for name in DANGEROUS} | {
        "Div INT64": [-3, LEAST["INT64"]],
        "Mod INT32": [-1, 0],
        "Mod INT64": [-1, 0],
        "two": [-1, 0],
        "a constant -1": [2, LEAST["INT32"]],
        "a reciprocal that the engine fuses": [0, LEAST["INT32"]],
        "a reciprocal that it fuses once it is folded": [0, LEAST["INT32"]],
        "a constant dividend": [-2, LEAST["INT32"]],
    }
    assert got == expected


SMALL = np.array([-128, -127, -3, -2, -1, 0, 1, 2, 3, 127])


@pytest.mark.parametrize("datatype", LEAST)
@pytest.mark.parametrize(("op", "wanted"), [("Div", np.trunc), ("Mod", None)])
def test_guarded_divisions_are_exact(tmp_path: Path, datatype: str, op: str, wanted: Any) -> None:
    """What has a quotient has the same as ever, and the same remainder."""
    session = backend.OnnxBackend().load(
        source(model(tmp_path / "m.onnx", [divide(op)], **typed(datatype)))
    )
    least, dtype = LEAST[datatype], datatype.lower()
    numbers = [*SMALL.tolist(), least, least + 1, -least - 1]
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
    session = backend.OnnxBackend().load(source(model(tmp_path / "m.onnx", [divide()])))
    one, zero = (Tensor("INT32", np.array([n], np.int32)) for n in (1, 0))
    with pytest.raises(RunFailed, match=r"Name:'Div/y'.*division by zero"):
        session.run({"a": one, "b": zero}, ["y"])


SHAPES = [node("Shape", [name], [f"{name}_shape"]) for name in "ab"]
HARMLESS: dict[str, tuple[Any, dict[str, Any]]] = {
    "floats": ([divide()], typed("FP32")),
    "INT16": ([divide()], typed("INT16")),
    "UINT32": ([divide("Mod")], typed("UINT32")),
    "the C remainder": ([divide("Mod", fmod=1)], {}),
    "a constant divisor": (
        [divide()],
        {"inputs": [value("a")], "weights": [weight("b", 2, 0, -7)]},
    ),
    "a constant dividend": (
        [divide()],
        {"inputs": [value("b")], "weights": [weight("a", 1000, -1)]},
    ),
    "a constant node": (
        [node("Constant", [], ["b"], value_int=8), divide()],
        {"inputs": [value("a", INT64)], "outputs": [value("y", INT64)]},
    ),
    "a default of old, which is none": (
        [divide()],
        {"weights": [weight("b", 3)], "ir_version": 3},
    ),
    "shapes": (
        [
            *SHAPES,
            node("Concat", ["a_shape", "b_shape"], ["c"], axis=0),
            node("Gather", ["c", "at"], ["d"], axis=0),
            node("Cast", ["d"], ["e"], to=INT64),
            divide(a="a_shape", b="e"),
        ],
        {
            "outputs": [value("y", INT64)],
            "weights": [weight("at", 1, dtype=np.int64)],
        },
    ),
    "floats on the way": (
        [
            node("Cast", ["a"], ["c"], to=FLOAT),
            node("Sqrt", ["c"], ["d"]),
            divide(a="d", b="c", y="z"),
            node("Cast", ["z"], ["y"], to=INT32),
        ],
        {},
    ),
    "an operator of another domain, of floats": (
        [
            node("Gelu", ["a"], ["c"], domain="com.microsoft"),
            divide(a="c", b="c", y="z"),
            node("Neg", ["z"], ["y"]),
        ],
        {"inputs": [value("a", FLOAT)], "outputs": [value("y", FLOAT)]},
    ),
    "a type that the file tells": (
        [
            node("Odd", ["a"], ["c"], domain="com.microsoft"),
            divide(a="c", b="c", y="z"),
            node("Cast", ["z"], ["y"], to=INT32),
        ],
        {"inner": [value("c", FLOAT)]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HARMLESS)
def test_harmless_models_stay_as_they_are(tmp_path: Path, name: str) -> None:
    """A model whose divisions cannot end the process is loaded as it is, by its path."""
    nodes, arguments = HARMLESS[name]
    file = read_onnx_file(model(tmp_path / "m.onnx", nodes, **arguments))
    assert file.divisions == ()
    assert backend.runnable(file, None) == str(file.path)


@pytest.mark.parametrize("name", DANGEROUS)
def test_dangerous_models_are_rewritten(tmp_path: Path, name: str) -> None:
    """Others are rewritten, into models that are valid, and their memory is counted."""
    nodes, arguments = DANGEROUS[name]
    path = model(tmp_path / "m.onnx", nodes, **arguments)
    file = read_onnx_file(path)
    assert len(file.divisions) == (2 if name == "two" else 1)
    content = backend.guarded(file)
    onnx.checker.check_model(onnx.load_from_string(content))
    assert file.load_nbytes >= 3 * path.stat().st_size + (32 << 10)


@pytest.mark.parametrize(
    ("other", "quotient"), [("INT64", [-(2**61), 1]), ("FP32", [-(2.0**61), -1.5])]
)
def test_the_types_of_two_calls(tmp_path: Path, other: str, quotient: list[float]) -> None:
    """A function that is called with two types is guarded for both, and exact."""
    calls = [
        node("F", ["a", "b"], ["y"], domain="d"),
        node("F", ["c", "d"], ["z"], domain="d"),
    ]
    elem_type = ONNX_TYPES[other]
    inputs = [value("a"), value("b"), value("c", elem_type), value("d", elem_type)]
    body = function([divide(a="p", b="q", y="r")])
    outputs = [value("y"), value("z", elem_type)]
    path = model(tmp_path / "m.onnx", calls, inputs, outputs, functions=[body])
    assert [division.elem_type for division in read_onnx_file(path).divisions] == [0]
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
    ("opset", "nodes", "cure"),
    [
        (8, [divide()], "operator set 9 or later$"),
        (
            13,
            [node("Odd", ["a"], ["c"], domain="com.microsoft"), divide(a="c", b="c", y="z"),
             node("Cast", ["z"], ["y"], to=INT32)],
            "operator set 15 or later, or save it with the types of its values$",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_guarded(tmp_path: Path, opset: int, nodes: Any, cure: str) -> None:
    """A model whose operator set has no guard is refused, with the node's name and the cure."""
    path = model(tmp_path / "m.onnx", nodes, opset=opset)
    with pytest.raises(LoadFailed, match=f"Div node 'Div/.' may divide.*{cure}"):
        backend.OnnxBackend().load(source(path))


def test_weights_beside_a_guarded_model(tmp_path: Path) -> None:
    """A guarded model finds its files of weights."""
    path = model(tmp_path / "m.onnx", [node("Add", ["b", "w"], ["c"]), divide(b="c")],
                 weights=[weight("w", *range(100))])  # fmt: skip
    made = onnx.load(path)
    onnx.save_model(made, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    session = backend.OnnxBackend().load(source(path))
    feed = {name: Tensor("INT32", np.full(100, 8, np.int32)) for name in "ab"}
    (answer,) = session.run(feed, ["y"])
    assert answer.array.tolist() == [8 // (8 + n) for n in range(100)]


def test_a_file_that_changes_meanwhile(tmp_path: Path) -> None:
    """A file that is another one when it is guarded is not loaded."""
    path = model(tmp_path / "m.onnx", [divide(y="z"), divide("Mod", a="z")])
    file = read_onnx_file(path)
    for nodes in ([divide()], [divide(y="z"), node("Add", ["z", "z"], ["y"])]):
        model(path, nodes)
        with pytest.raises(LoadFailed, match="changed"):
            backend.guarded(file)


TYPES = {"tensor(float)": FLOAT, "tensor(int32)": INT32, "tensor(int64)": INT64}
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
