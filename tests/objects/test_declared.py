"""Functions as models, in every way that they can be declared."""

import asyncio
import http.client
import inspect
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import wraps
from typing import Any

import httpx
import numpy as np
import pytest
from inside import delay_deadline

from workbench import Float32, Int32, Text, Workbench
from workbench.errors import DeadlineExceeded, ModelNotFound, RunFailed
from workbench.events import ModelUnloaded

X = {"x": ("FP32", [-1])}


def line_of(function: Any) -> int:
    return inspect.getsourcelines(function)[1]


def test_bare(wb: Workbench) -> None:
    """A function with type hints needs no more than the decorator, and stays what it is."""

    @wb.model
    def double(x: Float32["batch", 2]) -> Float32["batch", 2]:
        return x * 2

    assert np.array_equal(wb.infer("double", [[1.0, 2.0]]), [[2, 4]])
    assert np.array_equal(double(np.ones(2)), [2, 2])


def repeat(text: str, times: int = 2) -> str:
    return text * times


def lengths(texts: list[str]) -> list[int]:
    return [len(text) for text in texts]


def shout(text: str, times: int | None = None) -> str:
    return text.upper() * (times or 1)


def upper(text: Text["n"]) -> Text["n"]:
    return np.array([each.decode().upper() for each in text], object)


ROW = ("FP32", [-1])
BY_ORDER = {"inputs": {"b": ROW, "a": ROW}, "outputs": {"y": ROW}}
SUMS = {"inputs": {"x": (np.float32, ["batch", 2])}, "outputs": {"y": (np.float64, [None])}}


@pytest.mark.parametrize(
    ("function", "declared", "given", "answer"),
    [
        (repeat, {}, {"text": ["ab"]}, ["abab"]),
        (repeat, {}, {"text": ["ab"], "times": [3]}, ["ababab"]),
        (lengths, {}, ["a", "abc"], [1, 3]),
        (shout, {}, {"text": "a"}, ["A"]),
        (shout, {}, {"text": "b", "times": 2}, ["BB"]),
        (upper, {}, ["é"], ["É"]),
        (lambda x: x.sum(1), SUMS, [[1.0, 2.0]], [3.0]),
        (lambda *args: args[0] - args[1], BY_ORDER, {"a": [1.0], "b": [5.0]}, [4.0]),
        (np.vectorize(lambda b, a: b - a), BY_ORDER, {"a": [1.0], "b": [5.0]}, [4.0]),
    ],
)
def test_values_come_and_go_as_declared(
    wb: Workbench, function: Any, declared: dict[str, Any], given: Any, answer: list[Any]
) -> None:
    """Python's values by hints of Python, bytes by Text, numpy's types and names for sizes too.

    A default may be left out; inputs of ``*args`` alone come in the order of *inputs*.
    """
    wb.register(function, name="f", **declared)
    assert wb.infer("f", given).tolist() == answer


def test_outputs_are_cast(wb: Workbench) -> None:
    """float64 becomes the declared FP32, whole numbers those that hold them."""

    @wb.model
    def cast(x: Float32["n"]) -> tuple[Float32["n"], Int32["n"]]:
        return x.astype(np.float64) / 3, np.arange(len(x))

    answer = wb.infer("cast", [1.0, 2.0])
    assert answer["output_0"].dtype == np.float32
    assert answer["output_0"].tolist() == np.float32([1 / 3, 2 / 3]).tolist()
    assert answer["output_1"].dtype == np.int32


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (np.array([1.5]), "FP64 is not INT32"),
        (np.array([2**40]), "1099511627776 is out of the range of INT32"),
        (np.array(["a"]), "text (BYTES) is not INT32"),
        (np.zeros((1, 1), np.int32), "has shape [1, 1], it declares [-1]"),
        (None, "returned nothing; it declares y; end the function with return ..."),
    ],
)
def test_an_output_that_does_not_fit_names_the_line(wb: Workbench, value: Any, told: str) -> None:
    """An output that cannot be what was declared is an error with the function's file and line."""

    def give(x: Any) -> Any:
        return value

    wb.register(give, inputs=X, outputs={"y": ("INT32", [-1])})
    with pytest.raises(RunFailed) as failed:
        wb.infer("give", [1.0])
    assert told in str(failed.value)
    assert str(failed.value).endswith(f", in {__file__}, line {line_of(give)}")
    assert failed.value._render_traceback_() == [f"RunFailed: {failed.value}"]


def test_an_error_shows_the_functions_frames_only(wb: Workbench) -> None:
    """What a cell shows of an exception in a function begins in the function."""

    @wb.model
    def fails(text: str) -> str:
        raise ValueError(text)

    with pytest.raises(RunFailed) as failed:
        wb.infer("fails", ["on purpose"])
    shown = "".join(failed.value._render_traceback_())
    assert shown.count("File ") == 1
    assert __file__ in shown


def test_async_functions(wb: Workbench) -> None:
    """Async functions run at the same time, on one loop in one thread of the server's."""
    both = asyncio.Barrier(2)
    threads = []

    @wb.model
    async def meet(x: Float32["n"]) -> Float32["n"]:
        threads.append(threading.current_thread())
        await both.wait()
        return x + 1

    with ThreadPoolExecutor(2) as callers:
        answers = [callers.submit(wb.infer, "meet", [1.0]) for _ in range(2)]
    assert [answer.result().tolist() for answer in answers] == [[2.0], [2.0]]
    assert {thread.name for thread in threads} == {"workbench-async"}
    assert len(set(threads)) == 1


def exits() -> None:
    raise SystemExit(3)


def interrupts() -> None:
    raise KeyboardInterrupt


def stops_the_loop() -> None:
    asyncio.get_running_loop().stop()


@pytest.mark.parametrize("misbehaves", [exits, interrupts, stops_the_loop])
def test_no_async_function_ends_the_loop(misbehaves: Callable[[], None]) -> None:
    """A function that exits, is interrupted or stops its loop is answered; so are the others."""

    async def harm(x: Float32["n"]) -> Float32["n"]:
        misbehaves()
        return x

    async def double(x: Float32["n"]) -> Float32["n"]:
        return x * 2

    answers: list[object] = []

    def ask(wb: Workbench) -> None:
        try:
            answers.append(wb.infer("harm", [1.0]).tolist())
        except RunFailed as error:
            answers.append(str(error))
        answers.append(wb.infer("double", [1.0]).tolist())

    with Workbench(device="cpu") as wb:
        wb.register(harm)
        wb.register(double)
        asks = threading.Thread(target=ask, args=(wb,), daemon=True)
        asks.start()
        asks.join(30)  # only a hang takes that long
        assert len(answers) == 2
        harmed = {exits: "raised SystemExit: 3", interrupts: "raised KeyboardInterrupt"}
        assert harmed.get(misbehaves, "[1.0]") in str(answers[0])
        assert answers[1] == [2.0]


def test_async_functions_may_ask_for_models() -> None:
    """An async function asks for another model in a thread, as a plain one does; a stop ends it."""
    with Workbench(device="cpu") as wb:

        @wb.model
        def inner(x: Float32["n"]) -> Float32["n"]:
            return x * 2

        @wb.model
        async def outer(x: Float32["n"]) -> Float32["n"]:
            return await asyncio.to_thread(wb.infer, "inner", x)

        assert wb.infer("outer", [2.0]).tolist() == [4.0]
        wb.restart()
        assert wb.infer("outer", [3.0]).tolist() == [6.0]
        loop = wb._python_models._loop._running()
    assert loop.is_closed()


def test_decorators_decide_what_a_function_returns(wb: Workbench) -> None:
    """A decorator may await an async function or list a generator, or leave both to the server."""

    async def later(x: Float32["n"]) -> Float32["n"]:
        return x + 1

    def parts(x: Float32["n"]) -> Iterator[float]:
        yield from x.tolist()

    def decorated(inner: Any, finish: Callable[[Any], object]) -> Any:
        @wraps(inner)
        def outer(*args: Any, **inputs: Any) -> object:
            return finish(inner(*args, **inputs))

        return outer

    for name, finish in (("awaited", asyncio.run), ("left", lambda coroutine: coroutine)):
        wb.register(decorated(later, finish), name=name)
        assert wb.infer(name, [1.0]).tolist() == [2.0]
    wb.register(decorated(parts, lambda generator: generator), name="streamed")
    assert [answer.tolist() for answer in wb.stream("streamed", [1.0, 2.0])] == [[1.0], [2.0]]

    def each(x: Float32["n"]) -> Any:
        yield from x.tolist()

    wb.serve(decorated(each, list), "listed", example=np.ones(1, np.float32))
    assert wb.infer("listed", [1.0, 2.0]).tolist() == [1.0, 2.0]


@pytest.mark.parametrize("is_async", [False, True])
def test_generators(wb: Workbench, is_async: bool) -> None:
    """A generator's answers come one by one through generate_stream, an async one's too."""

    def spell(word: str) -> Iterator[str]:
        yield from word

    async def spell_later(word: str) -> AsyncIterator[str]:
        for letter in word:
            yield letter

    name = wb.serve(spell_later if is_async else spell).name
    url = f"{wb.url}/v2/models/{name}/generate_stream"
    text = httpx.post(url, json={"word": "ab"}, timeout=60).text
    parts = [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line]
    assert [part["output"] for part in parts] == ["a", "b"]


def test_a_second_definition(wb: Workbench) -> None:
    """A second definition of a name takes the place of the first, and the events say so."""
    for number in (1.0, 2.0):
        wb.register(
            lambda x, n=number: x * n, name="twice", inputs=X | {"n": ("FP32", [1])}, outputs=X
        )
        assert wb.infer("twice", {"x": [1.0]}).tolist() == [number]
    reasons = [e.event.reason for e in wb.events if isinstance(e.event, ModelUnloaded)]
    assert reasons[-1] == "replaced by a new definition"


def test_unregister(wb: Workbench, sample_models: Any) -> None:
    """What is unregistered is gone at once; a model of a folder is not unregistered."""
    wb.register(lambda x: x, name="gone", inputs=X, outputs=X)
    wb.unregister("gone")
    assert "gone" not in wb.names
    for name in ("gone", "never"):
        with pytest.raises(ModelNotFound, match=name):
            wb.unregister(name)
    stopped = Workbench(sample_models)
    stopped.register(lambda x: x, name="gone", inputs=X, outputs=X)
    stopped.unregister("gone")
    assert "gone" not in stopped.names
    with pytest.raises(ModelNotFound, match="'digits' is a model of the repository: unload it"):
        stopped.unregister("digits")


class Forever:
    """The model *forever*, an ``async`` function, or generator, that only a cancellation ends."""

    def __init__(self, wb: Workbench, *, streams: bool = False) -> None:
        self.begun, self.ended = threading.Event(), threading.Event()

        async def wait() -> None:
            self.begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.ended.set()

        async def once(x: Float32["n"]) -> Float32["n"]:
            await wait()
            return x

        async def several(x: Float32["n"]) -> AsyncIterator[Float32["n"]]:
            yield x
            await wait()

        wb.register(several if streams else once, name="forever")


def cancels_its_task(wb: Workbench, forever: Forever) -> None:
    async def ask() -> None:
        task = asyncio.create_task(wb.ainfer("forever", [1.0]))
        await asyncio.to_thread(forever.begun.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(ask())


def waits_too_long(wb: Workbench, forever: Forever) -> None:
    with pytest.MonkeyPatch.context() as patch:
        delay_deadline(patch, forever.begun.is_set)
        with pytest.raises(DeadlineExceeded):
            wb.infer("forever", [1.0], timeout_s=0.01)


def hangs_up(wb: Workbench, forever: Forever) -> None:
    body = {"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1.0]}]}
    with closing(http.client.HTTPConnection(wb.url.removeprefix("http://"))) as client:
        client.request("POST", "/v2/models/forever/infer", json.dumps(body))
        assert forever.begun.wait(30)


def leaves_a_stream(wb: Workbench, forever: Forever) -> None:
    with closing(http.client.HTTPConnection(wb.url.removeprefix("http://"))) as client:
        path = "/v2/models/forever/generate_stream"
        client.request("POST", path, json.dumps({"x": [1.0]}))
        with client.getresponse() as response:
            assert response.readline().startswith(b"data: ")
            assert forever.begun.wait(30)


@pytest.mark.usefixtures("no_grace")
@pytest.mark.parametrize("who", [cancels_its_task, waits_too_long, hangs_up, leaves_a_stream])
def test_who_leaves_ends_an_async_function(
    wb: Workbench, who: Callable[[Workbench, Forever], None]
) -> None:
    """What nobody waits for any more is cancelled where it waits, and its model is free again."""
    forever = Forever(wb, streams=who is leaves_a_stream)
    who(wb, forever)
    assert forever.ended.wait(30)
    wb.unload("forever")
    assert "forever:1 raised" not in wb.logs


@pytest.mark.parametrize("streams", [False, True])
def test_the_end_of_a_function_ends_what_it_asked(
    wb: Workbench, monkeypatch: pytest.MonkeyPatch, streams: bool
) -> None:
    """A function that waits for another one raises where it waits, once nobody waits for it."""
    forever = Forever(wb, streams=streams)

    def outer(x: Any) -> Any:
        if not streams:
            return wb.infer("forever", x)
        *_, last = wb.stream("forever", x)
        return last

    wb.register(outer, name="outer", inputs=X, outputs={"y": ("FP32", [-1])})
    delay_deadline(monkeypatch, forever.begun.is_set)
    with pytest.raises(DeadlineExceeded):
        wb.infer("outer", [1.0], timeout_s=0.01)
    assert forever.ended.wait(30)
    wb.unload("outer")
    assert "outer:1 raised" not in wb.logs
