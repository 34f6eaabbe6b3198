"""Events folded by model: the newest first, and with each those of the same model before it."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.events import Entry


def folded(entries: Sequence[Entry], most_each: int | None = None) -> list[list[Entry]]:
    """The events of each model, or of none, newest first; at most *most_each* of each.

    The model of the newest event comes first.
    """
    folds: dict[str, list[Entry]] = {}
    for entry in reversed(entries):
        fold = folds.setdefault(subject(entry), [])
        if most_each is None or len(fold) < most_each:
            fold.append(entry)
    return list(folds.values())


def subject(entry: Entry) -> str:
    """The model that an event is about, or nothing."""
    model = getattr(entry.event, "model", None)
    return str(model.plain) if model else ""
