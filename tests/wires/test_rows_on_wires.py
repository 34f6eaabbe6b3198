"""Rows go by the names of a model's columns over each wire and in each form, in any order."""

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import onnx_models
import pandas as pd
import pytest
import tritonclient.grpc
import tritonclient.http
from foreign import Foreign
from tritonclient.utils import InferenceServerException

import workbench
from workbench import Workbench
from workbench.errors import WorkbenchError
from workbench.model import FunctionModel, ModelId, TensorSpec

Row = dict[str, Any]
Ask = Callable[["Server", str, list[Row]], Any]

NAMES = ("age", "income", "c", "a")
MATRIX = [
    dict(zip(NAMES, row, strict=True)) for row in ([1.5, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0])
]
TABLE = [
    {"age": 20.5, "count": 2**53 + 1, "ok": True, "city": "Oslo"},
    {"age": 30.0, "count": -1, "ok": False, "city": "a, b"},
]
SPECS = tuple(
    TensorSpec(name, datatype, (-1, 1), missing=datatype == "BYTES")
    for name, datatype in zip(TABLE[0], ("FP64", "INT64", "BOOL", "BYTES"), strict=True)
)
ORDERS = ((0, 1, 2, 3), (3, 1, 0, 2))


def told(age: Any, count: Any, ok: Any, city: Any) -> np.ndarray:
    """Each row as text, which tells its values and their types."""
    rows = zip(*(each[:, 0].tolist() for each in (age, count, ok, city)), strict=True)
    return np.array([[repr(row)] for row in rows], object)


def right(rows: list[Row]) -> list[Any]:
    """The answer that *rows* have where they need no name."""
    if "income" in rows[0]:
        return [[row[name] for name in NAMES] for row in rows]
    cells = [[row[spec.name] for spec in SPECS] for row in rows]
    return [[repr((*cell[:3], cell[3] and cell[3].encode()))] for cell in cells]


class Server:
    """A server of two models whose columns have names: a matrix, and an input for each column."""

    def __init__(self, wb: Workbench, boto3: Any) -> None:
        self.wb, self.boto3, self.url = wb, boto3, wb.url
        self.far = workbench.connect(wb.url)
        x, y = (TensorSpec(name, "FP64", (-1, 4)) for name in ("X", "y"))
        texts = TensorSpec("y", "BYTES", (-1, 1))
        one, only = (TensorSpec(name, "FP64", (-1, 1)) for name in ("X", "y"))
        models = {
            "matrix": FunctionModel(lambda X: X, (x,), (y,), columns=NAMES),  # noqa: N803
            "table": FunctionModel(told, SPECS, (texts,)),
            "one": FunctionModel(lambda X: X, (one,), (only,), columns=("age",)),  # noqa: N803
        }
        for name, model in models.items():
            wb._core.call(wb._core.models.register, ModelId(name, 1), model)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    boto3 = Foreign("boto3_client.py")
    with Workbench(device="cpu", grpc_port=0) as wb:
        server = Server(wb, boto3)
        yield server
        server.far.close()
    boto3.close()


def columns_of(rows: list[Row]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in rows[0]}


# ── Python, whose other forms are in tests/asking/test_rows_by_name.py ──


def table(rows: list[Row]) -> Any:
    return pd.DataFrame(rows, dtype=object).infer_objects()


def infer(server: Server, model: str, rows: list[Row]) -> Any:
    return server.wb.infer(model, table(rows)).tolist()


def connect(server: Server, model: str, rows: list[Row]) -> Any:
    return server.far.infer(model, table(rows)).tolist()


# ── V2 ──


def datatype(values: list[Any]) -> str:
    return {bool: "BOOL", int: "INT64", float: "FP64"}.get(type(values[0]), "BYTES")


def entries(rows: list[Row], *, flat: bool) -> list[Row]:
    return [
        {
            "name": name,
            "datatype": datatype(values),
            "shape": [len(values)] if flat else [len(values), 1],
            "data": values,
        }
        for name, values in columns_of(rows).items()
    ]


def checked(reply: httpx.Response) -> Any:
    body = reply.json()
    if "OriginalMessage" in body:
        raise refusal(body)
    if not reply.is_success:
        raise RefusedError(reply.status_code, body["error"])
    return body


def refusal(body: Any) -> "RefusedError":
    """The model's own error, which the platform passes on."""
    return RefusedError(body["OriginalStatusCode"], json.loads(body["OriginalMessage"])["message"])


class RefusedError(Exception):
    """The message of an answer with this *status*."""

    def __init__(self, status: Any, message: str) -> None:
        super().__init__(message)
        self.status = status


def v2(flat: bool) -> Ask:
    def ask(server: Server, model: str, rows: list[Row]) -> Any:
        body = {"inputs": entries(rows, flat=flat)}
        (output,) = checked(httpx.post(f"{server.url}/v2/models/{model}/infer", json=body))[
            "outputs"
        ]
        return np.reshape(np.array(output["data"], object), output["shape"]).tolist()

    return ask


def triton(wire: Any, flat: bool) -> Ask:
    def ask(server: Server, model: str, rows: list[Row]) -> Any:
        inputs = []
        for entry in entries(rows, flat=flat):
            given = wire.InferInput(entry["name"], entry["shape"], entry["datatype"])
            dtype = object if entry["datatype"] == "BYTES" else None
            given.set_data_from_numpy(np.array(entry["data"], dtype).reshape(entry["shape"]))
            inputs.append(given)
        url = server.url if wire is tritonclient.http else server.wb.grpc_url
        with wire.InferenceServerClient(url.rpartition("/")[2]) as client:
            try:
                answer = client.infer(model, inputs).as_numpy("y")
            except InferenceServerException as error:
                raise RefusedError(error.status(), error.message()) from None
        return [[v.decode() if isinstance(v, bytes) else v for v in row] for row in answer.tolist()]

    return ask


def generate(server: Server, model: str, rows: list[Row]) -> Any:
    url = f"{server.url}/v2/models/{model}/generate"
    flat = checked(httpx.post(url, json=columns_of(rows)))["y"]
    return np.reshape(np.array(flat, object), (len(rows), -1)).tolist()


# ── SageMaker, MLServer, MLflow ──


def csv(rows: list[Row]) -> str:
    text = io.StringIO()
    pd.DataFrame(rows, dtype=object).to_csv(text, index=False)
    return text.getvalue()


def npz(rows: list[Row]) -> bytes:
    file = io.BytesIO()
    np.savez(file, **{name: np.array(values) for name, values in columns_of(rows).items()})
    return file.getvalue()


def split(rows: list[Row]) -> Any:
    return {"columns": list(rows[0]), "data": [list(row.values()) for row in rows]}


JSON = "application/json"
BODIES: dict[str, tuple[str, Callable[[list[Row]], Any]]] = {
    "csv, header present": ("text/csv;header=present", csv),
    "csv": ("text/csv", csv),
    "csv, lines of Windows": (
        "text/csv; charset=utf-8",
        lambda rows: csv(rows).replace("\n", "\r\n"),
    ),
    "json lines": ("application/jsonlines", lambda rows: "\n".join(map(json.dumps, rows))),
    "instances": (JSON, lambda rows: json.dumps({"instances": rows})),
    "rows": (JSON, json.dumps),
    "columns": (JSON, lambda rows: json.dumps(columns_of(rows))),
    "inputs, columns": (JSON, lambda rows: json.dumps({"inputs": columns_of(rows)})),
    "inputs, rows": (JSON, lambda rows: json.dumps({"inputs": rows})),
    "dataframe_split": (JSON, lambda rows: json.dumps({"dataframe_split": split(rows)})),
    "dataframe_records": (JSON, lambda rows: json.dumps({"dataframe_records": rows})),
    "V2": (JSON, lambda rows: json.dumps({"inputs": entries(rows, flat=True)})),
    "npz": ("application/x-npz", npz),
}


def answer_in(body: Any) -> Any:
    if isinstance(body, dict) and "predictions" in body:
        return body["predictions"]
    if isinstance(body, dict):
        (output,) = body["outputs"]
        return np.reshape(np.array(output["data"], object), output["shape"]).tolist()
    return body


def invocations(form: str) -> Ask:
    kind, write = BODIES[form]

    def ask(server: Server, model: str, rows: list[Row]) -> Any:
        url = f"{server.url}/endpoints/{model}/invocations"
        reply = httpx.post(url, content=write(rows), headers={"Content-Type": kind})
        return answer_in(checked(reply))

    return ask


def invoke_endpoint(form: str) -> Ask:
    kind, write = BODIES[form]

    def ask(server: Server, model: str, rows: list[Row]) -> Any:
        given = {"EndpointName": model, "Body": write(rows), "ContentType": kind}
        answer = server.boto3("invoke_endpoint", url=server.url, mode="standard", **given)
        if "Error" in answer:
            raise refusal(answer)
        return answer_in(json.loads(answer["Body"]))

    return ask


EACH: dict[str, Ask] = {
    "infer": infer,
    "connect": connect,
    **{f"V2 JSON, {'[n]' if flat else '[n, 1]'}": v2(flat) for flat in (True, False)},
    **{f"V2 binary, {flat}": triton(tritonclient.http, flat) for flat in (True, False)},
    **{f"gRPC, {flat}": triton(tritonclient.grpc, flat) for flat in (True, False)},
    "generate": generate,
    **{f"HTTP, {form}": invocations(form) for form in BODIES},
    **{f"InvokeEndpoint, {form}": invoke_endpoint(form) for form in BODIES if form != "npz"},
}
BINARY = ("binary", "gRPC", "npz")
CAN_MISS = [name for name in EACH if not any(each in name for each in BINARY)]


def shuffled(rows: list[Row], order: tuple[int, ...]) -> list[Row]:
    return [{name: row[name] for name in (list(row)[place] for place in order)} for row in rows]


@pytest.mark.parametrize("order", ORDERS, ids=["in order", "shuffled"])
@pytest.mark.parametrize("model", ["matrix", "table"])
@pytest.mark.parametrize("name", EACH)
def test_any_order(server: Server, name: str, model: str, order: tuple[int, ...]) -> None:
    """The answer is that of the model's own order, as often as it is asked."""
    rows = MATRIX if model == "matrix" else TABLE
    for _ in range(3):  # what is known of a request is not used for another order
        assert EACH[name](server, model, shuffled(rows, order)) == right(rows)
    assert EACH[name](server, model, shuffled(rows, ORDERS[1])[::-1]) == right(rows[::-1])


@pytest.mark.parametrize("name", EACH)
def test_one_column(server: Server, name: str) -> None:
    """A matrix of one column goes by name too, and by values of its own datatype each time."""
    for start in range(4):  # what is known of a request is not used for another datatype
        for kind in (int, float):
            rows = [{"age": kind(start + row)} for row in range(2)]
            assert EACH[name](server, "one", rows) == [[float(start)], [float(start + 1)]]


@pytest.mark.parametrize("model", ["matrix", "table"])
@pytest.mark.parametrize("name", CAN_MISS)
def test_missing_values(server: Server, name: str, model: str) -> None:
    """A number that is missing is NaN, a text that is missing is ``None``."""
    rows = [dict(row) for row in (MATRIX if model == "matrix" else TABLE)]
    rows[1]["age"] = None
    wanted = right([{**row, "age": float("nan")} if row["age"] is None else row for row in rows])
    assert repr(plain(EACH[name](server, model, shuffled(rows, ORDERS[1])))) == repr(wanted)


@pytest.mark.parametrize("name", CAN_MISS)
def test_missing_texts(server: Server, name: str) -> None:
    """They reach the model as missing: ``None``, or NaN where a table of the process has that."""
    rows = [TABLE[0], {**TABLE[1], "city": None}]
    got = EACH[name](server, "table", shuffled(rows, ORDERS[1]))
    assert [[text.replace("nan)", "None)") for text in row] for row in got] == right(rows)


def plain(answer: Any) -> Any:
    """*answer* with NaN, which V2 tells as text, and plain JSON as null."""
    names = {"NaN": float("nan"), None: float("nan")}
    return [
        [names.get(cell, cell) if isinstance(cell, str | None) else cell for cell in row]
        for row in answer
    ]


SAY_NAMES = [
    name for name in EACH if not name.endswith((", csv", "lines of Windows"))
]  # whatever these are


@pytest.mark.parametrize("model", ["matrix", "table"])
@pytest.mark.parametrize("name", SAY_NAMES)
def test_a_misspelt_name(server: Server, name: str, model: str) -> None:
    """It is refused with status 400 and the nearest name, never taken by its position."""
    rows = MATRIX if model == "matrix" else TABLE
    with pytest.raises((WorkbenchError, RefusedError)) as refused:
        EACH[name](
            server, model, [{"Age" if n == "age" else n: row[n] for n in row} for row in rows]
        )
    assert "'Age'" in str(refused.value)
    assert str(refused.value).endswith("; did you mean 'age'?")
    if isinstance(refused.value, RefusedError):
        assert refused.value.status in (400, "400", "StatusCode.INVALID_ARGUMENT")


@pytest.mark.parametrize("name", [name for name in SAY_NAMES if not name.startswith("generate")])
def test_a_name_too_many_or_too_few(server: Server, name: str) -> None:
    """Each is refused; a table of Python may have more columns than the model."""
    ask, few = EACH[name], [{n: row[n] for n in ("c", "a", "age")} for row in MATRIX]
    with pytest.raises((WorkbenchError, RefusedError), match="the rows lack 'income'"):
        ask(server, "matrix", few)
    more = [{"z": 1.0, **row} for row in MATRIX]
    if name in ("infer", "connect"):
        assert ask(server, "matrix", more) == right(MATRIX)
    else:
        with pytest.raises((WorkbenchError, RefusedError), match="the rows have 'z' too"):
            ask(server, "matrix", more)


def test_null_where_no_text_may_be_missing(server: Server) -> None:
    """It is refused, in the words that Triton's clients know."""
    texts = {"x": ("BYTES", [-1])}
    server.wb.register(lambda x: x, name="echo", inputs=texts, outputs=texts)
    entry = {"name": "x", "datatype": "BYTES", "shape": [2], "data": ["a", None]}
    reply = httpx.post(f"{server.url}/v2/models/echo/infer", json={"inputs": [entry]})
    told = "input 'x': null is not a string"
    assert (reply.status_code, reply.json()["error"]) == (400, told)
    with pytest.raises(WorkbenchError, match="null is not a string"):
        server.far.infer("echo", np.array(["a", None], object))


def test_a_model_with_other_columns_meanwhile(server: Server) -> None:
    """A connection knows the columns as they were; the server goes by their names all the same."""
    spec = TensorSpec("X", "FP64", (-1, 2))
    for names in (("a", "b"), ("b", "a"), ("b", "c")):
        model = FunctionModel(lambda X: X, (spec,), (spec,), columns=names)  # noqa: N803
        server.wb._core.call(server.wb._core.models.register, ModelId("changed", 1), model)
        given = {"a": [1.0], "b": [2.0], "c": [3.0]}
        if names == ("b", "c"):
            with pytest.raises(
                WorkbenchError, match="takes the columns 'b', 'c'; the rows lack 'c'"
            ):
                server.far.infer("changed", pd.DataFrame(given))
        answer = server.far.infer("changed", pd.DataFrame(given))
        assert answer.tolist() == [[given[name][0] for name in names]]


CONFIG = 'parameters { key: "columns" value { string_value: \'["age", "income", "c", "a"]\' } }'


def test_a_model_of_a_folder(tmp_path: Path) -> None:
    """Its configuration may have the names; the server and the container know them then."""
    (tmp_path / "m").mkdir()
    onnx_models.identity(tmp_path / "m" / "model.onnx", "FP64", ("n", 4))
    (tmp_path / "m" / "config.pbtxt").write_text(CONFIG)
    rows, wanted = shuffled(MATRIX, ORDERS[1]), right(MATRIX)
    with Workbench(tmp_path, device="cpu") as wb, workbench.connect(wb.url) as far:
        for ask in (wb.infer, far.infer):
            assert ask("m", table(rows)).tolist() == wanted
        load = {"model_name": "mine", "url": str(tmp_path / "m")}
        assert httpx.post(f"{wb.url}/models", json=load).is_success
        for kind, write in BODIES.values():
            headers = {"Content-Type": kind}
            for path in ("/models/mine/invoke", "/invocations"):
                reply = httpx.post(f"{wb.url}{path}", content=write(rows), headers=headers)
                assert answer_in(reply.json()) == wanted


@pytest.mark.parametrize("wire", [tritonclient.grpc, tritonclient.http])
def test_known_requests(tmp_path: Path, wire: Any) -> None:
    """A request whose datatype is not the model's is never read as one that was known before."""
    (tmp_path / "m").mkdir()
    onnx_models.identity(tmp_path / "m" / "model.onnx", "FP64", ("n", 1))
    (tmp_path / "m" / "config.pbtxt").write_text(CONFIG.replace(', "income", "c", "a"', ""))
    with Workbench(tmp_path, device="cpu", grpc_port=0) as wb:
        url = wb.grpc_url if wire is tritonclient.grpc else wb.url
        with wire.InferenceServerClient(url.rpartition("/")[2]) as client:
            for number in range(8):
                for dtype, name in ((np.int64, "INT64"), (np.float64, "FP64")):
                    for shape in ([2], [2, 1]):
                        column = wire.InferInput("age", shape, name)
                        column.set_data_from_numpy(np.full(shape, number, dtype))
                        answer = client.infer("m", [column]).as_numpy("y")
                        assert answer.tolist() == [[number], [number]]
