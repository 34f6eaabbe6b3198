"""Public methods: wrong arguments and interrupts are one line, as other errors are."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import (
    Signature,
    getattr_static,
    iscoroutinefunction,
    isfunction,
    signature,
)
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar, cast

from workbench.errors import UsageError
from workbench.removed import no_more
from workbench.spelling import meant
from workbench.tracebacks import show_in_one_line

Class = TypeVar("Class", bound=type)
Function = TypeVar("Function", bound=Callable[..., Any])


def explains_arguments(cls: Class) -> Class:
    """Let the public methods of *cls* that take arguments raise ``UsageError`` for wrong ones.

    Inherited methods are wrapped for *cls* alone. ``async`` methods stay as they are.
    """
    for name in dir(cls):
        method = getattr_static(cls, name)
        is_public = name == "__init__" or not name.startswith("_")
        if not is_public or not isfunction(method) or iscoroutinefunction(method):
            continue
        if len(signature(method).parameters) > 1:
            setattr(cls, name, explained(method, cls.__name__ if name == "__init__" else name))
    return cls


def explained(function: Function, called: str = "") -> Function:
    """*function*; a call that does not fit its parameters raises ``UsageError``.

    IPython shows an interrupt of a call as one line. *called*: its name in the message.
    """

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            trace = error.__traceback__
            if trace is not None and trace.tb_next is not None:
                raise  # by the body of the function
        except KeyboardInterrupt as interrupt:
            show_in_one_line(interrupt, called or function.__name__)
            raise
        raise UsageError(_mistake(function, called or function.__name__, args, kwargs))

    return cast("Function", call)


def check_switches(**given: object) -> None:
    """Raises ``UsageError`` for an argument that is a text, since ``"no"`` would be true."""
    for name, value in given.items():
        if isinstance(value, str):
            raise UsageError(f"{name}= is True or False, not {value!r}")


def path_of(name: str, value: object) -> Path:
    """The path *value* of the argument *name*, from a person. Raises ``UsageError``."""
    if not isinstance(value, str | PathLike) or not str(value):
        shown = repr(value)
        shown = type(value).__name__ if "\n" in shown else shown  # such as a table
        raise UsageError(f"{name}: {shown} is not a path, such as 'models'")
    return Path(value).expanduser()


def _mistake(
    function: Callable[..., Any], called: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> str:
    """The mistake in a call of *function*, with the likely intention or the arguments it takes."""
    taken = signature(function)
    named = [p.replace(annotation=p.empty) for p in taken.parameters.values() if p.name != "self"]
    for word in kwargs:
        if word in taken.parameters:
            continue
        if gone := no_more(f"argument {word!r}", f"{called}({word}=)"):
            return f"{called}: {gone}"
        if cure := meant(word, [each.name for each in named]):
            return f"{called}: there is no argument {word!r}{cure}"
    told = "wrong arguments"
    try:
        taken.bind(*args, **kwargs)
    except TypeError as error:
        told = str(error)
    return f"{called}: {told}; it takes {Signature(named)}"
