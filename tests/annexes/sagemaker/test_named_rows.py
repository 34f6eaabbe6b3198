"""Rows with names in SageMaker's and MLflow's media types; see ``tests/wires/test_columns.py``."""

import json
from typing import Any

import numpy as np
import pytest

from workbench.annexes.sagemaker.payloads.formats import PayloadRequest
from workbench.codecs import model_config
from workbench.errors import InvalidRequest
from workbench.model import FunctionModel, ModelConfig, ModelId, ModelSource, Signature, TensorSpec
from workbench.rows import columns_in

X = TensorSpec("X", "FP32", (-1, 2))
MATRIX = Signature("", {"X": X}, {"y": X}, columns=("a", "b"))
NUMBERED = Signature("", {"X": X}, {"y": X}, columns=("1", "2"))
TABLE = Signature(
    "",
    {
        name: TensorSpec(name, datatype, (-1, 1), missing=name == "text")
        for name, datatype in (("text", "BYTES"), ("key", "BYTES"), ("n", "INT64"), ("ok", "BOOL"))
    },
    {"y": X},
)
CSV, JSON, LINES = "text/csv", "application/json", "application/jsonlines"


def inputs(body: Any, kind: str, of: Signature) -> Any:
    """The inputs of *body*, as lists, NaN as text."""
    data = body if isinstance(body, bytes) else body.encode()
    asked = PayloadRequest("m", kind, "", 2**20)
    first, again = (asked.read(data, of)[0].inputs for _ in range(2))
    assert repr(first) == repr(again)
    found = {name: tensor.array.tolist() for name, tensor in first.items()}
    return json.loads(json.dumps(found, default=bytes.decode).replace("NaN", '"nan"'))


@pytest.mark.parametrize("header", ["", ";header=present"])
@pytest.mark.parametrize(
    ("of", "body", "expected"),
    [
        (MATRIX, "b,a\n1,2\n3,4\n", [[2, 1], [4, 3]]),
        (MATRIX, '" b ","a"\r\n1,2', [[2, 1]]),
        (MATRIX, "b,a\r1,\r,2", [["nan", 1], [2, "nan"]]),
        (MATRIX, '\ufeff"b",a\n1,"2"', [[2, 1]]),
        (MATRIX, 'b,a\n"",2', [[2, "nan"]]),
    ],
)
def test_csv_with_names(of: Signature, body: str, expected: Any, header: str) -> None:
    """A first row of exactly the names of the columns is no row of numbers; so if it is told."""
    assert inputs(body, CSV + header, of) == {"X": expected}


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        (CSV, "1,2\n3,4", [[1, 2], [3, 4]]),
        (CSV, "1,\n,4", [[1, "nan"], ["nan", 4]]),
        (JSON, "[[1, 2]]", [[1, 2]]),
        (JSON, '{"instances": [[1, 2]]}', [[1, 2]]),
        (JSON, '{"inputs": [[1, 2]]}', [[1, 2]]),
        (JSON, '{"X": [[1, 2]]}', [[1, 2]]),
        (JSON, '{"features": [[1, 2]]}', [[1, 2]]),
        (JSON, '{"dataframe_split": {"data": [[1, 2]]}}', [[1, 2]]),
        (LINES, "[1, 2]\n[3, 4]", [[1, 2], [3, 4]]),
    ],
)
def test_without_names(kind: str, body: str, expected: Any) -> None:
    """Rows without names go by position."""
    assert inputs(body, kind, MATRIX) == {"X": expected}


def test_names_that_are_numbers() -> None:
    """They are names only where that is told."""
    assert inputs("2,1\n3,4", CSV, NUMBERED) == {"X": [[2, 1], [3, 4]]}
    assert inputs("2,1\n3,4", f"{CSV};header=present", NUMBERED) == {"X": [[4, 3]]}
    assert inputs('[{"2": 3, "1": 4}]', JSON, NUMBERED) == {"X": [[4, 3]]}


def test_cells_of_each_datatype() -> None:
    """Each column is read as its own datatype; an empty cell is a missing text where it may be."""
    body = "ok,n,key,text\nTrue,9007199254740993,,\n0, -1 ,k,t\n"
    assert inputs(body, CSV, TABLE) == {
        "text": [[None], ["t"]],
        "key": [[""], ["k"]],
        "n": [[2**53 + 1], [-1]],
        "ok": [[True], [False]],
    }


ROW = "ok,n,key,text\n"
SPLIT = '{"dataframe_split": {"columns": ["a", "a"], "data": [[1, 2]]}}'


@pytest.mark.parametrize(
    ("of", "kind", "body", "told"),
    [
        (TABLE, CSV, f"{ROW}yes,1,k,t", "'ok': could not convert string 'yes' to bool at row 0"),
        (TABLE, CSV, f"{ROW}1,1,k,t\n1,x,k,t", "column 'n': could not convert string 'x' to int64"),
        (TABLE, CSV, f"{ROW}1,1,k,t\n1,1.5,k,t", "string '1.5' to int64 at row 1"),
        (TABLE, CSV, f"{ROW}1,,k,t", "column 'n': could not convert string '' to int64 at row 0"),
        (TABLE, CSV, f"{ROW}1,1,k", "its rows have 3 cells, its first 4"),
        (TABLE, CSV, ROW, "it has no row"),
        (TABLE, CSV, "1,1,k,t", "one array is for a model of one input"),
        (MATRIX, CSV, "b,A\n1,2", "if the first row has names, send text/csv;header=present"),
        (MATRIX, f"{CSV};header=present", "b,A\n1,2", "lack 'a' and have 'A'"),
        (MATRIX, f"{CSV};header=present", "b,a,b\n1,2,3", "its first row has a name twice"),
        (MATRIX, CSV, "b,a\n1,x", "could not convert string 'x'"),
        (MATRIX, JSON, '{"a": [[1, 2]]}', "the rows lack 'b'"),
        (MATRIX, JSON, '{"A": [1, 2]}', "lack 'a', 'b' and have 'A'"),
        (MATRIX, JSON, '{"A": 1}', "lack 'a', 'b' and have 'A'"),
        (MATRIX, JSON, '[{"a": 1, "b": 2}, {"a": 1}]', "not all objects of the same names"),
        (MATRIX, JSON, SPLIT, "has a column twice"),
        (MATRIX, JSON, '{"dataframe_split": 3}', "no list of rows"),
        (MATRIX, LINES, '{"a": 1, "b": 2}\n{"a": 1, "c": 2}', "not all objects of the same names"),
        (TABLE, JSON, '{"text": [1]}', "1 is not a string"),
    ],
)  # fmt: skip
def test_what_is_refused(of: Signature, kind: str, body: str, told: str) -> None:
    """In one line, which names the column."""
    with pytest.raises(InvalidRequest) as refused:
        inputs(body, kind, of)
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_configuration_has_the_names() -> None:
    """A parameter of the configuration, as Triton's has them: clients read it."""
    model = FunctionModel(np.negative, (X,), (X,), columns=("a", "b"))
    source = ModelSource(ModelId("m", 1), ModelConfig("m"), model)
    told: Any = model_config.describe(source, MATRIX, None)
    parameters = {key: each["string_value"] for key, each in told["parameters"].items()}
    assert columns_in(parameters, MATRIX.inputs) == ("a", "b")
