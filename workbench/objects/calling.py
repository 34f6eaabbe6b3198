"""Functions as the server calls them: with an array an input, and on a loop if they are async."""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable, Mapping
from contextlib import closing, suppress
from functools import wraps
from itertools import takewhile
from typing import Any, TypeVar

from workbench.objects.hints import Hint, parameters_of, returns_stream, takes_only_args
from workbench.stop import CancellationToken, stop_of_run

Wrapper = TypeVar("Wrapper", bound=Callable[..., Any])

_OURS = "_workbench_wraps"
_END_S = 1.0
_END = object()


class Loop:
    """An event loop of the server's, in a thread of its own, for functions that are ``async``.

    It starts with the first of them that is called, also after a ``close``.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started: (
            tuple[asyncio.AbstractEventLoop, threading.Event, threading.Thread] | None
        ) = None

    def run(
        self, coroutine: Coroutine[Any, Any, Any], stop: CancellationToken | None = None
    ) -> object:
        """The result of *coroutine*, for a thread that is not the loop's; *stop* cancels it.

        Raises as it does, and ``CancelledError``; it has ended then.
        """
        ended = coroutine if stop is None else _cancelled_by(stop, coroutine)
        with self._lock:  # a ``close`` in between would leave the coroutine to nobody
            begun = asyncio.run_coroutine_threadsafe(ended, self._running())
        return begun.result()

    def _running(self) -> asyncio.AbstractEventLoop:
        """The loop, started if need be; for who holds the lock."""
        if self._started is None:
            loop = asyncio.new_event_loop()
            ended = threading.Event()
            name = "workbench-async"
            thread = threading.Thread(target=_run, args=(loop, ended), name=name, daemon=True)
            thread.start()
            self._started = loop, ended, thread
        return self._started[0]

    def close(self) -> None:
        """End the loop and what runs on it, and wait for that, but not for long."""
        with self._lock:
            started, self._started = self._started, None
        if started is not None:
            loop, ended, thread = started
            asyncio.run_coroutine_threadsafe(_end(loop, ended), loop)
            thread.join(_END_S)


async def _cancelled_by(stop: CancellationToken, coroutine: Coroutine[Any, Any, Any]) -> object:
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None

    def cancel() -> None:
        with suppress(RuntimeError):  # the loop was closed just now, and all tasks have ended
            loop.call_soon_threadsafe(task.cancel)

    with stop.calls(cancel):
        return await coroutine


def _run(loop: asyncio.AbstractEventLoop, ended: threading.Event) -> None:
    """Run *loop* until it has *ended*, also after a function stopped it.

    SystemExit and KeyboardInterrupt of a task leave the loop, but asyncio keeps them in the task
    too: who waits for it gets them as the loop runs on.
    """
    with closing(loop):
        while not ended.is_set():
            with suppress(SystemExit, KeyboardInterrupt):
                loop.run_forever()


async def _end(loop: asyncio.AbstractEventLoop, ended: threading.Event) -> None:
    rest = asyncio.all_tasks(loop) - {asyncio.current_task(loop)}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
    ended.set()
    loop.call_soon(loop.stop)


def called_with(
    function: Callable[..., Any],
    inputs: Mapping[str, Hint],
    outputs: Mapping[str, Hint],
    loop: Loop,
) -> Callable[..., Any]:
    """*function*, taking arrays for *inputs* and returning what arrays can be made of.

    Itself, where nothing is to be done for that.
    """
    may_be_async = inspect.iscoroutinefunction(_innermost(function))
    has_loop = is_async(function)
    is_stream = streams_of(function)
    unpacked = {name: hint.unpack for name, hint in inputs.items() if hint.unpack}
    packed = {name: hint.pack for name, hint in outputs.items() if hint.pack}
    by_position = by_position_only(function, inputs)
    if not (has_loop or unpacked or packed or by_position):
        return function

    @wraps(function)
    def call(**arrays: Any) -> object:
        for name, unpack in unpacked.items():
            if name in arrays:
                arrays[name] = unpack(arrays[name])
        first = takewhile(arrays.__contains__, by_position)
        returned = function(*[arrays.pop(name) for name in list(first)], **arrays)
        if may_be_async and inspect.iscoroutine(returned):  # a decorator may have awaited it
            returned = loop.run(returned, stop_of_run())
        if is_stream:
            return _each(returned, loop, tuple(outputs), packed)
        return _packed(returned, tuple(outputs), packed)

    return call


def by_position_only(function: Callable[..., Any], inputs: Iterable[str]) -> tuple[str, ...]:
    """The *inputs* that *function* does not take by name, such as those of numpy's own functions.

    They are all of them where it takes ``*args`` and nothing by name.
    """
    if takes_only_args(function):
        return tuple(inputs)
    parameters = parameters_of(function).values()
    return tuple(each.name for each in parameters if each.kind is each.POSITIONAL_ONLY)


def is_async(function: Callable[..., Any]) -> bool:
    """True if *function* is ``async``, and so runs on a loop."""
    code = _innermost(function)
    return inspect.iscoroutinefunction(code) or inspect.isasyncgenfunction(code)


def streams_of(function: Callable[..., Any]) -> bool:
    """True if *function* is a generator function, ``async`` or not.

    A decorated one is, if its type hints say that it returns what such a function does: a
    decorator may also make a list of it.
    """
    if _is_generator(getattr(function, _OURS, function)):
        return True
    return _is_generator(_innermost(function)) and returns_stream(function)


def _is_generator(function: Callable[..., Any]) -> bool:
    code = _code_of(function)
    return inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code)


def wrapper_of(function: Callable[..., Any]) -> Callable[[Wrapper], Wrapper]:
    """``functools.wraps`` for a wrapper that returns what *function* does, such as a generator."""

    def wrap(wrapper: Wrapper) -> Wrapper:
        wraps(function)(wrapper)
        setattr(wrapper, _OURS, function)
        return wrapper

    return wrap


def _each(
    answers: Any, loop: Loop, names: tuple[str, ...], packed: Mapping[str, Callable[[Any], object]]
) -> Generator[object]:
    """The packed answers of a generator; an ``async`` one runs on *loop*."""
    if isinstance(answers, AsyncGenerator):
        answers = _awaited(answers, loop)
    with closing(answers):
        for answer in answers:
            yield _packed(answer, names, packed)


def _awaited(answers: AsyncGenerator[object], loop: Loop) -> Generator[object]:
    async def step() -> object:
        return await anext(answers, _END)

    try:
        while (answer := loop.run(step(), stop_of_run())) is not _END:
            yield answer
    finally:
        loop.run(_closed(answers))


async def _closed(answers: AsyncGenerator[object]) -> None:
    await answers.aclose()


def _packed(
    returned: object, names: tuple[str, ...], packed: Mapping[str, Callable[[Any], object]]
) -> object:
    if not packed or returned is None:
        return returned
    if isinstance(returned, Mapping):
        return {k: packed[k](v) if k in packed else v for k, v in returned.items()}
    if isinstance(returned, tuple) and len(returned) == len(names):
        pairs = zip(names, returned, strict=True)
        return tuple(packed[name](value) if name in packed else value for name, value in pairs)
    return packed[names[0]](returned) if len(names) == 1 else returned


def place_of(function: Callable[..., Any]) -> str:
    """The place of *function*: ``Cell In[3], line 1``, or a file and a line; "" if unknown."""
    code = getattr(_innermost(function), "__code__", None)
    if code is None:
        return ""
    return f"{_file_named(code.co_filename)}, line {code.co_firstlineno}"


def _file_named(filename: str) -> str:
    """*filename*; of a cell, what IPython calls it."""
    shell = sys.modules.get("IPython")
    shell = shell and shell.get_ipython()
    format_name = getattr(getattr(shell, "compile", None), "format_code_name", None)
    words = format_name(filename) if format_name else None
    return " ".join(words) if words else filename


def _innermost(function: Callable[..., Any]) -> Any:
    """The code of *function* under its decorators."""
    return _code_of(inspect.unwrap(function))


def _code_of(function: Callable[..., Any]) -> Any:
    """The code of *function*: its own, that of a partial's function, or its method ``__call__``."""
    inner = getattr(function, "func", function)  # of a partial
    return inner if inspect.isroutine(inner) else type(inner).__call__
