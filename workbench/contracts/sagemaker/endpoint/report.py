"""What an endpoint did with each TargetModel, as numbers and as plain text."""

from __future__ import annotations

from dataclasses import dataclass, field

from workbench.nbytes import show_nbytes

_COLUMNS = (
    "target model", "state", "hits", "misses", "loads", "unloads", "waited", "downloading",
    "loading", "unloading", "size",
)  # fmt: skip


@dataclass(slots=True)
class TargetStatistics:
    """The counts of one TargetModel; the seconds are sums."""

    hits: int = 0
    misses: int = 0
    loads: int = 0
    unloads: int = 0
    waiting_s: float = 0.0  # ModelLoadingWaitTime
    downloading_s: float = 0.0
    loading_s: float = 0.0
    unloading_s: float = 0.0
    nbytes: int = 0


@dataclass(frozen=True, slots=True)
class EndpointReport:
    """The *states* and the *statistics* of all targets that were asked for, by name."""

    states: dict[str, str] = field(default_factory=dict)
    statistics: dict[str, TargetStatistics] = field(default_factory=dict)

    @property
    def hit_ratio(self) -> float:
        """ModelCacheHit's average: the part of the requests whose model was loaded."""
        hits = sum(each.hits for each in self.statistics.values())
        requests = hits + sum(each.misses for each in self.statistics.values())
        return hits / requests if requests else 0.0

    @property
    def loaded_model_count(self) -> int:
        return sum(state == "loaded" for state in self.states.values())

    def __str__(self) -> str:
        head = (
            f"multi-model endpoint on this server: LoadedModelCount "
            f"{self.loaded_model_count}, ModelCacheHit {self.hit_ratio:.0%}"
        )
        rows = [_COLUMNS, *(self._row(target) for target in sorted(self.statistics))]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
        return "\n".join([head, *lines]) if self.statistics else f"{head}; no requests yet"

    __repr__ = __str__

    def _row(self, target: str) -> tuple[str, ...]:
        told = self.statistics[target]
        counts = (told.hits, told.misses, told.loads, told.unloads)
        spans = (told.waiting_s, told.downloading_s, told.loading_s, told.unloading_s)
        return (
            target,
            self.states.get(target, "-"),
            *map(str, counts),
            *(f"{seconds * 1e3:.1f} ms" if seconds else "-" for seconds in spans),
            show_nbytes(told.nbytes),
        )
