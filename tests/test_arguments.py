"""Calls of public methods with wrong arguments."""

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workbench.arguments import explained, explains_arguments, path_of
from workbench.errors import UsageError


class Base:
    def __init__(self, size: int = 1) -> None:
        self.size = size

    def measure(self, model: str, /, *, clients: int = 1, p99: str) -> str:
        """Doc."""
        return f"{model} {clients} {p99}"

    async def wait(self, model: str) -> str:
        return model

    def plain(self) -> None:
        """No arguments."""

    def fails(self, model: str) -> None:
        raise TypeError(model)


@explains_arguments
class Public(Base):
    pass


@pytest.mark.parametrize(
    ("args", "kwargs", "told"),
    [
        (("m",), {"client": 2, "p99": "1s"}, "no argument 'client'; did you mean 'clients'?"),
        (("m",), {"x": 2, "p99": "1s"}, "unexpected keyword argument 'x'; it takes (model, /, *, "),
        (("m",), {}, "argument: 'p99'; it takes (model, /, *, clients=1, p99)"),
        (("m", "n"), {"p99": "1s"}, "measure: too many positional arguments; it takes (model, "),
    ],
)
def test_a_wrong_argument_is_one_line(args: Any, kwargs: Any, told: str) -> None:
    """A call that does not fit is one line: what is wrong, and what was meant or what it takes."""
    with pytest.raises(UsageError) as caught:
        Public().measure(*args, **kwargs)
    assert str(caught.value).startswith("measure: ")
    assert told in str(caught.value)
    (shown,) = caught.value._render_traceback_()
    assert shown == f"UsageError: {caught.value}"


def test_the_constructor() -> None:
    """Wrong arguments of the constructor are told by the name of the class."""
    with pytest.raises(UsageError, match=r"^Public: .* it takes \(size=1\)$"):
        Public(1, 2)  # type: ignore[call-arg]


def test_all_else_stays() -> None:
    """What is right is passed on; a TypeError from inside stays, and so does the base class."""
    assert Public(2).measure("m", p99="1s") == "m 1 1s"
    with pytest.raises(TypeError):
        Public().fails("inside")
    with pytest.raises(TypeError):
        Base().measure()  # type: ignore[call-arg]
    assert inspect.signature(Public.measure) == inspect.signature(Base.measure)
    assert Public.measure.__doc__ == "Doc."
    assert inspect.iscoroutinefunction(Public.wait)
    assert Public.plain is Base.plain


def test_a_function() -> None:
    """A function is told by its own name."""

    @explained
    def connect(url: str, *, token: str = "") -> str:
        return url + token

    assert connect("x", token="y") == "xy"
    with pytest.raises(UsageError, match=r"connect: .*'tokn'; did you mean 'token'\?"):
        connect("x", tokn="y")  # type: ignore[call-arg]


def test_paths() -> None:
    """A path is a text or a path, ``~`` is the home; all else is told with the argument's name."""
    assert path_of("to", "models") == Path("models")
    assert path_of("to", "~") == Path.home()
    for wrong in (5, None, "", b"x"):
        with pytest.raises(UsageError, match=r"^to: .* is not a path, such as 'models'$"):
            path_of("to", wrong)
    with pytest.raises(UsageError, match=r"^to: ndarray is not a path, such as 'models'$"):
        path_of("to", np.zeros((2, 2)))


def test_an_interrupt_is_one_line() -> None:
    """In IPython an interrupted call shows one line, and none of the frames inside it."""

    def wait(model: str) -> None:
        raise KeyboardInterrupt(model)

    with pytest.raises(KeyboardInterrupt) as caught:
        explained(wait)("m")
    shown = caught.value._render_traceback_()  # type: ignore[attr-defined]
    assert shown == ["KeyboardInterrupt: wait was interrupted"]
