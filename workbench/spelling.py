"""Suggestions for words that do not exist: "did you mean ...?"."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path


def meant(word: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """``"; did you mean 'budget'?"`` of the one of *known* that is most like *word*; or nothing.

    *cutoff*: how alike they have to be, from 0.0 to 1.0.
    """
    near = get_close_matches(word, list(known), 1, cutoff)
    return f"; did you mean {near[0]!r}?" if near else ""


def available(names: Sequence[str]) -> str:
    """``"available: a, b"``, with the first ten of *names* of models."""
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return f"available: {', '.join(names[:10])}{more}" if names else "the repository is empty"


def no_folder(path: Path) -> str:
    """The message if *path* is no folder, with a similar folder; else ``""``."""
    if path.is_dir():
        return ""
    return "is a file, not a folder" if path.exists() else f"does not exist{meant_folder(path)}"


def meant_folder(path: Path) -> str:
    """As ``meant``, of a folder that does not exist and those beside it."""
    try:
        beside = [each.name for each in path.parent.iterdir() if each.is_dir()]
    except OSError:  # the folder above does not exist either, or may not be read
        return ""
    near = get_close_matches(path.name, beside, 1)
    return f"; did you mean {str(path.with_name(near[0]))!r}?" if near else ""
