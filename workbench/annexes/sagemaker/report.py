"""The report of an endpoint on each TargetModel: as numbers, as text, and as HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from workbench.errors import UsageError
from workbench.nbytes import show_nbytes
from workbench.views.columns import TableColumn
from workbench.views.table import heads_html, rows_html, short_words
from workbench.views.text import aligned, models_count

if TYPE_CHECKING:
    from workbench.api.workbench import Workbench

_COLUMNS = {
    "target model": "",
    "state": "",
    "hits": "ModelCacheHit 1",
    "misses": "ModelCacheHit 0",
    "loads": "",
    "unloads": "",
    "waited": "ModelLoadingWaitTime",
    "unpacking": "ModelDownloadingTime",
    "loading": "ModelLoadingTime",
    "unloading": "ModelUnloadingTime",
    "size": "",
}
"""The heads of the columns, and CloudWatch's names of the same figures."""

_TEXTS = ("target model", "state")
_NONE = "no requests yet"
_ROWS = 20  # in HTML


@dataclass(slots=True)
class TargetStatistics:
    """The counts of one TargetModel; the seconds are sums."""

    hits: int = 0
    misses: int = 0
    loads: int = 0
    unloads: int = 0
    waiting_s: float = 0.0
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
        rows = self._rows(sorted(self.statistics))
        return "\n".join([head, *aligned([[*_COLUMNS], *rows])]) if rows else f"{head}; {_NONE}"

    __repr__ = __str__

    @property
    def html(self) -> str:
        """A line for all targets, and a row for each of those that were asked for most."""
        told = self.statistics
        targets = sorted(told, key=lambda name: (-told[name].hits - told[name].misses, name))
        if not targets:
            return f'<div class="wbd"><b>Multi-model endpoint</b> <small>{_NONE}</small></div>'
        cells = zip(*self._rows(targets[:_ROWS]), strict=True)
        columns = [
            TableColumn(head, tuple(map(short_words, each)), head not in _TEXTS, title)
            for (head, title), each in zip(_COLUMNS.items(), cells, strict=True)
        ]
        line = f"{models_count(self.loaded_model_count)} loaded, {self.hit_ratio:.0%} hits"
        more = len(targets) - _ROWS
        note = f"<small>{more} more, asked for less often, are not shown</small>"
        return (
            f'<div class="wbd"><b>Multi-model endpoint</b> <small>{line}</small>'
            f'<table class="m">{heads_html(columns)}{"".join(rows_html(columns))}</table>'
            f"{note if more > 0 else ''}</div>"
        )

    def _rows(self, targets: Sequence[str]) -> list[tuple[str, ...]]:
        return [self._row(target, self.statistics[target]) for target in targets]

    def _row(self, target: str, told: TargetStatistics) -> tuple[str, ...]:
        counts = (told.hits, told.misses, told.loads, told.unloads)
        spans = (told.waiting_s, told.downloading_s, told.loading_s, told.unloading_s)
        return (
            target,
            self.states.get(target, "-"),
            *map(str, counts),
            *(f"{seconds * 1e3:.1f} ms" if seconds else "-" for seconds in spans),
            show_nbytes(told.nbytes),
        )


def report_of(wb: Workbench) -> EndpointReport:
    """The report of the multi-model endpoint on each TargetModel. Raises ``UsageError``."""
    if wb.settings["artifacts"] is None:
        raise UsageError("there is no multi-model endpoint: start the server with artifacts=FOLDER")
    from workbench.api.workbench import serving_of  # which imports much

    report: EndpointReport = serving_of(wb).core.parts["sagemaker"].report
    return report
