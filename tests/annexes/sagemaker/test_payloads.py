"""What SageMaker's clients send and accept, by media type."""

import io
import json
import pickle
import zipfile
from typing import Any

import memory_taken
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.annexes.sagemaker.payloads import tables
from workbench.annexes.sagemaker.payloads.formats import PayloadForm, PayloadRequest, encode
from workbench.annexes.sagemaker.payloads.libsvm import read_libsvm
from workbench.annexes.sagemaker.payloads.media import choose, preferred
from workbench.errors import (
    InvalidRequest,
    NotAcceptable,
    RequestTooLarge,
    UnknownMediaType,
    WorkbenchError,
)
from workbench.http.reply import Reply
from workbench.inference import InferRequest, InferResponse
from workbench.model import ModelId, Signature, TensorSpec
from workbench.tensor import Tensor

EACH_PARSER = pytest.mark.usefixtures("parser")
"""On a test that reads JSON."""

MAX_NBYTES = 2**20
TRITON = "application/vnd.sagemaker-triton.binary+json"


def signature(*inputs: tuple[str, str, tuple[int, ...]], outputs: int = 1) -> Signature:
    """A model of these inputs, two FP32 columns of "x" unless told otherwise."""
    given = inputs or (("x", "FP32", (-1, 2)),)
    specs = {name: TensorSpec(name, datatype, shape) for name, datatype, shape in given}
    results = {f"y{n}": TensorSpec(f"y{n}", "FP32", (-1, 2)) for n in range(outputs)}
    return Signature("fake", specs, results)


ONE = signature()


def read(
    body: bytes | str, content_type: str = "", accept: str = "", of: Signature = ONE
) -> tuple[InferRequest, PayloadForm]:
    data = body.encode() if isinstance(body, str) else body
    return PayloadRequest("m", content_type, accept, MAX_NBYTES).read(data, of)


def array_in(body: bytes | str, content_type: str = "", of: Signature = ONE) -> Any:
    """The only input's values."""
    (tensor,) = read(body, content_type, of=of)[0].inputs.values()
    return tensor.array.tolist()


def npy(value: Any, **more: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, value, **more)
    return file.getvalue()


def npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


@EACH_PARSER
@pytest.mark.parametrize(
    ("content_type", "body", "told"),
    [
        ("", "1,2", "; without a Content-Type a body is read as JSON"),
        (
            "text/csv",
            "a,b\n1,2",
            "column 1; if the first row has names, send text/csv;header=present",
        ),
        ("text/csv", "1,2\n3,x", "at row 1, column 2"),
        ("text/csv;header=present", "a,b\nc,d", "at row 0, column 1"),
        ("application/json", "1,2", "(char 1)"),
    ],
)
def test_frequent_mistakes(content_type: str, body: str, told: str) -> None:
    """A missing Content-Type and a row of names are told with what to send."""
    with pytest.raises(InvalidRequest) as caught:
        read(body, content_type)
    assert str(caught.value).endswith(told)


@EACH_PARSER
@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("", "[[1, 2], [3, 4]]"),
        ("application/json", "[[1, 2], [3, 4]]"),
        ("Application/JSON; charset=utf-8", "[[1, 2], [3, 4]]"),
        ("application/json", '{"x": [[1, 2], [3, 4]]}'),
        ("application/json", '{"features": [[1, 2], [3, 4]]}'),
        ("application/json", '{"inputs": [[1, 2], [3, 4]]}'),
        ("application/json", '{"inputs": {"x": [[1, 2], [3, 4]]}}'),
        ("application/json", '{"signature_name": "s", "instances": [[1, 2], [3, 4]]}'),
        ("application/json", '{"instances": [{"x": [1, 2]}, {"x": [3, 4]}]}'),
        ("application/jsonlines", "[1, 2]\n\n[3, 4]\n"),
        ("application/x-jsonlines", '{"features": [1, 2]}\n{"features": [3, 4]}'),
        ("text/csv", "1,2\r\n3, 4.0"),
        ("text/csv; header=absent", '"1","2"\n\n3,4\n'),
        ("text/csv; header=present", '"a\nb",c\n1,2\n3,4'),
        ("text/csv; header=present", "a,b\r1,2\r3,4\r"),
        ("text/csv;header=present; charset=UTF-8", "a,b\n1,2\n3,4"),
        ("text/libsvm", "1 1:1 2:2\n0 1:3 2:4"),
        ("text/x-libsvm", "\ufeff0:1 1:2\n\n0:3 1:4\n"),
        ("application/x-npy", npy([[1.0, 2.0], [3.0, 4.0]])),
        ("application/x-npy", npy(np.array([[1, 2], [3, 4]], ">i2", order="F"))),
        ("application/x-npz", npz(x=np.array([[1, 2], [3, 4]]))),
    ],
)
def test_arrays(content_type: str, body: Any) -> None:
    """An array is the input of a model of one input, in that input's datatype."""
    request, form = read(body, content_type)
    assert request.inputs["x"].datatype == "FP32"
    assert request.inputs["x"].array.tolist() == [[1, 2], [3, 4]]
    assert form.v2 is None


@pytest.mark.parametrize(
    ("spec", "body", "expected"),
    [
        ((-1, 2), "[1, 2]", [[1, 2]]),
        ((-1,), "[1, 2]", [1, 2]),
        ((-1, 1), "[1, 2]", [[1], [2]]),
        ((-1, 1), "7", [[7]]),
        ((), "7", 7),
        ((-1, 2, 2), "[[1, 2, 3, 4]]", [[[1, 2], [3, 4]]]),
        ((-1, 2, 2), "[1, 2, 3, 4]", [[[1, 2], [3, 4]]]),
        ((-1, -1), "[]", [[]]),
        ((-1, 2), "[]", []),
    ],
)
def test_shapes(spec: tuple[int, ...], body: str, expected: Any) -> None:
    """A batch of one may be left out, and a row may be flat."""
    assert array_in(body, of=signature(("x", "FP64", spec))) == expected


@EACH_PARSER
def test_several_inputs() -> None:
    """Arrays by name are inputs, as JSON columns, as rows and lines, and as npz."""
    two = signature(("a", "INT64", (-1,)), ("b", "BYTES", (-1,)))
    for body, content_type in (
        (b'{"a": [1, 2], "b": ["x", "y"]}', ""),
        (b'{"instances": [{"a": 1, "b": "x"}, {"b": "y", "a": 2}]}', ""),
        (b'{"a": 1, "b": "x"}\n{"a": 2, "b": "y"}', "application/jsonlines"),
        (npz(a=[1, 2], b=["x", "y"]), "application/x-npz"),
    ):
        inputs = read(body, content_type, of=two)[0].inputs
        assert inputs["a"].array.tolist() == [1, 2]
        assert inputs["b"].array.tolist() == [b"x", b"y"]


@EACH_PARSER
@pytest.mark.parametrize(
    ("content_type", "body"),
    [("text/csv", "1,2"), ("application/json", "[[1, 2]]")],
)
def test_rows_without_names(content_type: str, body: str) -> None:
    """Rows for a model of several inputs are told how to name their values."""
    with pytest.raises(InvalidRequest) as caught:
        read(body, content_type, of=signature(("a", "FP32", (-1,)), ("b", "FP32", (-1,))))
    assert "this one has 'a', 'b': send rows by these names" in str(caught.value)
    assert '{"instances": [{NAME: VALUE, ...}, ...]}' in str(caught.value)


def test_a_byte_order_mark() -> None:
    """What Excel writes before the first cell is no part of it."""
    mark = b"\xef\xbb\xbf"
    assert array_in(mark + b"1,2", "text/csv") == [[1, 2]]
    texts = signature(("x", "BYTES", (-1, 2)))
    assert array_in(mark + b"a,b", "text/csv; charset=utf-8", of=texts) == [[b"a", b"b"]]


@EACH_PARSER
def test_an_input_that_may_be_left_out() -> None:
    """A plain array is for the only input that is needed."""
    needed, other = TensorSpec("x", "FP32", (-1, 2)), TensorSpec("by", "FP32", (1,), optional=True)
    two = Signature("fake", {"by": other, "x": needed}, ONE.outputs)
    for body, content_type in ((b"[[1, 2]]", ""), (b"1,2", "text/csv")):
        inputs = read(body, content_type, of=two)[0].inputs
        assert [(name, each.array.tolist()) for name, each in inputs.items()] == [("x", [[1, 2]])]


@pytest.mark.parametrize(
    ("datatype", "body", "expected"),
    [
        ("INT8", "1.0,-2", [[1, -2]]),
        ("UINT64", "18446744073709551615,0", [[2**64 - 1, 0]]),
        ("BOOL", "1,0", [[True, False]]),
        ("INT64", "9007199254740993,1.0", [[2**53 + 1, 1]]),
        ("BF16", "1,2", [[0x3F80, 0x4000]]),
        ("BYTES", 'a,"b, c"', [[b"a", b"b, c"]]),
        ("FP32", "nan,inf", None),
    ],
)
def test_csv_cells(datatype: str, body: str, expected: Any) -> None:
    """Cells are read as the input's datatype."""
    got = array_in(body, "text/csv", of=signature(("x", datatype, (-1, 2))))
    assert got == expected or (np.isnan(got[0][0]) and np.isinf(got[0][1]))


@pytest.mark.parametrize(
    ("datatype", "body"),
    [
        ("INT8", "300,2"),
        ("INT8", "1.5,2"),
        ("BOOL", "2,0"),
        ("BYTES", "a,b\nc"),
        ("INT64", "1_0,2"),
    ],
)
def test_cells_that_are_no_values(datatype: str, body: str) -> None:
    """A value that the datatype does not have is refused, not bent."""
    with pytest.raises(InvalidRequest):
        array_in(body, "text/csv", of=signature(("x", datatype, (-1, 2))))


@EACH_PARSER
@pytest.mark.parametrize(
    ("content_type", "body", "told"),
    [
        ("text/csv", "", "has no row"),
        ("text/csv", "1,2\n3", "columns changed from 2 to 1"),
        ("text/csv", "1,cow", "cow"),
        ("text/csv", b"\xff\xfe", "is not utf-8 text"),
        ("text/csv", "1;2", "not CSV of FP32"),
        ("application/json", "", "is not JSON"),
        ("application/json", '{"a": ', "is not JSON"),
        ("application/json", "{}", "no input"),
        ("application/json", '"text"', "is not a number"),
        ("application/json", '{"instances": []}', "no list of rows"),
        ("application/json", '{"instances": 7}', "no list of rows"),
        ("application/json", '{"instances": [[1, 2]], "more": 1}', "no member 'more' beside"),
        ("application/json", '{"inputs": [[1, 2]], "more": 1}', "no member 'more' beside"),
        (
            "application/json",
            '{"dataframe_split": {"data": [[1, 2]]}, "params": {}}',
            "no member 'params' beside 'dataframe_split'",
        ),
        (
            "application/json",
            '{"dataframe_records": [{"x": [1, 2]}], "params": {}}',
            "no member 'params' beside",
        ),
        ("application/json", '{"instances": [{"x": [1, 2]}, 3]}', "not all objects"),
        ("application/json", "[[1, 2], [3]]", "different lengths"),
        ("application/json", "[[1, 2], [3], [4, 5, 6]]", "different lengths"),
        ("application/json", "[[1, 2], 3]", "numbers beside arrays"),
        ("application/json", '{"a": 1, "b": 2}', "no input 'a'"),
        ("application/json", '{"dataframe_split": {"columns": ["x"]}}', "no list of rows"),
        (
            "application/json",
            '{"dataframe_split": {"columns": ["x"], "data": [[1, 2]]}}',
            "as long",
        ),
        ("application/json", '{"dataframe_records": [{"a": 1, "b": 2}]}', "no input 'a'"),
        ("application/json", "[" * 70 + "1" + "]" * 70, "more than 64 dimensions"),
        ("application/jsonlines", "", "no list of rows"),
        ("text/libsvm", "", "has no row"),
        ("text/libsvm", "1 1:1 7:3", "the model has 2 features, the LIBSVM text 7"),
        ("text/libsvm", "1 a:1", "'a:1' is not index:value"),
        ("text/libsvm", "1 1:a", "'1:a' is not index:value"),
        ("application/x-npy", b"", "not an npy file"),
        ("application/x-npy", b"\x93NUMPY", "not an npy file"),
        ("application/x-npy", npy([[1.0, 2.0]])[:-1], "not an npy file"),
        ("application/x-npy", npy([1j]), "no V2 datatype"),
        ("application/x-npy", npy([["1", "2"]]), "text (BYTES) is not FP32"),
        ("application/x-npz", b"PK", "not an npz file"),
        ("application/x-npz", npz(), "no array"),
        ("application/x-npz", npz(indptr=[0], indices=[], format=b"csr"), "toarray()"),
        ("application/x-npz", npz(a=[1], b=[2]), "no input 'a'"),
        (TRITON, b"{}", "json-header-size=N"),
        (f"{TRITON};json-header-size=x", b"{}", "json-header-size=N"),
        (f"{TRITON};json-header-size=-1", b"{}", "json-header-size=N"),
        (f"{TRITON};json-header-size=3", b"{}", "json-header-size=N"),
        (f"{TRITON};json-header-size=99999999999999999999", b"{}", "json-header-size=N"),
    ],
)
def test_what_cannot_be_read(content_type: str, body: Any, told: str) -> None:
    """A body that is not what its media type says is a client's mistake, with the reason."""
    with pytest.raises(InvalidRequest) as raised:
        read(body, content_type)
    assert told in str(raised.value)
    assert "\n" not in str(raised.value)


class Trap:
    """Says so when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return pytest.fail, ("a pickle was opened",)


@pytest.mark.parametrize("content_type", ["application/x-npy", "application/x-npz"])
def test_pickles_are_never_opened(content_type: str) -> None:
    """A pickle, bare or in an array of objects, is refused."""
    objects = np.array([Trap()], object)
    bare = pickle.dumps(Trap())
    bodies = [npy(objects, allow_pickle=True), bare]
    if content_type.endswith("npz"):
        bodies = [npz(x=objects), bare, zipped("x.npy", bare)]
    for body in bodies:
        with pytest.raises(InvalidRequest):
            read(body, content_type)


def zipped(name: str, content: bytes, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.writestr(name, content)
    return file.getvalue()


def test_a_header_cannot_ask_for_memory() -> None:
    """An npy header that promises more than the body has is refused before room is made."""
    header = npy(np.zeros((1, 2))).replace(b"(1, 2), }  ", b"(10**9, 2)")
    huge = npy(np.zeros((1, 2))).replace(b"(1, 2), }        ", b"(99999999, 2), }")
    for body in (header, huge):
        with pytest.raises(InvalidRequest):
            read(body, "application/x-npy")


def test_what_is_small_only_on_the_wire() -> None:
    """A body that unpacks to more than a request may have is refused before it is unpacked."""
    with pytest.raises(RequestTooLarge):
        read(npz(x=np.zeros((2**18, 2))), "application/x-npz")


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_an_npz_file_that_says_it_is_small(method: int) -> None:
    """No more of an npz file is unpacked than it says it has, whatever its compression."""
    nbytes = 2**24
    lying = zipped("x.npy", bytes(nbytes), method).replace(
        nbytes.to_bytes(4, "little"), (100).to_bytes(4, "little")
    )
    with memory_taken.less_than(2**20), pytest.raises(InvalidRequest):
        read(lying, "application/x-npz")


@pytest.mark.parametrize(
    ("content_type", "error"),
    [
        ("application/x-pickle", UnknownMediaType),
        ("application/x-www-form-urlencoded", UnknownMediaType),
        ("text/csv; charset=latin-1", UnknownMediaType),
        (";", UnknownMediaType),
        ("application/octet-stream", UnknownMediaType),
    ],
)
def test_media_types_that_are_not_read(content_type: str, error: type[Exception]) -> None:
    """A media type or a charset that is not known is refused as that."""
    with pytest.raises(error):
        read("1,2", content_type)


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        ("", "a/json"),
        ("*/*", "a/json"),
        ("text/csv", "text/csv"),
        ("TEXT/CSV; header=absent", "text/csv"),
        ("text/*", "text/csv"),
        ("a/json;q=0.5, text/csv", "text/csv"),
        ("text/csv;q=0.2, */*;q=0.1", "text/csv"),
        ("text/csv, a/json", "text/csv"),
        ("a/json;q=0, */*", "text/csv"),
        ("x/y, a/json;q=bad", "a/json"),
        ("a/json;q=2, text/csv;q=3", "a/json"),
        (", text/csv,", "text/csv"),
    ],
)
def test_accept(accept: str, chosen: str) -> None:
    """The best loved of what can be offered is chosen, by weight, then by order."""
    assert choose(accept, ("a/json", "text/csv")) == chosen


@pytest.mark.parametrize("accept", ["image/png", "a/json;q=0", "*/*;q=0", "text/html, image/*"])
def test_what_cannot_be_accepted(accept: str) -> None:
    """An Accept header that allows nothing that there is is refused."""
    with pytest.raises(NotAcceptable):
        choose(accept, ("a/json", "text/csv"))


def test_what_code_is_told_to_answer() -> None:
    """Code is given the one media type that its client likes best."""
    assert preferred("") == preferred("*/*") == "application/json"
    assert preferred("text/csv;q=0.5, image/png, */*;q=0.1") == "image/png"


def answer(form: PayloadForm, **outputs: Any) -> Reply:
    tensors = {name: Tensor.of(value) for name, value in outputs.items()}
    return encode(InferResponse(ModelId("m", 1), tensors), form)


def body_of(payload: Reply) -> bytes:
    return b"".join(bytes(part) for part in payload.parts)


def media_type_of(payload: Reply) -> str:
    return dict(payload.headers)[b"content-type"].decode()


MATRIX = np.array([[0.1, 2], [3, np.inf]], np.float32)


@pytest.mark.parametrize(
    ("name", "outputs", "expected"),
    [
        ("application/json", {"y": [[0.1, 2], [3, 4]]}, b"[[0.1,2.0],[3.0,4.0]]"),
        ("application/json", {"y": MATRIX}, b"[[0.10000000149011612, 2.0], [3.0, Infinity]]"),
        ("application/json", {"y": np.float64(1)}, b"1.0"),
        ("application/json", {"a": [1], "b": [["x"]]}, b'{"a":[1],"b":[["x"]]}'),
        ("text/csv", {"y": MATRIX}, b"0.1,2.0\n3.0,inf\n"),
        ("text/csv", {"y": [1, 2]}, b"1\n2\n"),
        ("text/csv", {"a": [1, 2], "b": [["x", "y"], ["u, v", "w"]]}, b'1,x,y\n2,"u, v",w\n'),
        ("text/csv", {"y": np.zeros((2, 0))}, b""),
        ("application/jsonlines", {"y": [[1, 2], [3, 4]]}, b"[1,2]\n[3,4]\n"),
        ("application/jsonlines", {"y": np.array([1, 2], np.float32)}, b"1.0\n2.0\n"),
        ("application/jsonlines", {"a": [1], "b": ["x"]}, b'{"a":1,"b":"x"}\n'),
    ],
)
def test_answers(name: str, outputs: dict[str, Any], expected: bytes) -> None:
    """Outputs are written in the media type that was chosen."""
    payload = answer(PayloadForm(name), **outputs)
    assert media_type_of(payload) == name
    assert body_of(payload) == expected


def test_answers_to_rows() -> None:
    """Instances are answered by predictions, one for each."""
    form = PayloadForm("application/json", as_rows=True)
    assert json.loads(body_of(answer(form, y=[[1], [2]]))) == {"predictions": [[1], [2]]}
    both = json.loads(body_of(answer(form, a=[1, 2], b=["x", "y"])))
    assert both == {"predictions": [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]}


@pytest.mark.parametrize("kind", [np.longlong, np.ulonglong, np.int64, np.int8, np.bool_])
def test_rows_of_any_integers(kind: type) -> None:
    """ONNX Runtime gives its INT64 as numpy's longlong, which orjson does not write alone."""
    one, two = np.array([0, 1], kind), np.array([[0, 1], [1, 0]], kind)
    form, lines = (
        PayloadForm("application/json", as_rows=True),
        PayloadForm("application/jsonlines"),
    )
    wanted = [{"a": a, "b": b} for a, b in zip(one.tolist(), two.tolist(), strict=True)]
    assert json.loads(body_of(answer(form, a=one, b=two))) == {"predictions": wanted}
    assert json.loads(body_of(answer(form, a=one))) == {"predictions": one.tolist()}
    assert list(map(json.loads, body_of(answer(lines, a=one, b=two)).splitlines())) == wanted


def test_numpy_answers() -> None:
    """Numpy's files load without pickles; text is text."""
    one = body_of(answer(PayloadForm("application/x-npy"), y=MATRIX))
    assert np.array_equal(np.load(io.BytesIO(one)), MATRIX)
    both = body_of(answer(PayloadForm("application/x-npz"), file=MATRIX, b=["x", "yz"]))
    with np.load(io.BytesIO(both)) as arrays:
        assert arrays["b"].tolist() == ["x", "yz"]
        assert arrays["file"].dtype == np.float32


@pytest.mark.parametrize(
    ("name", "outputs"),
    [
        ("application/x-npy", {"a": [1], "b": [2]}),
        ("text/csv", {"a": [1], "b": [2, 3]}),
        ("text/csv", {"a": [b"\xff"]}),
        ("application/jsonlines", {"a": [1], "b": [2, 3]}),
        ("application/jsonlines", {"a": np.float64(1)}),
    ],
)
def test_answers_that_cannot_be(name: str, outputs: dict[str, Any]) -> None:
    """Outputs that a media type cannot hold are refused, not bent."""
    with pytest.raises(InvalidRequest):
        answer(PayloadForm(name), **outputs)


def test_one_output_alone() -> None:
    """A media type that holds one array is refused for a model of two before it runs."""
    with pytest.raises(NotAcceptable, match="the answer has 2"):
        read("[[1, 2]]", accept="application/x-npy", of=signature(outputs=2))


V2 = {"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}]}


@EACH_PARSER
def test_v2_bodies() -> None:
    """A V2 request is answered in V2, unless another media type is accepted."""
    body = json.dumps(V2)
    request, form = read(body, "application/json")
    assert request.inputs["x"].array.tolist() == [[1, 2]]
    told = json.loads(body_of(answer(form, y=[[1.0]])))
    assert told["outputs"] == [{"name": "y", "datatype": "FP64", "shape": [1, 1], "data": [1.0]}]
    _, form = read(body, "application/json", "text/csv")
    assert body_of(answer(form, y=[[1.0]])) == b"1.0\n"


@EACH_PARSER
def test_tritons_media_type() -> None:
    """Binary tensors stand behind the JSON, whose length the media type says, both ways."""
    entry = {"name": "x", "shape": [1, 2], "datatype": "FP32"}
    entry["parameters"] = {"binary_data_size": 8}
    wanted = [{"name": "y", "parameters": {"binary_data": True}}]
    head = json.dumps({"inputs": [entry], "outputs": wanted}).encode()
    data = np.array([1, 2], "<f4").tobytes()
    request, form = read(head + data, f"{TRITON};json-header-size={len(head)}")
    assert request.inputs["x"].array.tolist() == [[1, 2]]
    payload = answer(form, y=np.array([[1, 2]], np.float32))
    name, _, length = media_type_of(payload).partition(";json-header-size=")
    assert name == TRITON
    assert body_of(payload)[int(length) :] == data


def test_tritons_raw_input() -> None:
    """A length of 0 is the data of the only input; an empty one has no elements."""
    data = np.array([1, 2], "<f4").tobytes()
    request, form = read(data, f"{TRITON}; json-header-size=0")
    assert request.inputs["x"].array.tolist() == [[1, 2]]
    assert media_type_of(answer(form, y=MATRIX)).startswith(TRITON)
    free = signature(("x", "FP32", (-1, -1)))
    request, _ = read(b"", f"{TRITON};json-header-size=0", of=free)
    assert request.inputs["x"].shape == (1, 0)


@EACH_PARSER
@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"[1, 2]\n[3]\n", "different lengths"),
        (b'{"x": [1], "y": [1]}\n{"x": [1]}\n', "not all objects of the same names"),
        (b"\n\n", "no list of rows"),
    ],
)
def test_lines_that_do_not_go_together(body: bytes, told: str) -> None:
    """Rows of different shapes or names are refused."""
    with pytest.raises(WorkbenchError, match=told):
        read(body, "application/jsonlines")


def test_what_is_known_of_a_shape() -> None:
    """A short array that fits is not checked again; one that does not fit is, whatever came before.

    Bodies of other shapes do not change what is known of a shape.
    """
    asked = PayloadRequest("m", "application/json", "", MAX_NBYTES)
    bodies = (b"[[1, 2]]", b"[1, 2]", b"[[1, 2], [3, 4]]", b'{"x": [1, 2]}', b"[1, 2, 3]", b"[1]")
    for body in bodies * 2:
        request, _ = asked.read(body, ONE)
        fits = request.inputs["x"].shape[1:] == (2,)
        if fits:
            assert request.fit is not None
            assert (request.fit.signature, request.fit.to_compute) == (ONE, ("y0",))
        else:
            assert request.fit is None


@EACH_PARSER
@pytest.mark.parametrize("array", ["[[1, 2]]", "[]", "[[1, 2], [3]]", "[1, null]", "1"])
@pytest.mark.parametrize("name", ["instances", "inputs", "x", "other", "\\u0078", "é"])
def test_an_array_alone_in_an_object(name: str, array: str) -> None:
    """A short one is read as in an object that is too long for that, or is refused with it."""
    short, long = (f' {{"{name}":{space}{array} }}\n' for space in ("", " " * 2**11))
    told = []
    for body in (short, long):
        try:
            request, form = read(body)
        except WorkbenchError as error:
            told.append(f"{type(error).__name__}: {error}")
        else:
            told.append(f"{request.inputs['x'].array.tolist()} {form}")
    assert told[0] == told[1]


CELLS = st.one_of(
    st.floats().map(str),
    st.integers(-(2**70), 2**70).map(str),
    st.sampled_from(
        ["-0", "-0.0", "-0e1", "01", ".5", "1.", "+1", " 1", "1 ", "", '"1"', "[1", "1]"]
    ),
)
ROWS_OF_CELLS = st.lists(st.lists(CELLS, min_size=1, max_size=3).map(",".join), max_size=3)


@given(
    st.sampled_from(["FP32", "FP64", "FP16", "INT64", "INT8", "UINT64", "BF16", "BYTES"]),
    st.sampled_from(["\n", "\r\n", "\r", "\n\n", "\n \n", "\t\n"]),
    ROWS_OF_CELLS,
)
@settings(derandomize=True, deadline=None, max_examples=600)
def test_short_csv(datatype: str, newline: str, rows: list[str]) -> None:
    """Short CSV is read as any other, to the bit and to the shape, or is left to that."""
    read = tables.short_csv_reader(datatype)
    body = newline.join(rows).encode()
    array = read and read(body)
    if array is None:
        return
    wanted = tables.matrix_of(TensorSpec("x", datatype, (-1, -1)), body.decode()).array
    assert array.dtype == wanted.dtype
    assert array.shape == wanted.shape
    assert array.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("datatype", ["FP32", "INT64"])
@pytest.mark.parametrize("body", [b"1,2\n3,4", b"1, 2\r\n3, 4\r\n"])
def test_usual_short_csv(body: bytes, datatype: str) -> None:
    """The usual text of a small request is not left to numpy's reader of files."""
    read = tables.short_csv_reader(datatype)
    array = read and read(body)
    assert array is not None
    assert array.tolist() == [[1, 2], [3, 4]]


def test_libsvm_takes_the_width_of_the_model_or_of_its_indices() -> None:
    """Features that are left out are 0; rows are no larger, once dense, than a body may be."""
    assert read_libsvm("1 2:5", 3, 2**20).tolist() == [[0, 5, 0]]
    assert read_libsvm("1 2:5\n0", -1, 2**20).tolist() == [[0, 5], [0, 0]]
    with pytest.raises(RequestTooLarge, match="take 80 bytes once dense; at most 79 may"):
        read_libsvm("1 10:1", -1, 79)
