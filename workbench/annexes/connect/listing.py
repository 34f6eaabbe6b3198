"""The models and the events that a server elsewhere tells, as values of ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from workbench.core.status.snapshot import ModelStatus
from workbench.events import Entry, ModelEvicted, ModelLoadFailed, ToldEvent
from workbench.model import ModelId, ModelState
from workbench.residency import Absence, AbsenceKind
from workbench.statistics import FailureReason, RequestCounts
from workbench.views.times import clock_time

_ABSENCES = {ModelEvicted.kind: AbsenceKind.EVICTED, ModelLoadFailed.kind: AbsenceKind.FAILED}
_UNLOADED = "unloaded"  # Triton's reason for what is no failure


def index_rows(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of a repository's index. Raises ``TypeError`` and others if *told* has none."""
    if not isinstance(told, list):
        raise TypeError
    return [row | {"name": str(row["name"])} for row in told]


def counted_rows(told: Mapping[str, Any]) -> dict[tuple[str, str], Mapping[str, Any]]:
    """The statistics of models, by name and version."""
    return {(row["name"], row["version"]): row for row in told["model_stats"]}


def absences(entries: Iterable[Entry]) -> dict[ModelId, Absence]:
    """Why models are not in memory, by the last of *entries* of each, which are oldest first."""
    last = {m.plain: entry for entry in entries if (m := getattr(entry.event, "model", None))}
    kinds = {model: _ABSENCES.get(entry.event.kind) for model, entry in last.items()}
    return {m: Absence(kind, "", last[m].at_s) for m, kind in kinds.items() if kind is not None}


def model_status(
    row: Mapping[str, Any],
    counted: Mapping[tuple[str, str], Any],
    absences: Mapping[ModelId, Absence] | None,
) -> ModelStatus:
    """A row of the index, with what the server has *counted* of the model's version.

    *absences*: why models are not in memory; ``None`` for a server that tells only the reason of
    failures.
    """
    version = str(row.get("version") or "")
    model = ModelId(row["name"], int(version) if version.isdecimal() else 0)
    states = {state.value: state for state in ModelState}
    state = states.get(str(row.get("state") or "").upper(), ModelState.UNAVAILABLE)
    figures = counted.get((model.name, version), {})
    nbytes = sum(int(each["byte_size"]) for each in figures.get("memory_usage", ()))
    stats = figures.get("inference_stats", {})
    succeeded, failed = (int(stats.get(key, {}).get("count", 0)) for key in ("success", "fail"))
    requests = RequestCounts(succeeded, {FailureReason.OTHER: failed} if failed else {})
    reason, absence = row.get("reason") or "", None
    if state is ModelState.UNAVAILABLE and reason not in ("", _UNLOADED):
        broken = Absence(AbsenceKind.FAILED, reason)
        # what has no version could not be read
        absence = broken if absences is None or not model.version else absences.get(model)
    return ModelStatus(model, state, nbytes, reason=reason, requests=requests, absence=absence)


def event_entries(told: Mapping[str, Any]) -> list[Entry]:
    """The events that a workbench tells. Raises ``ValueError`` and others if *told* has none."""
    entries = []
    for row in told["events"]:
        number, at_s, name = int(row["number"]), float(row["at_s"]), row.get("model_name")
        clock_time(at_s)  # raises for a number that is no time
        model = None if name is None else ModelId(name, int(row["model_version"]))
        entries.append(Entry(number, at_s, ToldEvent(str(row["kind"]), str(row["text"]), model)))
    return entries
