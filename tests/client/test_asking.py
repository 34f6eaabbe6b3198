"""What ``infer`` takes and returns."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from onnx_models import ENDLESS, loop

from workbench import Workbench
from workbench.errors import (
    DeadlineExceeded,
    InvalidRequest,
    RequestStopped,
    UsageError,
)

ROWS = [[1.0, 2.0], [3.0, 4.0]]
MISSING = "it has missing values, which {} cannot say: fill them in"
WITH_FLOATS = "the model with an example that has floats there"
PEOPLE: Any = {
    "inputs": {"age": ("INT64", [-1]), "city": ("BYTES", [-1])}, "outputs": {"y": ("INT64", [-1])}
}  # fmt: skip


@pytest.fixture(scope="module")
def wb() -> Iterator[Workbench]:
    """A server of a few functions."""
    workbench = Workbench(device="cpu")
    texts, numbers = ("BYTES", [-1, 1]), ("FP32", [-1])
    workbench.register(
        lambda a, b: (a, np.stack([a, b], 1)), name="two",
        inputs={"a": numbers, "b": numbers}, outputs={"sum": numbers, "pair": ("FP32", [-1, 2])},
    )  # fmt: skip
    workbench.register(
        lambda x: x, name="matrix", inputs={"x": ("FP32", [-1, 2])},
        outputs={"y": ("FP32", [-1, 2])},
    )  # fmt: skip
    workbench.register(lambda x: x, name="texts", inputs={"x": texts}, outputs={"y": texts})
    workbench.register(
        lambda inputs: inputs, name="odd", inputs={"inputs": numbers}, outputs={"y": numbers}
    )
    bits = ("BF16", [-1])
    workbench.register(lambda x: x, name="bf16", inputs={"x": bits}, outputs={"y": bits})
    with workbench:
        yield workbench


class Graph:
    """A tensor as PyTorch's: on another device, and in a graph."""

    def __init__(self, values: Any, dtype: str = "torch.float64") -> None:
        self.values, self.dtype = values, dtype
        self.left = ""

    def detach(self) -> Graph:
        self.left += "graph "
        return self

    def cpu(self) -> Graph:
        self.left += "device"
        return self

    def float(self) -> Graph:
        return self

    def __array__(self, *_: Any, **__: Any) -> Any:
        assert self.left == "graph device"
        return np.array(self.values)


@pytest.mark.parametrize(
    "x",
    [
        np.array(ROWS), np.array(ROWS, np.int8), np.array(ROWS, np.float16), ROWS,
        np.array(ROWS, ">f4"), np.repeat(np.array(ROWS, np.float32), 2, 1)[:, ::2],
        np.array(ROWS, np.float32, order="F"),
        pd.DataFrame(ROWS), pd.DataFrame(ROWS, columns=["x", "y"]).iloc[:, [0, 1]].rename(
            columns={"x": "width"}), pd.DataFrame(ROWS).convert_dtypes(),
        pd.DataFrame(ROWS).astype(object), np.array(ROWS, object), Graph(ROWS),
        Graph(ROWS, "torch.bfloat16"),
    ],
    ids=["float64", "int8", "float16", "list", "big-endian", "strided", "transposed",
         "table", "named table", "nullable table", "table of objects", "objects", "tensor",
         "bfloat16"],
)  # fmt: skip
def test_anything_that_holds_the_numbers(wb: Workbench, x: Any) -> None:
    """Arrays of any type that fits, lists, tables and tensors of other libraries are taken."""
    assert wb.infer("matrix", x).tolist() == ROWS


def test_a_table_by_the_names_of_its_columns(wb: Workbench) -> None:
    """Columns that are named as the inputs are the inputs, in any order and of any number type."""
    table = pd.DataFrame({"b": [3, 4], "a": [1.0, 2.0]})
    assert wb.infer("two", table)["pair"].tolist() == [[1, 3], [2, 4]]
    assert wb.infer("texts", pd.DataFrame({"x": ["a", "b"]})).tolist() == [["a"], ["b"]]
    more = table.assign(when=pd.Timestamp("2026-01-01"))  # such as the answers to be learnt
    assert wb.infer("two", more)["pair"].tolist() == [[1, 3], [2, 4]]
    assert wb.infer("two", table.convert_dtypes())["pair"].tolist() == [[1, 3], [2, 4]]


def test_missing_values_of_a_table_are_nan(wb: Workbench) -> None:
    """What pandas marks as missing among numbers is NaN, in a matrix and in a column."""
    table = pd.DataFrame({"a": [1, None], "b": [3, 4]}).convert_dtypes()
    assert np.isnan(wb.infer("two", table)["pair"]).tolist() == [[False, False], [True, False]]
    matrix = wb.infer("matrix", table.rename(columns={"a": "x1"}))
    assert np.isnan(matrix).tolist() == [[False, False], [True, False]]


def test_masked_values_are_nan(wb: Workbench) -> None:
    """A masked number is missing, whatever is behind the mask; texts cannot say that."""
    for numbers in ([[1.0, 2.0]], [[1, 2]]):
        masked = np.ma.array(numbers, mask=[[True, False]])
        assert np.isnan(wb.infer("matrix", masked)).tolist() == [[True, False]]
    assert wb.infer("matrix", np.ma.array([[1.0, 2.0]])).tolist() == [[1.0, 2.0]]
    with pytest.raises(InvalidRequest, match=MISSING.format("BYTES")):
        wb.infer("texts", np.ma.array([["a"]], mask=True))


class WithoutData:
    """As a tensor of PyTorch on the device "meta"."""

    def detach(self) -> WithoutData:
        return self

    def cpu(self) -> None:
        raise NotImplementedError("there is no data")


@pytest.mark.parametrize(
    ("x", "told"),
    [
        ([[1.0, 2.0], [3.0]], "'x' of matrix:1: its lists are not all of the same length"),
        (
            pd.DataFrame([[1.0, "2"]]),
            "FP32, but the table has texts in '1': make them numbers, or ",
        ),
        (np.array([["1", "2"]]), r"'x' of matrix:1: text \(BYTES\) is not FP32$"),
        (b"\x89PNG", "'x' of matrix:1: the bytes of a file are not FP32; an input of four dim"),
        ({1, 2}, "'x' of matrix:1: set is not FP32$"),
        ([[1.0, print]], "'x' of matrix:1: builtin_function_or_method is not FP32$"),
        ([[1j, 2.0]], "'x' of matrix:1: complex128 is not FP32$"),
        ((float(n) for n in range(2)), "'x' of matrix:1: generator is not FP32$"),
        (np.zeros((1, 2), complex), "'x' of matrix:1: no V2 datatype carries"),
        (np.full((1, 2), 1e300), r"1e\+300 is out of the range of FP32"),
        ({"image": [[1.0, 2.0]]}, "matrix:1 has no input 'image'; it takes 'x'"),
        ({"frame": None, "x": [[1.0]]}, "matrix:1 has no input 'frame'; it takes 'x'"),
        (WithoutData(), "'x' of matrix:1: there is no data$"),
        (None, "matrix:1 was asked with None: pass its inputs$"),
    ],
)
def test_what_holds_no_numbers(wb: Workbench, x: Any, told: str) -> None:
    """Text is never read as numbers; each mistake is one line."""
    with pytest.raises(InvalidRequest, match=told):
        wb.infer("matrix", x)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"age": [20.0, None], "city": ["a", "b"]},
         f"input 'age' of people:1: {MISSING.format('INT64')}, or serve {WITH_FLOATS}"),
        ({"age": [20, 30], "city": ["a", None]},
         f"input 'city' of people:1: {MISSING.format('BYTES')}"),
        ({"age": [20.5, 30], "city": ["a", "b"]},
         "input 'age' of people:1: FP64 is not INT64; pass it with .astype(np.int64)"),
        ({"age": [20, 30]}, "people:1 takes the columns 'age', 'city'; the rows lack 'city'"),
        ({"Age": [20], "City": ["a"]},
         ("people:1 takes the columns 'age', 'city'; the rows lack 'age', 'city' and have "
          "'Age', 'City'; did you mean 'age'?")),
    ],
)  # fmt: skip
def test_a_table_that_does_not_do(wb: Workbench, given: Any, told: str) -> None:
    """What a table lacks is said: its columns, or values of them; as a list of dicts too."""
    wb.register(lambda age, city: age, name="people", **PEOPLE)
    table = pd.DataFrame(given)
    for rows in (table, table.convert_dtypes(), table.to_dict("records")):
        with pytest.raises(InvalidRequest) as refused:
            wb.infer("people", rows)
        assert str(refused.value) == told
    assert wb.infer("people", age=np.array([20.0]), city=["a"]).tolist() == [20]
    with pytest.raises(InvalidRequest, match="'age' of people:1: FP64 is not INT64: round its num"):
        wb.infer("people", age=[20.5], city=["a"])


def test_a_table_with_texts_is_no_matrix(wb: Workbench) -> None:
    """The columns that hold texts are named, as they are often left in by mistake."""
    table = pd.DataFrame({"a": [1.0], "b": [2.0], "kind": ["x"]})
    with pytest.raises(InvalidRequest) as refused:
        wb.infer("matrix", table)
    assert str(refused.value) == (
        "input 'x' of matrix:1 takes FP32, but the table has texts in 'kind': make them "
        "numbers, or leave them out"
    )


@pytest.mark.parametrize("x", [np.array([[1e300, 0]]), np.array([[1j, 0]])])
def test_no_cast_that_loses_numbers_is_proposed(wb: Workbench, x: Any) -> None:
    """What numpy's cast would make infinite, or half of it, is not to be cast."""
    with pytest.raises(InvalidRequest) as refused:
        wb.infer("matrix", x)
    assert "astype" not in str(refused.value)


def test_a_list_of_dicts_is_a_table(wb: Workbench) -> None:
    """Each dict is a row, whose keys are the columns; keys that the model lacks are left."""
    rows = pd.DataFrame({"b": [3, 4], "a": [1.0, 2.0], "c": ["x", "y"]}).to_dict("records")
    assert wb.infer("two", rows)["pair"].tolist() == [[1, 3], [2, 4]]
    assert wb.infer("matrix", [{"p": 1, "q": 2}, {"q": 4, "p": 3}]).tolist() == ROWS


def test_one_row_is_a_batch(wb: Workbench) -> None:
    """One row, where a batch of any size is taken, is a batch of one."""
    assert wb.infer("matrix", [1.0, 2.0]).tolist() == [[1.0, 2.0]]
    assert wb.infer("matrix", pd.DataFrame(ROWS).iloc[0]).tolist() == ROWS[:1]
    with pytest.raises(InvalidRequest, match=r"takes shape \[-1, 2\], got \[3\]"):
        wb.infer("matrix", [1.0, 2.0, 3.0])


def test_inputs_by_keyword(wb: Workbench) -> None:
    """Several inputs may be keywords, whatever their names; not both ways at once."""
    assert wb.infer("two", a=[1], b=[2])["sum"].tolist() == [1]
    assert wb.infer("odd", inputs=[1]).tolist() == [1]
    with pytest.raises(UsageError, match=r"not both: timeout; did you mean timeout_s=\?"):
        wb.infer("odd", [1], timeout=3)
    with pytest.raises(UsageError, match="not both: timeout_s; stream takes no timeout_s="):
        wb.stream("odd", [1], timeout_s=3)


@pytest.mark.parametrize("model", [np.ones((1, 2)), Graph(ROWS), {"x": 1}, 3])
def test_the_name_comes_first(wb: Workbench, model: Any) -> None:
    """What is no name is refused in one line that says the order."""
    told = rf"name of a model is a str, not {type(model).__name__}: wb.infer\(name, inputs\)$"
    for call in (lambda: wb.infer(model, "matrix"), lambda: asyncio.run(wb.ainfer(model, "matrix")),
                 lambda: wb.stream(model, "matrix")):  # fmt: skip
        with pytest.raises(UsageError, match=told):
            call()


def test_an_input_that_may_be_left_out(wb: Workbench) -> None:
    """One value is for the only input that is needed; a model that needs two takes no one value."""
    wb.register(
        lambda x, by=(2.0,): x * by[0], name="scaled", outputs={"y": ("FP32", [-1])},
        inputs={"x": ("FP32", [-1]), "by": ("FP32", [1])},
    )  # fmt: skip
    for values in ([1.0, 2.0], pd.Series([1.0, 2.0]), pd.DataFrame({"x": [1.0, 2.0]})):
        assert wb.infer("scaled", values).tolist() == [2.0, 4.0]
    assert wb.infer("scaled", []).tolist() == []
    assert wb["scaled"]([1.0]).tolist() == [2.0]
    assert wb.infer("scaled", x=[1.0], by=3.0).tolist() == [3.0]
    with pytest.raises(InvalidRequest, match="two:1 takes several inputs: pass a dict of a, b"):
        wb.infer("two", [1.0])


@pytest.mark.parametrize(
    "text",
    ["grün", ["grün"], np.array(["grün"]), pd.Series(["grün"]), pd.DataFrame({"t": ["grün"]})],
)
def test_text_comes_back_as_text(wb: Workbench, text: Any) -> None:
    """One text or several go in; text comes out, or bytes if these are asked for."""
    assert wb.infer("texts", text).tolist() == [["grün"]]
    assert wb.infer("texts", text, raw=True).tolist() == [["grün".encode()]]


def test_bytes_that_are_no_text_stay_bytes(wb: Workbench) -> None:
    """An output that is not UTF-8 throughout is bytes."""
    assert wb.infer("texts", ["a", b"\xff"]).tolist() == [[b"a"], [b"\xff"]]


def test_bf16_of_floats(wb: Workbench) -> None:
    """Floats become the bits of BF16; bits stay as they are."""
    assert wb.infer("bf16", np.array([1.0, -2.0])).tolist() == [0x3F80, 0xC000]
    assert wb.infer("bf16", np.array([7], np.uint16)).tolist() == [7]


def test_several_outputs(wb: Workbench) -> None:
    """Several outputs are a mapping in the model's order, arrays to unpack, or a table."""
    answer = wb.infer("two", a=[1, 2], b=[3, 4])
    assert list(answer) == ["sum", "pair"]
    total, pair = answer.numpy()
    assert (total.tolist(), pair.tolist()) == ([1, 2], [[1, 3], [2, 4]])
    with pytest.raises(KeyError, match="there is no output 'sums'; did you mean 'sum'"):
        answer["sums"]
    with pytest.raises(UsageError, match="there is no output 5; available: sum, pair"):
        answer[5]
    assert answer.get("sums") is None
    table = answer.df()
    assert table.to_dict("list") == {"sum": [1, 2], "pair_0": [1, 2], "pair_1": [3, 4]}


def test_one_output_of_several(wb: Workbench) -> None:
    """A named output comes alone; another name is refused with those that there are."""
    assert wb.infer("two", a=[1], b=[2], output="sum").tolist() == [1]
    with pytest.raises(InvalidRequest, match="has no output 'product'; it has 'sum'"):
        wb.infer("two", a=[1], b=[2], output="product")


def test_awaiting_answers(wb: Workbench) -> None:
    """The same call can be awaited, several at a time."""

    async def both() -> list[Any]:
        return await asyncio.gather(
            wb.ainfer("matrix", ROWS), wb.ainfer("two", a=[1], b=[2], output="sum")
        )

    matrix, total = asyncio.run(both())
    assert (matrix.tolist(), total.tolist()) == (ROWS, [1])


def test_a_cancelled_wait_is_one_line() -> None:
    """In IPython it shows none of the frames between the cell and the model."""

    async def cancelled(wb: Workbench) -> None:
        begun, loop = asyncio.Event(), asyncio.get_running_loop()

        @wb.model
        async def endless(x: float) -> float:
            loop.call_soon_threadsafe(begun.set)
            await asyncio.Event().wait()
            return x

        task = asyncio.create_task(wb.ainfer("endless", 1.0))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        shown = caught.value._render_traceback_()  # type: ignore[attr-defined]
        assert shown == ["CancelledError: ainfer was interrupted"]

    with Workbench(device="cpu") as wb:
        asyncio.run(cancelled(wb))


def test_what_is_waited_for_no_longer_ends(tmp_path: Any) -> None:
    """A deadline and a cancelled task end the run."""
    loop(tmp_path / "endless.onnx")

    async def cancelled(wb: Workbench) -> None:
        task = asyncio.create_task(wb.ainfer("endless", ENDLESS))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises((asyncio.CancelledError, RequestStopped)):
            await task

    with Workbench(tmp_path, device="cpu") as wb:
        with pytest.raises(DeadlineExceeded, match="'endless' did not answer in 50 ms"):
            wb.infer("endless", ENDLESS, timeout_s=0.05)
        with pytest.raises(DeadlineExceeded, match="'endless' did not answer in 50 ms"):
            asyncio.run(wb.ainfer("endless", ENDLESS, timeout_s=0.05))
        asyncio.run(cancelled(wb))
        wb.unload("endless")  # returns once its runs have ended


@pytest.mark.parametrize("timeout_s", ["1s", 0, -1.0, float("nan"), float("inf")])
def test_timeouts_that_are_none(wb: Workbench, timeout_s: Any) -> None:
    """What is no time to wait is refused."""
    with pytest.raises(UsageError, match=r"timeout_s is .*: it must be seconds, above 0"):
        wb.infer("matrix", ROWS, timeout_s=timeout_s)
