"""Recorded requests: their times, models and durations."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from workbench.arguments import path_of
from workbench.errors import UsageError, refused_in_one_line
from workbench.model import ModelId
from workbench.tensor import Array

_SLACK_S = 0.001
_COLUMNS = ("time", "model", "version", "seconds")


class TraceRequest(NamedTuple):
    """A request for *model*, made *at_s*, in seconds of any one clock.

    It took *seconds* (NaN if that is unknown).
    """

    at_s: float
    model: ModelId
    seconds: float = float("nan")


@dataclass(frozen=True, eq=False)
class Trace:
    """Requests in order of time, as columns of one length.

    *at_s* (float64): when each was made. *which* (int32): its model, as an index into *models*.
    *seconds* (float64): how long it took, NaN if unknown.
    """

    models: tuple[ModelId, ...]
    at_s: Array
    which: Array
    seconds: Array

    @classmethod
    def of(cls, requests: Iterable[TraceRequest]) -> Trace:
        """The trace of *requests*, in their order. Raises ``UsageError`` for times out of order."""
        numbers: dict[ModelId, int] = {}
        rows: list[tuple[float, int, float]] = []
        for index, (at_s, model, seconds) in enumerate(requests):
            if not isinstance(model, ModelId):
                raise UsageError(f"request {index} of the trace is for {model!r}, not a ModelId")
            rows.append((at_s, numbers.setdefault(model, len(numbers)), seconds))
        at, which, seconds_ = zip(*rows, strict=True) if rows else ((), (), ())
        trace = cls(
            tuple(numbers),
            np.array(at, np.float64),
            np.array(which, np.int32),
            np.array(seconds_, np.float64),
        )
        trace.check()
        return trace

    def check(self) -> None:
        """Raise ``UsageError`` for times that are not finite, or not in order."""
        wrong = ~np.isfinite(self.at_s)
        wrong[1:] |= self.at_s[1:] < self.at_s[:-1]
        if wrong.any():
            index = int(wrong.argmax())
            raise UsageError(f"request {index} of the trace is not after the one before it")

    def __len__(self) -> int:
        return len(self.at_s)

    def __iter__(self) -> Iterator[TraceRequest]:
        models = self.models
        columns = (each.tolist() for each in (self.at_s, self.which, self.seconds))
        for at_s, number, seconds in zip(*columns, strict=True):
            yield TraceRequest(at_s, models[number], seconds)

    def __repr__(self) -> str:
        models = "1 model" if len(self.models) == 1 else f"{len(self.models)} models"
        return f"<Trace: {len(self)} requests for {models}, {self.span_s:.1f} s>"

    @property
    def span_s(self) -> float:
        """The seconds from the first request to the last one."""
        return float(self.at_s[-1] - self.at_s[0]) if len(self) else 0.0

    @property
    def is_one_by_one(self) -> bool:
        """Whether each request came after the answer to the one before, as from a loop.

        False if it is not known how long they took.
        """
        ends_s = self.at_s[:-1] + self.seconds[:-1]  # of one clock and another: hence the slack
        return len(self) > 1 and bool((self.at_s[1:] >= ends_s - _SLACK_S).all())

    @property
    def later(self) -> Array:
        """Which requests are not the first one for their model."""
        mask = np.ones(len(self), np.bool_)
        mask[np.unique(self.which, return_index=True)[1]] = False
        return mask

    def run_s(self) -> dict[ModelId, float]:
        """The seconds of a run of each model: the lower quartile, as some requests wait for loads.

        Models of which no seconds are known are left out.
        """
        took: dict[ModelId, float] = {}
        for number, model in enumerate(self.models):
            seconds = self.seconds[self.which == number]
            known = seconds[~np.isnan(seconds)]
            if len(known):
                took[model] = float(np.quantile(known, 0.25))
        return took

    def only(self, models: Iterable[ModelId]) -> Trace:
        """The requests for *models*."""
        wanted = set(models)
        kept = np.array([model in wanted for model in self.models], bool)
        rows = kept[self.which] if len(self) else np.zeros(0, bool)
        numbers = np.cumsum(kept) - 1
        return Trace(
            tuple(model for model in self.models if model in wanted),
            self.at_s[rows],
            numbers[self.which[rows]].astype(np.int32) if len(self) else self.which,
            self.seconds[rows],
        )

    def save(self, path: str | Path) -> None:
        """Write it to *path* as an access log, which ``read_csv`` reads. Raises ``UsageError``."""
        path = path_of("path", path)
        with refused_in_one_line(path), path.open("w", encoding="utf-8", newline="") as file:
            lines = csv.writer(file)
            lines.writerow(_COLUMNS)
            for at_s, model, seconds in self:
                took = "" if math.isnan(seconds) else seconds
                lines.writerow((at_s, model.name, model.version, took))
