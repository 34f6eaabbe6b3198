"""Status as plain text, for terminals and front ends without HTML."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from pathlib import Path

from workbench.core.status.snapshot import ModelStatus, Snapshot
from workbench.events import Entry
from workbench.model import Signature
from workbench.nbytes import show_nbytes
from workbench.repository import MLFLOW_CURE, is_mlflows
from workbench.views.columns import TableColumn, model_columns, said, signature_columns
from workbench.views.states import state_words
from workbench.views.times import clock_time

_NAMED = 3  # broken models, before a user asks for all


def models_text(models: Sequence[ModelStatus], signatures: Sequence[Signature | None] = ()) -> str:
    """A table of models, and of what they take and give; a star marks a pinned one."""
    if not models:
        return "no models"
    names = (model.id.name + (" *" if model.pinned else "") for model in models)
    states = [state_words(model) for model in models]
    whys = TableColumn("why", tuple(state.why for state in states))
    columns = model_columns(models, names, (state.word for state in states))
    columns += said([*signature_columns(signatures), whys])
    heads = tuple(column.head for column in columns)
    cells = zip(*(column.cells for column in columns), strict=True)
    right = {at for at, column in enumerate(columns) if column.numbers}
    legend = ["* pinned: it is never evicted"] if any(model.pinned for model in models) else []
    return "\n".join([*aligned([heads, *cells], right), *legend])


def models_count(count: int) -> str:
    """``"1 model"``, ``"2 models"``."""
    return "1 model" if count == 1 else f"{count} models"


def repository_faults(models: Sequence[ModelStatus], folders: Sequence[Path], reasons: str) -> str:
    """The cure for *folders* without *models*, or with broken ones; ``""`` if all is well.

    *reasons* is what shows why they are broken.
    """
    if folders and not models:
        return _cure_without_models(folders[0])
    broken = [model.id.name for model in models if model.absence and model.absence.failed]
    if not broken:
        return ""
    named = ", ".join([*map(repr, broken[:_NAMED]), *(["..."] if broken[_NAMED:] else [])])
    are = "is" if len(broken) == 1 else "are"
    return f"{len(broken)} {are} broken ({named}): {reasons} says why"


def _cure_without_models(folder: Path) -> str:
    if any(folder.glob("*.tar.gz")):
        return f"archives for SageMaker are served by: workbench endpoint {folder}"
    if is_mlflows(folder):
        return f"{folder} is a model of MLflow's: {MLFLOW_CURE}"
    return f"put ONNX files into {folder}"


def event_row(entry: Entry) -> tuple[str, str, str]:
    """One event's cells: when, what kind, what."""
    return (clock_time(entry.at_s), entry.event.kind, str(entry.event))


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


def events_text(entries: Sequence[Entry]) -> str:
    """A line an event, folded by model: the newest first, and below it those before, indented."""
    rows = []
    for latest, *before in folded(entries):
        rows.append(event_row(latest))
        rows += [(f"  {at}", kind, what) for at, kind, what in map(event_row, before)]
    return "\n".join(aligned(rows)) if rows else "no events"


def cut(text: str, most: int) -> str:
    """The *text*, or its beginning if it is longer than *most* characters."""
    return text if len(text) <= most else text[: most - 3] + "..."


def without_middles(text: str, first: int, last: int) -> str:
    """*text*, but of each long name and path only its *first* and *last* characters."""
    return re.sub(rf"(\S{{{first}}})\S{{{first},}}(\S{{{last}}})", r"\1...\2", text)


def shortened(name: str, most: int) -> str:
    """A *name* of at most so many characters: both ends, as long names often begin alike."""
    if len(name) <= most:
        return name
    end = most // 2
    return f"{name[: most - end - 1]}…{name[-end:]}"


def addresses(url: str, grpc_urls: Sequence[str]) -> str:
    """The addresses of a server: ``"http://127.0.0.1:8000 and gRPC at 127.0.0.1:8001"``."""
    return f"{url} and gRPC at {', '.join(grpc_urls)}" if grpc_urls else url


def headline(snapshot: Snapshot) -> str:
    """The state of the server in one line."""
    devices = ", ".join(str(each.device) for each in snapshot.devices)
    return (
        f"{snapshot.ready} in memory, "
        f"{show_nbytes(snapshot.held_nbytes)} of {show_nbytes(snapshot.budget_nbytes)}, "
        f"on {devices}"
    )


def device_lines(snapshot: Snapshot) -> list[str]:
    """For each device: why models run there, and the memory that they take."""
    lines = []
    for each in snapshot.devices:
        held, measured = show_nbytes(each.held_nbytes), show_nbytes(each.by_system_nbytes)
        memory = f"models: {held} (measured {measured})"
        if each.base_nbytes is not None:
            memory += f"; rest of the process: {show_nbytes(each.base_nbytes)}"
        if each.deficit_nbytes:
            memory += f"; {show_nbytes(each.deficit_nbytes)} over the budget"
        lines += [f"{each.device}: {each.reason}", f"{each.device}: {memory}"]
    return lines


def status_text(snapshot: Snapshot) -> str:
    """The head line, the devices with their memory, and the models in memory."""
    lines = [headline(snapshot), *device_lines(snapshot)]
    if snapshot.models:
        lines.append(models_text(snapshot.models))
    return "\n".join(lines)


def aligned(rows: Sequence[Sequence[str]], right: Container[int] = ()) -> list[str]:
    """A line a row, with cells of equal width; on the right of it in columns *right*."""
    columns = range(len(rows[0])) if rows else ()
    widths = [max(len(row[column]) for row in rows) for column in columns]
    return [
        "  ".join(
            row[column].rjust(width) if column in right else row[column].ljust(width)
            for column, width in enumerate(widths)
        ).rstrip()
        for row in rows
    ]
