"""The text of an error or interrupt in IPython: one line, with its place in the cell."""

from __future__ import annotations

import linecache  # where IPython keeps the text of cells
import os
import traceback
from collections.abc import Iterator
from inspect import currentframe
from types import FrameType

_CELL_MAGIC = "get_ipython().run_cell_magic("  # what IPython makes of a cell with %%
_TIMED = ("<timed exec>", "<timed eval>")  # as IPython calls what is below %%time
_OURS = os.path.dirname(__file__) + os.sep  # noqa: PTH120  # the files of this package


def in_a_cell(error: BaseException, *, of_model: bool) -> list[str]:
    """The line of *error*; *of_model*: below the frames of the user's own function."""
    trace = traceback.walk_tb(error.__traceback__)
    place = _place((frame.f_code.co_filename, line) for frame, line in trace)
    line = f"{type(error).__name__}: {error}{place}"
    if not of_model or error.__cause__ is None:
        return [line]
    frames = traceback.extract_tb(error.__cause__.__traceback__)
    theirs = [frame for frame in frames if not frame.filename.startswith(_OURS)]
    return [*traceback.format_list(theirs), line]


def place_in_cell(frame: FrameType | None) -> str:
    """The line of a longer cell that called *frame*: ``" (line 3 of the cell)"``; else ``""``."""
    calls = [(each.f_code.co_filename, line) for each, line in traceback.walk_stack(frame)]
    return _place(reversed(calls))


def show_in_one_line(interrupt: BaseException, called: str) -> None:
    """Have IPython show the *interrupt* of the method *called* without the frames inside it."""
    line = f"{type(interrupt).__name__}: {called} was interrupted{place_in_cell(currentframe())}"
    interrupt._render_traceback_ = lambda: [line]  # type: ignore[attr-defined]


def _place(calls: Iterator[tuple[str, int]]) -> str:
    """The line of the first of the *calls*, pairs of file and line, that is in a cell."""
    line = 0
    for filename, number in calls:
        folder = os.path.basename(os.path.dirname(filename))  # noqa: PTH119, PTH120
        if not filename.startswith("<ipython-input-") and not folder.startswith("ipykernel_"):
            continue
        text = linecache.getlines(filename)
        if len(text) > 1:
            line = number
        elif text and text[0].startswith(_CELL_MAGIC):
            line = next((each + 1 for name, each in calls if name in _TIMED), 0)
        break
    return f" (line {line} of the cell)" if line else ""
