"""Recorded requests: their times, models, sizes and durations."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from zipfile import BadZipFile

import numpy as np

from workbench.arguments import path_of
from workbench.errors import UsageError, refused_in_one_line
from workbench.model import ModelId
from workbench.tensor import Array

_FORM = 1  # of the file's format
_SLACK_S = 0.001
_NOT_READ = (
    OSError, ValueError, KeyError, TypeError, AttributeError, EOFError, RuntimeError, BadZipFile,
    zlib.error,
)  # fmt: skip


class TraceRequest(NamedTuple):
    """A request for *model*, made *at_s*, in seconds of any one clock.

    Its inputs were of *nbytes*, and it took *seconds* (NaN if that is unknown).
    """

    at_s: float
    model: ModelId
    nbytes: int = 0
    seconds: float = float("nan")


@dataclass(frozen=True, eq=False)
class Trace:
    """Requests in order of time, as columns of one length.

    *at_s* (float64): when each was made. *which* (int32): its model, as an index into *models*.
    *nbytes* (int64): the size of its inputs. *seconds* (float64): how long it took, NaN if unknown.
    """

    models: tuple[ModelId, ...]
    at_s: Array
    which: Array
    nbytes: Array
    seconds: Array

    @classmethod
    def of(cls, requests: Iterable[TraceRequest]) -> Trace:
        """The trace of *requests*, in their order. Raises ``UsageError`` for times out of order."""
        numbers: dict[ModelId, int] = {}
        rows: list[tuple[float, int, int, float]] = []
        for index, (at_s, model, nbytes, seconds) in enumerate(requests):
            if not isinstance(model, ModelId):
                raise UsageError(f"request {index} of the trace is for {model!r}, not a ModelId")
            rows.append((at_s, numbers.setdefault(model, len(numbers)), nbytes, seconds))
        at, which, nbytes_, seconds_ = zip(*rows, strict=True) if rows else ((), (), (), ())
        trace = cls(
            tuple(numbers),
            np.array(at, np.float64),
            np.array(which, np.int32),
            np.array(nbytes_, np.int64),
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
        columns = (each.tolist() for each in (self.at_s, self.which, self.nbytes, self.seconds))
        for at_s, number, nbytes, seconds in zip(*columns, strict=True):
            yield TraceRequest(at_s, models[number], nbytes, seconds)

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

    def named(self, known: Iterable[ModelId]) -> Trace:
        """The same trace, with the version that is *known* for models without one.

        Access logs often have no version; then the only known one of that name is meant.
        """
        known = set(known)
        versions: dict[str, set[int]] = {}
        for model in known:
            versions.setdefault(model.name, set()).add(model.version)

        def one(model: ModelId) -> ModelId:
            others = versions.get(model.name, set())
            if model in known or len(others) != 1:
                return model
            return ModelId(model.name, *others)

        return self.renamed(one)

    def renamed(self, name: Callable[[ModelId], ModelId]) -> Trace:
        """The same requests, each for what *name* returns for its model."""
        numbers: dict[ModelId, int] = {}  # two models of the trace may be one
        new = [numbers.setdefault(name(model), len(numbers)) for model in self.models]
        which = np.array(new, np.int32)[self.which] if new else self.which
        return Trace(tuple(numbers), self.at_s, which, self.nbytes, self.seconds)

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
            self.nbytes[rows],
            self.seconds[rows],
        )

    def save(self, path: str | Path) -> None:
        """Write it to *path*, about 10 bytes a request (an npz file; ``load`` reads it).

        Raises ``FileRefused``.
        """
        names = json.dumps([[model.name, model.version] for model in self.models])
        path = path_of("path", path)
        with refused_in_one_line(path), path.open("wb") as file:
            np.savez_compressed(
                file,
                form=np.array(_FORM),
                models=np.frombuffer(names.encode(), np.uint8),
                at_s=self.at_s,
                which=self.which,
                nbytes=self.nbytes,
                seconds=self.seconds,
            )

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """The trace in the file *path*, from ``save``. Raises ``UsageError`` for another file."""
        try:
            with Path(path).open("rb") as opened, np.load(opened, allow_pickle=False) as file:
                if int(file["form"]) != _FORM:
                    raise UsageError(f"{path}: a later version of workbench wrote this trace")
                names = json.loads(bytes(file["models"]))
                models = tuple(ModelId(str(name), int(version)) for name, version in names)
                columns = [file[name] for name in ("at_s", "which", "nbytes", "seconds")]
        except FileNotFoundError:
            raise UsageError(f"{path}: there is no such file") from None
        except _NOT_READ as error:
            told = getattr(error, "strerror", None)  # of the system, as for a folder
            told = told or "is not a trace that save() wrote; read_csv reads access logs"
            raise UsageError(f"{path}: {told}") from None
        kinds = (np.float64, np.int32, np.int64, np.float64)
        lengths = {column.shape for column in columns}
        right = all(column.dtype == kind for column, kind in zip(columns, kinds, strict=True))
        if len(lengths) != 1 or columns[0].ndim != 1 or not right:
            raise UsageError(f"{path}: its columns do not belong together")
        which = columns[1]
        if len(which) and not 0 <= which.min() <= which.max() < len(models):
            raise UsageError(f"{path}: a request is for a model that it does not name")
        trace = cls(models, *columns)
        trace.check()
        return trace
