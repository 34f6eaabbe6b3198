"""Recorded requests: their times, models and durations."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from workbench.arguments import path_of
from workbench.errors import UsageError, refused_in_one_line
from workbench.model import ModelId
from workbench.tensor import Array

_SLACK_S = 0.001
_COLUMNS = ("time", "model", "version", "seconds")
_LATEST_S = 253_402_300_799  # the end of the year 9999


class TraceRequest(NamedTuple):
    """A request for *model*, made *at_s*, in seconds of any one clock.

    It took *seconds* (NaN if that is unknown).
    """

    at_s: float
    model: ModelId
    seconds: float = float("nan")


class Trace(tuple[TraceRequest, ...]):  # noqa: SLOT001 - it keeps what was found of it
    """Requests in order of time."""

    @classmethod
    def of(cls, requests: Iterable[TraceRequest]) -> Trace:
        """The trace of *requests*, which may be in any order."""
        return cls(sorted(requests, key=lambda request: request.at_s))

    @classmethod
    def read(cls, path: str | Path) -> Trace:
        """The trace in a file that ``save`` wrote, or in an access log as CSV.

        Its first line names the columns: ``time`` (Unix seconds, or ISO 8601) and ``model``, and
        perhaps ``version`` and ``seconds``, which the request took. Others are passed over, and the
        lines may be in any order. Raises ``UsageError`` that names the line.
        """
        requests = []
        try:
            with path_of("path", path).open(encoding="utf-8-sig", newline="") as file:
                names = [name.strip().lower() for name in next(csv.reader(file), ())]
                if missing := [name for name in ("time", "model") if name not in names]:
                    there = ", ".join(names) or "nothing"
                    raise UsageError(f"{path}: no column named {missing[0]!r} among {there}")
                lines = csv.DictReader(file, names, restval="")
                for line in lines:
                    try:
                        requests.append(_request(line))
                    except ValueError as error:
                        number = lines.line_num + 1
                        raise UsageError(f"{path}, line {number}: {error}") from None
        except FileNotFoundError:
            raise UsageError(f"{path}: there is no such file") from None
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise UsageError(f"{path}: is not a CSV file ({error})") from None
        return cls.of(requests)

    def save(self, path: str | Path) -> None:
        """Write it to *path* as an access log. Raises ``UsageError``."""
        path = path_of("path", path)
        with refused_in_one_line(path), path.open("w", encoding="utf-8", newline="") as file:
            lines = csv.writer(file)
            lines.writerow(_COLUMNS)
            for at_s, model, seconds in self:
                took = "" if math.isnan(seconds) else seconds
                lines.writerow((at_s, model.name, model.version, took))

    def __repr__(self) -> str:
        models = "1 model" if len(self.models) == 1 else f"{len(self.models)} models"
        return f"<Trace: {len(self)} requests for {models}, {self.span_s:.1f} s>"

    @cached_property
    def models(self) -> tuple[ModelId, ...]:
        """The models, each once, in the order of their first requests."""
        return tuple(dict.fromkeys(request.model for request in self))

    @property
    def span_s(self) -> float:
        """The seconds from the first request to the last one."""
        return self[-1].at_s - self[0].at_s if self else 0.0

    @cached_property
    def is_one_by_one(self) -> bool:
        """True if each request came after the answer to the request before, as from a loop.

        False if it is not known how long they took.
        """
        ends_s = [at_s + seconds - _SLACK_S for at_s, _, seconds in self]  # by another clock
        return len(self) > 1 and all(r.at_s >= s for r, s in zip(self[1:], ends_s, strict=False))

    @cached_property
    def later(self) -> Array:
        """True for each request that is not the first one for its model."""
        firsts: dict[ModelId, int] = {}
        for index, request in enumerate(self):
            firsts.setdefault(request.model, index)
        return np.isin(np.arange(len(self)), [*firsts.values()], invert=True)


def _request(line: Mapping[str, str]) -> TraceRequest:
    """The request that *line* tells. Raises ``ValueError`` that says what is wrong with it."""
    if not line["model"]:
        raise ValueError("names no model")
    version = line.get("version") or "1"
    if not version.isdecimal() or not int(version):
        raise ValueError(f"{version!r} is not a version, which is a number from 1")
    took = line.get("seconds") or "nan"
    try:
        took_s = float(took)
    except ValueError:
        raise ValueError(f"{took!r} is not a number of seconds") from None
    return TraceRequest(_seconds(line["time"]), ModelId(line["model"], int(version)), took_s)


def _seconds(text: str) -> float:
    """Unix seconds of a time: Unix seconds, or ISO 8601 (UTC if it says none)."""
    try:
        number = float(text)
    except ValueError:
        try:
            when = datetime.fromisoformat(text)
        except ValueError:
            number = math.nan
        else:
            return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    if not abs(number) <= _LATEST_S:
        raise ValueError(f"{text!r} is not a time, in Unix seconds or ISO 8601")
    return number
