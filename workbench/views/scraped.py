"""A server's state from its ``/metrics`` and events, for views of a server in another process."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable

from workbench.core.status.snapshot import DeviceStatus, ModelStatus, Snapshot
from workbench.events import (
    Entry,
    MemoryRefused,
    ModelEvicted,
    ModelExpired,
    ModelLoadCancelled,
    ModelLoadFailed,
    ModelUnloaded,
)
from workbench.memory.device import Device, GpuReading, MemoryReading
from workbench.model import ModelId, ModelState
from workbench.residency import Absence, AbsenceKind, LoadStatistics
from workbench.scrape import Labels, samples
from workbench.statistics import BUCKETS_S, FailureReason, RequestCounts

_Figures = defaultdict[str, list[tuple[Labels, float]]]
_ABSENCES = {
    ModelUnloaded.kind: AbsenceKind.UNLOADED,
    ModelExpired.kind: AbsenceKind.UNLOADED,
    ModelEvicted.kind: AbsenceKind.EVICTED,
    ModelLoadCancelled.kind: AbsenceKind.CANCELLED,
    MemoryRefused.kind: AbsenceKind.REFUSED,
    ModelLoadFailed.kind: AbsenceKind.FAILED,
}


def absences(entries: Iterable[Entry]) -> dict[ModelId, Absence]:
    """How models left memory, or did not come into it, by *entries*, oldest first."""
    found = {}
    for entry in entries:
        kind = _ABSENCES.get(entry.event.kind)
        model: ModelId | None = getattr(entry.event, "model", None)
        if kind is not None and model is not None:
            reason = str(entry.event).removeprefix(f"{model}: ")
            found[model.plain] = Absence(kind, reason, entry.at_s)
    return found


class Scrapes:
    """Makes snapshots of the texts that ``/metrics`` gave, in their order.

    The metrics do not tell why a model is not in memory: the events that ``tell`` is given do.
    """

    def __init__(self) -> None:
        self._ended: dict[ModelId, int] = {}
        self._last_s: dict[ModelId, float] = {}
        self._absences: dict[ModelId, Absence] = {}

    def tell(self, entries: Iterable[Entry]) -> None:
        """Take into account what happened, oldest first."""
        self._absences |= absences(entries)

    def snapshot(self, text: str, at_s: float) -> Snapshot:
        """The server as *text* says it was *at_s* (Unix seconds); figures it lacks are 0."""
        figures: _Figures = defaultdict(list)
        for name, labels, value in samples(text):
            figures[name].append((labels, value))
        models = _by_model(figures)
        statuses = tuple(self._model(model, models[model], at_s) for model in sorted(models))
        return Snapshot(at_s, _devices(figures), statuses)

    def _model(self, model: ModelId, figures: _Figures, at_s: float) -> ModelStatus:
        def count(name: str) -> int:
            return int(sum(value for _, value in figures[name]))

        succeeded = count("workbench_request_duration_seconds_count")
        failed = count("nv_inference_request_failure")
        ended = succeeded + failed
        if ended > self._ended.setdefault(model, ended):  # those before the first look are older
            self._last_s[model] = at_s
        self._ended[model] = ended
        state = next(
            (labels["state"] for labels, value in figures["workbench_model_state"] if value),
            ModelState.UNAVAILABLE.value,
        )
        requests = RequestCounts(
            succeeded,
            {FailureReason.OTHER: failed},
            last_at_s=self._last_s.get(model, 0.0),
            buckets=_buckets(figures),
        )
        known = self._absences.get(model)
        absence = known if state == ModelState.UNAVAILABLE.value else None
        return ModelStatus(
            model,
            ModelState(state),
            count("workbench_model_memory_bytes"),
            count("workbench_model_leases"),
            reason=absence.reason if absence is not None and absence.failed else "",
            absence=absence,
            requests=requests,
            pending=count("nv_inference_pending_request_count"),
            load_statistics=LoadStatistics(
                loads=count("workbench_model_loads_total"),
                evictions=count("workbench_model_evictions_total"),
            ),
        )


def _by_model(figures: _Figures) -> dict[ModelId, _Figures]:
    models: dict[ModelId, _Figures] = {}
    for name, figure in figures.items():
        for labels, value in figure:
            version = labels.get("version", "")
            if "model" in labels and version.isdecimal():
                model = ModelId(labels["model"], int(version))
                mine = models.setdefault(model, defaultdict(list))
                mine[name].append((labels, value))
    return models


def _buckets(figures: _Figures) -> tuple[int, ...]:
    """The histogram in our finer buckets: each count is in the highest one of its bucket."""
    counts, below = [0] * (len(BUCKETS_S) + 1), 0
    for labels, value in figures["workbench_request_duration_seconds_bucket"]:
        bound_s = float(labels["le"])  # "+Inf" is the last one
        counts[bisect_left(BUCKETS_S, bound_s * (1 - 1e-9))] += int(value) - below
        below = int(value)
    return tuple(counts)


def _devices(figures: _Figures) -> tuple[DeviceStatus, ...]:
    def figure(name: str, device: str) -> int:
        found = (v for labels, v in figures[name] if labels.get("device") == device)
        return int(next(found, 0))

    uuids = (labels["gpu_uuid"] for labels, _ in figures["nv_gpu_memory_total_bytes"])
    totals = (labels["device"] for labels, _ in figures["workbench_memory_system_total_bytes"])
    gpus = dict(zip((name for name in totals if name != "cpu"), uuids, strict=False))
    rows = []
    for labels, budget_nbytes in figures["workbench_memory_budget_bytes"]:
        name = labels["device"]
        kind, _, index = name.partition(":")
        total_nbytes = figure("workbench_memory_system_total_bytes", name)
        rows.append(
            DeviceStatus(
                Device(kind, int(index or 0), name, total_nbytes),
                "",
                int(budget_nbytes),
                claimed_nbytes=figure("workbench_memory_claimed_bytes", name),
                held_nbytes=figure("workbench_memory_held_bytes", name),
                base_nbytes=figure("workbench_memory_base_bytes", name),
                system=MemoryReading(
                    total_nbytes, figure("workbench_memory_system_used_bytes", name)
                ),
                gpu=_gpu(figures, gpus.get(name, "")),
            )
        )
    return tuple(rows)


def _gpu(figures: _Figures, uuid: str) -> GpuReading:
    """The driver's figures of the GPU *uuid*; none if there is no such GPU."""

    def figure(name: str) -> float | None:
        found = (value for labels, value in figures[name] if labels["gpu_uuid"] == uuid)
        return next(found, None)

    return GpuReading(
        utilization=figure("nv_gpu_utilization"),
        power_watts=figure("nv_gpu_power_usage"),
        power_limit_watts=figure("nv_gpu_power_limit"),
        temperature_celsius=figure("workbench_gpu_temperature_celsius"),
    )
