"""Progress in the output of a notebook's cell."""

from __future__ import annotations

import time
from collections.abc import Callable
from html import escape
from typing import Any, Self

_LONG_S = 0.5  # after which progress is shown


class Progress:
    """A bar in the output of a cell, once something takes long; nothing without a notebook."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._begun_s = clock()
        self._handle: Any = None

    def show(self, share: float, words: str = "") -> None:
        """Show that *share*, 0.0 to 1.0, is done, and what is done now in *words*."""
        if self._clock() - self._begun_s < _LONG_S or not _in_notebook():
            return
        from IPython import display

        untyped: Any = display
        bar = untyped.HTML(f'<progress max="1" value="{share:.3f}"></progress> {escape(words)}')
        if self._handle is None:
            self._handle = untyped.display(bar, display_id=True)
        else:
            self._handle.update(bar)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Take the bar away."""
        if self._handle is not None:
            self._handle.update({"text/plain": "", "text/html": ""}, raw=True)


def _in_notebook() -> bool:
    from IPython.core.getipython import get_ipython

    return getattr(get_ipython(), "kernel", None) is not None
