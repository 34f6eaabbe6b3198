"""An answer of the planner or of a benchmark: a sentence, notes, a figure and a table."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from workbench.views.table import table_html
from workbench.views.text import aligned

if TYPE_CHECKING:
    from workbench.views.picture import Picture

Table = Sequence[Sequence[str]]  # the heads, and the rows below them
Columns = Container[int]


def answer_text(sentence: str, notes: Iterable[str], table: Table, numbers: Columns) -> str:
    """The answer in lines; columns that are *numbers* are aligned on the right."""
    return "\n".join([f"{sentence}.", *notes, "", *aligned(table, numbers)])


def answer_html(
    sentence: str, notes: Iterable[str], figure: Picture, table: Table, numbers: Columns
) -> str:
    """The answer for a notebook, with its *figure*."""
    told = "".join(f"<div>{escape(note)}</div>" for note in notes)
    heads, *rows = table
    return (
        f'<div style="font-size:15px"><b>{escape(sentence)}.</b></div>{told}'
        f"{figure._repr_html_()}{table_html(rows, numbers, heads)}"
    )
