"""Tables as HTML: of models, with why they are not loaded, and of a plan or a benchmark."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, NamedTuple

from workbench.core.status.snapshot import ModelStatus
from workbench.views.columns import TableColumn
from workbench.views.states import state_words
from workbench.views.text import aligned, cut, without_middles

if TYPE_CHECKING:
    from workbench.views.picture import Picture

_POINTED = 1000  # characters that a pointer shows


class Looks(NamedTuple):
    """The attributes of cells and heads, by what is in them."""

    text: str = ""
    number: str = ' class="n"'
    head: str = ""
    number_head: str = ' class="n"'
    in_file: bool = False


CLASSES = Looks()
_LEFT, _RIGHT = (f' style="text-align:{side}"' for side in ("left", "right"))
IN_FILES = Looks(_LEFT, f' class="n"{_RIGHT}', _LEFT, f' class="n"{_RIGHT}', in_file=True)
"""For HTML that is kept in a file, whose reader may drop style sheets and drawings."""


def heads_html(columns: Iterable[TableColumn], looks: Looks = CLASSES) -> str:
    """The row of heads."""
    kinds = (looks.head, looks.number_head)
    cells = []
    for each in columns:
        title = f' title="{each.title}"' if each.title else ""
        cells.append(f"<th{kinds[each.numbers]}{title}>{each.head}</th>")
    return f"<tr>{''.join(cells)}</tr>"


def rows_html(
    columns: Sequence[TableColumn], looks: Looks = CLASSES, marks: Iterable[str] = ()
) -> list[str]:
    """The rows of *columns*, whose cells are HTML; *marks*: the attributes of each row."""
    kinds = [looks.number if column.numbers else looks.text for column in columns]
    rows = list(zip(*(column.cells for column in columns), strict=True))
    return [
        f"<tr{mark}>{''.join(map('<td{}>{}</td>'.format, kinds, row))}</tr>"
        for row, mark in zip(rows, marks or [""] * len(rows), strict=True)
    ]


def table_html(
    rows: Iterable[Sequence[str]], numbers: Container[int] = (), heads: Sequence[str] = ()
) -> str:
    """A table of texts below their *heads*; columns that are *numbers* are on the right.

    Neither the numbers nor, below heads, the names of the rows are wrapped.
    """

    def row(cells: Sequence[str], tag: str) -> str:
        shown = []
        for column, cell in enumerate(cells):
            is_number = column in numbers
            whole = tag == "td" and (is_number or (heads and column == 0))
            side, wrap = "right" if is_number else "left", ";white-space:nowrap" if whole else ""
            style = f"text-align:{side};vertical-align:top;padding:3px 12px 3px 0{wrap}"
            shown.append(f'<{tag} style="{style}">{escape(cell)}</{tag}>')
        return f"<tr>{''.join(shown)}</tr>"

    body = "".join(row(cells, "td") for cells in rows)
    return (
        '<table style="border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums">'
        f"{row(heads, 'th') if heads else ''}{body}</table>"
    )


def answer_text(
    sentence: str, notes: Iterable[str], table: Sequence[Sequence[str]], numbers: Container[int]
) -> str:
    """A *sentence*, notes, and a *table* of heads and rows; its *numbers* are on the right."""
    return "\n".join([f"{sentence}.", *notes, "", *aligned(table, numbers)])


def answer_html(
    sentence: str,
    notes: Iterable[str],
    figure: Picture,
    table: Sequence[Sequence[str]],
    numbers: Container[int],
) -> str:
    """The same for a notebook, with its *figure*."""
    told = "".join(f"<div>{escape(note)}</div>" for note in notes)
    heads, *rows = table
    return (
        f'<div style="font-size:15px"><b>{escape(sentence)}.</b></div>{told}'
        f"{figure._repr_html_()}{table_html(rows, numbers, heads)}"
    )


def reasons_html(models: Iterable[ModelStatus]) -> str:
    """A line for each of *models* that is not loaded for a reason: all words, however many."""
    whys = ((model, state_words(model)) for model in models if model.reason or model.absence)
    return "".join(
        '<div style="font-size:12px;overflow-wrap:anywhere;padding:1px 0">'
        f"<b>{short_words(model.id.name)}</b> {words.word} "
        f'<span style="opacity:.78">{short_words(words.why)}</span></div>'
        for model, words in whys
        if words.why
    )


def short_words(text: str, most: int | None = None) -> str:
    """*text* as HTML, at most *most* characters; a pointer shows more of it.

    Names and paths that are longer than a line lack their middle.
    """
    shown = without_middles(text, 40, 20)
    if most is not None:
        shown = cut(shown, most)
    if shown == text:
        return escape(text)
    return f'<span title="{escape(cut(text, _POINTED))}">{escape(shown)}</span>'
