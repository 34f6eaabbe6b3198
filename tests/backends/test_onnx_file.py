"""Rules of `backends.onnx.header`: exact headers, honest bounds, no surprises from junk."""

import json
import os
import sys
from dataclasses import replace
from itertools import pairwise

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from other_process import python

from workbench.backends.onnx.header import estimate
from workbench.backends.onnx.header.file import OnnxFile, OnnxFiles, read_onnx_file
from workbench.backends.onnx.header.graph import ValueInfo
from workbench.errors import LoadFailed

F32 = TensorProto.FLOAT


def info(name, dims, elem_type=F32):
    return helper.make_tensor_value_info(name, elem_type, dims)


def tensor(name, array):
    return numpy_helper.from_array(np.ascontiguousarray(array), name)


def zeros(name, *dims, dtype=np.float32):
    return tensor(name, np.zeros(dims, dtype))


def model(nodes=(), weights=(), inputs=(), outputs=(), **more):
    functions = more.pop("functions", ())
    graph = helper.make_graph(
        list(nodes),
        "g",
        list(inputs) or [info("x", ["N", 4])],
        list(outputs) or [info("y", None)],
        list(weights),
        **more,
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("d", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9, functions=list(functions))


def matmul(x="x", w="w", y="y"):
    return helper.make_node("MatMul", [x, w], [y])


def branch(name, weight):
    """A subgraph that multiplies the outer x with a weight of its own."""
    return helper.make_graph([matmul(y=name)], name, [], [info(name, None)], [weight])


def if_node(then_weight, else_weight):
    branches = {"then_branch": branch("a", then_weight), "else_branch": branch("b", else_weight)}
    return helper.make_node("If", ["c"], ["y"], **branches)


def constant(**value):
    return helper.make_node("Constant", [], ["w"], **value)


def function(nodes):
    return helper.make_function("d", "F", ["a"], ["o"], nodes, [helper.make_opsetid("", 17)])


def sparse(name, dims):
    values = helper.make_tensor(name, F32, [1], [1.0])
    return helper.make_sparse_tensor(values, helper.make_tensor("i", 7, [1], [5]), dims)


def read(tmp_path, proto) -> OnnxFile:
    path = tmp_path / "m.onnx"
    path.write_bytes(proto if isinstance(proto, bytes) else proto.SerializeToString())
    return read_onnx_file(path)


def refusal(tmp_path, proto) -> str:
    with pytest.raises(LoadFailed) as caught:
        read(tmp_path, proto)
    message = str(caught.value)
    assert message.startswith(f"'{tmp_path}/m.onnx' is not an ONNX model: ")
    assert "\n" not in message
    return message


def test_a_pointer_of_git_lfs(tmp_path):
    """A clone without Git LFS has small texts in place of the models; how to get them is said."""
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
    assert refusal(tmp_path, pointer).endswith("a pointer of Git LFS: git lfs pull gets the model")


WEIGHTS = {
    "none": (model(), 0),
    "raw floats": (model([matmul()], [zeros("w", 4, 8)]), 128),
    "typed floats": (model(weights=[helper.make_tensor("w", F32, [3], [1, 2, 3])]), 12),
    "typed int8": (model(weights=[helper.make_tensor("w", 3, [3], [-1, 2, 3])]), 3),
    "typed int64": (model(weights=[helper.make_tensor("w", 7, [2], [-1, 2**40])]), 16),
    "typed float16": (model(weights=[helper.make_tensor("w", 10, [3], [1, 2, 3])]), 6),
    "complex": (model(weights=[helper.make_tensor("w", 14, [2], [1j, 2])]), 16),
    "4 bits, odd": (model(weights=[helper.make_tensor("w", TensorProto.UINT4, [3], [1, 2, 3])]), 2),
    "strings": (model(weights=[helper.make_tensor("w", 8, [2], [b"abc", b"de"])]), 5),
    "scalar": (model(weights=[tensor("w", np.float64(1))]), 8),
    "empty": (model(weights=[zeros("w", 0, 7)]), 0),
    "constant tensor": (model([constant(value=zeros("v", 5, 5))]), 100),
    "constant floats": (model([constant(value_floats=[0.5] * 300)]), 1200),
    "constant ints": (model([constant(value_ints=[-1, 300] * 200)]), 3200),
    "constant int": (model([constant(value_int=3)]), 8),
    "constant strings": (model([constant(value_strings=["ab", "cde"])]), 5),
    "subgraphs": (model([if_node(zeros("w", 4, 2), zeros("w", 4, 3))]), 80),
    "function": (
        model(
            [helper.make_node("F", [x], [y], domain="d") for x, y in ("xh", "hy")],
            functions=[function([constant(value=zeros("v", 4, 4)), matmul("a", "w", "o")])],
        ),
        64,
    ),
    "sparse, dense size": (model(sparse_initializer=[sparse("w", [10, 10])]), 400),
    "sparse constant": (model([constant(sparse_value=sparse("w", [10]))]), 40),
}


@pytest.mark.parametrize("case", WEIGHTS)
def test_weights_are_exact(tmp_path, case):
    """Every constant of the file is counted once, to the byte, wherever it is."""
    proto, nbytes = WEIGHTS[case]
    file = read(tmp_path, proto)
    assert file.weights_nbytes == nbytes
    assert nbytes <= file.resident_nbytes <= file.load_nbytes


def test_inputs_and_outputs(tmp_path):
    """Names, types and dimensions come as declared; scalars differ from unknown ranks."""
    text = helper.make_tensor_type_proto(TensorProto.STRING, [2])
    labels = helper.make_map_type_proto(7, helper.make_tensor_type_proto(F32, []))
    sparse_type = helper.make_sparse_tensor_type_proto(F32, [3, None])
    types = {
        "seq": helper.make_sequence_type_proto(text),
        "zipmap": helper.make_sequence_type_proto(labels),
        "opt": helper.make_optional_type_proto(text),
        "map": labels,
        "sp": sparse_type,
    }
    inputs = [
        info("b", ["N", None, 3], TensorProto.INT64),
        info("a", []),
        info("r", None, TensorProto.STRING),
        info("minus", [-1, 0]),
        onnx.ValueInfoProto(name="untyped"),
    ]
    outputs = [helper.make_value_info(name, kind) for name, kind in types.items()]
    file = read(tmp_path, model(inputs=inputs, outputs=outputs))
    assert file.inputs == (
        ValueInfo("b", 7, ("N", None, 3), "tensor"),
        ValueInfo("a", 1, (), "tensor"),
        ValueInfo("r", 8, None, "tensor"),
        ValueInfo("minus", 1, (None, 0), "tensor"),
        ValueInfo("untyped", 0, None, "tensor"),
    )
    assert file.outputs == (
        ValueInfo("seq", 0, None, "sequence"),
        ValueInfo("zipmap", 0, None, "sequence"),
        ValueInfo("opt", 0, None, "optional"),
        ValueInfo("map", 0, None, "map"),
        ValueInfo("sp", 1, (3, None), "sparse"),
    )


def test_initializers_are_no_inputs(tmp_path):
    """An initializer that is listed as an input is a default value, not an input."""
    inputs = [info("w", [4, 4]), info("x", ["N", 4])]
    file = read(tmp_path, model([matmul()], [zeros("w", 4, 4)], inputs))
    assert [value.name for value in file.inputs] == ["x"]


def external(location="w.bin", dims=(10,), **entries):
    weight = TensorProto(name="w", data_type=F32, dims=dims, data_location=1)
    for key, value in {"location": location, **entries}.items():
        weight.external_data.add(key=key, value=str(value))
    return model(weights=[weight])


def test_external_data(tmp_path):
    """External weights count like inline ones, and their files are listed once."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "w.bin").write_bytes(bytes(48))
    file = read(tmp_path, external("sub/w.bin", offset=8, length=40))
    assert file.weights_nbytes == 40
    assert file.external_files == (tmp_path / "sub" / "w.bin",)
    assert read(tmp_path, external("sub/w.bin")).weights_nbytes == 40


@pytest.mark.parametrize(
    ("proto", "words"),
    [
        (external("gone.bin"), "missing"),
        (external("w.bin", offset=1), "needs 40 bytes"),
        (external("w.bin", length=39), "needs 40 bytes"),
        (external("w.bin", length=41), "needs 40 bytes"),
        (external("w.bin", offset=-1), "bad offset"),
        (external("w.bin", offset="9" * 30), "bad offset"),
        (external("/etc/passwd"), "outside"),
        (external("../w.bin"), "outside"),
        (external("sub/../../w.bin"), "outside"),
        (external("C:\\w.bin"), "outside"),
        (external("..\\w.bin"), "outside"),
        (external("link.bin"), "outside"),
        (external("loop.bin"), "missing"),
        (external("a\0b"), "outside"),
        (external(""), "outside"),
        (external("."), "missing"),
    ],
)
def test_bad_external_data(tmp_path, proto, words):
    """External data stays in the model's folder, exists, and is as long as it is said to be."""
    (tmp_path / "secret").write_bytes(bytes(40))
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "w.bin").write_bytes(bytes(40))
    (folder / "link.bin").symlink_to(tmp_path / "secret")
    (folder / "loop.bin").symlink_to(folder / "loop.bin")
    assert words in refusal(folder, proto)


def test_linked_model_finds_its_data(tmp_path):
    """A model that is a link may have its data beside its target, as in a download cache."""
    for name, data in ("m", external().SerializeToString()), ("w", bytes(40)):
        (tmp_path / "blobs").mkdir(exist_ok=True)
        (tmp_path / "snapshot").mkdir(exist_ok=True)
        (tmp_path / "blobs" / name).write_bytes(data)
    (tmp_path / "snapshot" / "m.onnx").symlink_to(tmp_path / "blobs" / "m")
    (tmp_path / "snapshot" / "w.bin").symlink_to(tmp_path / "blobs" / "w")
    assert read_onnx_file(tmp_path / "snapshot" / "m.onnx").weights_nbytes == 40


def test_headers_are_kept_while_files_stay(tmp_path):
    """A header is read once, and again when its file, or its data, is another."""
    files, path = OnnxFiles(lambda file: file), tmp_path / "model.onnx"
    (tmp_path / "w.bin").write_bytes(bytes(40))
    path.write_bytes(external().SerializeToString())
    first = files.read(path)
    assert files.read(path) is first
    os.utime(tmp_path / "w.bin", ns=(1, 1))
    second = files.read(path)
    assert second is not first
    assert replace(second, stamps=first.stamps) == first
    assert second.stamps != first.stamps
    os.utime(path, ns=(1, 1))
    assert files.read(path) is not second
    (tmp_path / "w.bin").unlink()
    with pytest.raises(LoadFailed, match="missing"):
        files.read(path)


def claimed(dims, data=b"", elem_type=F32):
    return model(weights=[TensorProto(name="w", data_type=elem_type, dims=dims, raw_data=data)])


@pytest.mark.parametrize(
    ("proto", "words"),
    [
        (b"", "empty"),
        (b"\x08\x09", "no graph"),
        (b"this is certainly not a model", ""),
        (b"PK\x03\x04" + bytes(100), ""),
        (bytes(1000), ""),
        (b"\xff" * 100, "number"),
        (b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "truncated"),
        (model([matmul()], [zeros("w", 9, 9)]).SerializeToString()[:-60], "truncated"),
        (claimed([-1]), "'w' has impossible dimensions"),
        (claimed([2**40, 2**40]), "'w' has impossible dimensions"),
        (claimed([2**62]), "'w' has impossible dimensions"),
        (claimed([2**48]), "'w' has less data"),
        (claimed([2], bytes(7)), "'w' has less data"),
        (claimed([2], bytes(8), 99), "element type 99"),
        (claimed([2]), "'w' has less data"),
        (claimed([2], b"", TensorProto.STRING), "'w' has less data"),
    ],
)
def test_what_is_no_model(tmp_path, proto, words):
    """Junk is refused in one line, and a tensor is believed as far as it has data."""
    assert words in refusal(tmp_path, proto)


def test_missing_file(tmp_path):
    """A path that is not a readable file is a load failure, not an OSError."""
    for path in (tmp_path / "gone.onnx", tmp_path):
        with pytest.raises(LoadFailed, match="cannot be read"):
            read_onnx_file(path)


def wrapped(depth):
    """A graph in an If in a graph in an If ..., deeper than protobuf's library would write."""
    data = b""
    for number in (6, 5, 1) * depth:
        data = bytes([number << 3 | 2]) + varint(len(data)) + data
    return b"\x3a" + varint(len(data)) + data


def varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def test_nesting_is_bounded(tmp_path):
    """Deep subgraphs and functions that call each other are refused, not followed."""
    assert "deep" in refusal(tmp_path, wrapped(1000))
    assert read(tmp_path, wrapped(30)).weights_nbytes == 0
    calls = [helper.make_node("F", ["a"], ["o"], domain="d")]
    looped = model([helper.make_node("F", ["x"], ["y"], domain="d")], functions=[function(calls)])
    assert "functions" in refusal(tmp_path, looped)


def test_exponential_functions_are_refused(tmp_path, monkeypatch):
    """Thirty functions that each call the one before twice would be a billion nodes."""
    assert estimate._CALLED_NODES_MAX <= 250_000  # which are counted in a second or two
    monkeypatch.setattr(estimate, "_CALLED_NODES_MAX", 10_000)
    bodies = []
    for i in range(30):
        op = {"op_type": f"F{i - 1}", "domain": "d"} if i else {"op_type": "Relu"}
        nodes = [onnx.NodeProto(input=[a], output=[b], **op) for a, b in (("a", "b"), ("b", "o"))]
        opset = [helper.make_opsetid("", 17)]
        bodies.append(helper.make_function("d", f"F{i}", ["a"], ["o"], nodes, opset))
    top = helper.make_node("F29", ["x"], ["y"], domain="d")
    assert "too many nodes" in refusal(tmp_path, model([top], functions=bodies))


def test_fields_are_bounded(tmp_path, monkeypatch):
    """A file of nothing but tiny fields is refused before it takes long."""
    monkeypatch.setattr("workbench.backends.onnx.header.fields._FIELDS_MAX", 1000)
    assert "fields" in refusal(tmp_path, b"\x08\x01" * 2000)
    assert "fields" in refusal(tmp_path, b"\x12\x00" * 2000)


def test_folding_limit(tmp_path):
    """Constants that a kilobyte could grow are limited, and the limit is in the bound."""
    fill = helper.make_node("ConstantOfShape", ["s"], ["w"])
    use = helper.make_node("Add", ["x", "w"], ["y"])
    over = read(tmp_path, model([fill, use], [tensor("s", np.array([5000, 5000]))]))
    assert over.fold_limit_nbytes == 16 << 20
    assert over.load_nbytes < (16 << 20) + (2 << 20)
    assert over.unsure_nbytes == 16 << 20
    turned = helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0])
    big = read(tmp_path, model([turned, matmul(w="t")], [zeros("w", 3000, 2000)]))
    assert big.fold_limit_nbytes == 24_000_000
    assert big.unsure_nbytes == 0


def products(size, count):
    """A kilobyte or so: a square of ones, multiplied with itself *count* times."""
    nodes = [helper.make_node("ConstantOfShape", ["s"], ["p0"])]
    nodes += [matmul(f"p{i}", "p0", f"p{i + 1}") for i in range(count)]
    nodes += [helper.make_node("Add", ["x", f"p{count}"], ["y"])]
    return model(nodes, [tensor("s", np.array([size, size]))], [info("x", None)])


def test_many_constant_products(tmp_path):
    """A small file with a thousand constant products is not taken for a huge model."""
    proto = products(550, 1153)
    assert len(proto.SerializeToString()) < 31_000
    assert read(tmp_path, proto).load_nbytes < 600 << 20


def test_results_of_unknown_size_share_a_limit(tmp_path):
    """What many nodes may fold into is limited to 512 MiB together, 16 MiB each."""

    def ranges(count):
        nodes = [helper.make_node("Range", ["s", "t", "s"], [f"r{i}"]) for i in range(count)]
        weights = [tensor("s", np.array(1.0)), tensor("t", np.array(9.0))]
        return read(tmp_path, model(nodes, weights))

    assert ranges(30).fold_limit_nbytes == 16 << 20
    assert ranges(1024).fold_limit_nbytes == 512 << 10
    assert ranges(30).load_nbytes < 31 * (16 << 20)
    assert ranges(1024).load_nbytes < 600 << 20


def column(*nodes, weights=()):
    """Multiplies x with a column of 500,000 ones, which the *nodes* make of v."""
    vector = tensor("v", np.ones(500_000, np.float32))
    return model([*nodes, matmul()], [vector, *weights], [info("x", None)])


def test_constants_of_unknown_shape_may_be_columns(tmp_path):
    """A folded constant that a kernel packs, and may be one column, counts 16 times."""
    made = helper.make_node("Reshape", ["v", "s"], ["w"])
    known = column(made, weights=[tensor("s", np.array([500, 1000]))])
    unknown = column(made, weights=[tensor("s", np.array([-1, 1]))])
    assert read(tmp_path, known).resident_nbytes < 3_000_000
    assert read(tmp_path, unknown).resident_nbytes > 16 * 2_000_000


def squeezed():
    """Multiplies x with 1,000 x 500 numbers, which the file has as 1 x 1,000 x 500."""
    node = helper.make_node("Squeeze", ["v", "a"], ["w"])
    weights = [zeros("v", 1, 1000, 500), tensor("a", np.array([0]))]
    return model([node, matmul()], weights, [info("x", None)])


def test_a_first_dimension_of_one_may_come_and_go(tmp_path):
    """A constant is no column for a first dimension of 1, as exported LSTMs add and remove it."""
    made = helper.make_node("Unsqueeze", ["v", "a"], ["w"])
    added = model([made, matmul()], [zeros("v", 1000, 500), A], [info("x", None)])
    added.graph.initializer[1].CopyFrom(tensor("a", np.array([0])))
    assert read(tmp_path, added).resident_nbytes < 3_000_000
    assert read(tmp_path, squeezed()).resident_nbytes < 3_000_000


def sums_of(*nodes, count, weights):
    """Adds what *nodes* make of the *weights*, as r, to x, *count* times and never alike."""
    factors = [tensor(f"k{i}", np.float32(i + 2)) for i in range(count)]
    sums, names = [*nodes], ["x", *(f"h{i}" for i in range(count - 1)), "y"]
    for i in range(count):
        sums.append(helper.make_node("Mul", ["r", f"k{i}"], [f"m{i}"]))
        sums.append(helper.make_node("Add", [names[i], f"m{i}"], [names[i + 1]]))
    return model(sums, [*weights, *factors], [info("x", None)])


def scattered():
    """Nothing is scattered over 8 MB, so all of them stay."""
    node = helper.make_node("ScatterND", ["w", "i", "u"], ["r"])
    nothing = [tensor("i", np.zeros((0, 1), np.int64)), zeros("u", 0, 1000)]
    return sums_of(node, count=10, weights=[zeros("w", 2000, 1000), *nothing])


def not_reduced():
    """No axis is reduced, so all elements stay."""
    node = helper.make_node("ReduceSum", ["w", "i"], ["r"], noop_with_empty_axes=1)
    none = tensor("i", np.zeros(0, np.int64))
    return sums_of(node, count=10, weights=[zeros("w", 2000, 1000), none])


def empty_products():
    """Matrices without rows or columns have a product of zeros."""
    return sums_of(
        matmul("a", "b", "r"), count=10, weights=[zeros("a", 2000, 0), zeros("b", 0, 1000)]
    )


def test_a_type_that_is_not_said(tmp_path):
    """A Cast without a type is ONNX Runtime's to refuse."""
    cast = helper.make_node("Cast", ["v"], ["w"])
    assert read(tmp_path, model([cast, matmul()], [zeros("v", 4, 4)])).weights_nbytes == 64


SEEDS = [proto.SerializeToString() for proto, _ in WEIGHTS.values()]
FUZZ = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def survive(folder, data):
    (folder / "m.onnx").write_bytes(data)
    try:
        file = read_onnx_file(folder / "m.onnx")
    except LoadFailed as error:
        assert "\n" not in str(error)  # noqa: PT017
    else:
        assert file.weights_nbytes <= file.resident_nbytes
        assert file.weights_nbytes <= file.load_nbytes


@FUZZ
@given(data=st.binary(max_size=300))
def test_random_bytes(tmp_path, data):
    """Any bytes are either a model or a LoadFailed."""
    survive(tmp_path, data)


@FUZZ
@given(data=st.data())
def test_mutated_models(tmp_path, data):
    """A model with bytes flipped, cut or put in is read or refused, nothing else."""
    content = bytearray(data.draw(st.sampled_from(SEEDS)))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, max(0, len(content) - 1)))
        cut = data.draw(st.integers(0, 3))
        content[at : at + cut] = data.draw(st.binary(max_size=3))
    survive(tmp_path, bytes(content))


# What the loader does, and what it takes: anonymous bytes held after the load, and at most.
PROBE = """
import ctypes, json, os, sys, threading, time
import onnxruntime as ort
libc = ctypes.CDLL("libc.so.6")
def field(path, name):
    with open(path) as lines:
        return next(int(l.split()[1]) * 1024 for l in lines if l.startswith(name + ":"))
def held():
    libc.malloc_trim(0)
    return field("/proc/self/smaps_rollup", "Anonymous")
def load(path, limit):
    o = ort.SessionOptions()
    o.enable_cpu_mem_arena, o.intra_op_num_threads = False, 1
    o.add_session_config_entry("optimization.constant_folding_max_output_size_in_bytes", limit)
    return ort.InferenceSession(path, o, providers=["CPUExecutionProvider"])
tiny = load(sys.argv[1], "16777216")
libc.mallopt(-3, 1 << 20)  # M_MMAP_THRESHOLD: as a loader must, see the module's docstring
sessions, peak = [], 0
base, base_rss = held(), field("/proc/self/status", "RssAnon")
loader = threading.Thread(target=lambda: sessions.append(load(*sys.argv[2:])))
loader.start()
while loader.is_alive():
    peak = max(peak, field("/proc/self/status", "RssAnon") - base_rss)
    time.sleep(0.0005)  # between two samples; nothing waits for it
assert sessions
print(json.dumps([held() - base, peak]), flush=True)
os._exit(0)
"""


def chain(n, count, dtype=np.float32):
    elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    names = ["x", *(f"h{i}" for i in range(count - 1)), "y"]
    nodes = [matmul(names[i], f"w{i}", names[i + 1]) for i in range(count)]
    weights = [tensor(f"w{i}", np.full((n, n), i + 1, dtype)) for i in range(count)]
    shapes = [info("x", ["N", n], elem_type)], [info("y", ["N", n], elem_type)]
    return model(nodes, weights, *shapes)


def conv():
    rng = np.random.default_rng(0)
    weights = [tensor(f"w{i}", rng.random((256, 256, 3, 3), np.float32)) for i in range(8)]
    names = ["x", *(f"h{i}" for i in range(7)), "y"]
    nodes = [
        helper.make_node("Conv", [names[i], f"w{i}"], [names[i + 1]], pads=[1] * 4)
        for i in range(8)
    ]
    return model(nodes, weights, [info("x", ["N", 256, 9, 9])])


def many_nodes():
    names = ["x", *(f"h{i}" for i in range(3000)), "y"]
    return model([helper.make_node("Relu", [a], [b]) for a, b in pairwise(names)])


def fold_bomb():
    nodes = [helper.make_node("ConstantOfShape", ["s"], ["w0"])]
    nodes += [helper.make_node("Neg", [f"w{i}"], [f"w{i + 1}"]) for i in range(5)]
    nodes += [helper.make_node("Add", ["x", "w5"], ["y"])]
    return model(nodes, [tensor("s", np.array([5000, 5000]))], [info("x", None)])


A = tensor("a", np.array([1]))


def nested(depth):
    """An If in an If ..., each with weights of its own."""
    inner, other = branch("a", zeros("w", 1024, 1024)), branch("b", zeros("w", 4, 4))
    for level in range(depth):
        node = helper.make_node("If", ["c"], [f"a{level}"], then_branch=inner, else_branch=other)
        weights = [zeros(f"u{level}", 512, 1024)]
        inner = helper.make_graph([node], "g", [], [info(f"a{level}", None)], weights)
    top = helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=other)
    inputs = [info("x", None), info("c", [], TensorProto.BOOL)]
    return model([top], [], inputs)


MEASURED = {
    "matmul 100 MB": lambda: chain(2048, 6),
    "one matmul": lambda: chain(2500, 1),
    "conv": conv,
    "float16": lambda: chain(1024, 10, np.float16),
    "one column": lambda: column(helper.make_node("Unsqueeze", ["v", "a"], ["w"]), weights=[A]),
    "subgraphs": lambda: nested(3),
    "many nodes": many_nodes,
    "fold bomb": fold_bomb,
    "constant products": lambda: products(700, 60),
    "squeezed": squeezed,
    "scattered nothing": scattered,
    "reduced nothing": not_reduced,
    "empty products": empty_products,
}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("case", MEASURED)
def test_estimate_bounds_the_truth(tmp_path, case):
    """A session never takes more than the bound, and what it keeps is as estimated."""
    file = read(tmp_path, MEASURED[case]())
    tiny = tmp_path / "tiny.onnx"
    tiny.write_bytes(model([matmul()], [zeros("w", 4, 4)]).SerializeToString())
    arguments = [str(tiny), str(file.path), str(file.fold_limit_nbytes)]
    settled_nbytes, peak_nbytes = json.loads(python(PROBE, *arguments).stdout)
    assert max(settled_nbytes, peak_nbytes) <= file.load_nbytes
    if file.weights_nbytes > 90_000_000:
        assert abs(settled_nbytes / file.resident_nbytes - 1) < 0.05
        assert file.load_nbytes <= 1.35 * peak_nbytes


def test_module_is_light():
    """The header is read without onnx, onnxruntime or numpy."""
    code = "import sys, workbench.backends.onnx.header; print(*sys.modules)"
    assert not {"onnx", "onnxruntime", "numpy"} & set(python(code).stdout.split())


def test_path_and_versions(tmp_path):
    """The result names the path it was asked for, and says the file's opset."""
    file = read(tmp_path, model())
    assert (file.path, file.opset, file.external_files) == (tmp_path / "m.onnx", 17, ())
