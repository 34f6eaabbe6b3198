"""Progress in the output of a notebook's cell."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from html import escape
from typing import Any, Self

from workbench.core import ServerCore
from workbench.model import ModelState

_LONG_S = 0.5  # after which progress is shown


class Progress:
    """A bar in the output of a cell, once something takes long; nothing without a notebook."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._begun_s = clock()
        self._handle: Any = None

    def show(self, share: float | None, words: str = "") -> None:
        """Show that *share*, 0.0 to 1.0, is done, and what is done now in *words*.

        ``None``: nobody knows how much.
        """
        if self._clock() - self._begun_s < _LONG_S or not in_notebook():
            return
        from IPython import display

        untyped: Any = display
        value = "" if share is None else f' max="1" value="{share:.3f}"'
        done = "" if share is None else f"{share:.0%} "
        bar = {
            "text/html": f"<progress{value}></progress> {escape(words)}",
            "text/plain": f"{done}{words}".rstrip(),
        }
        if self._handle is None:
            self._handle = untyped.display(bar, display_id=True, raw=True)
        else:
            self._handle.update(bar, raw=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._handle is not None:
            self._handle.update({"text/plain": "", "text/html": ""}, raw=True)


def show_load(progress: Progress, core: ServerCore, name: str) -> None:
    """Show what the load of the model *name* does now."""
    models = [model for model in core.status.snapshot().models if model.id.name == name]
    words = next((model.reason for model in models if model.state is ModelState.LOADING), "")
    progress.show(None, f"loading {name}{words and ': '}{words}")


def in_notebook() -> bool:
    """True if this process is a kernel of Jupyter."""
    if "IPython" not in sys.modules:
        return False
    from IPython.core.getipython import get_ipython

    return getattr(get_ipython(), "kernel", None) is not None
