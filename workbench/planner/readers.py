"""Traces from files: a saved one, or the access log of another server."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from workbench.arguments import path_of
from workbench.errors import UsageError
from workbench.model import ModelId
from workbench.planner.trace import Trace, TraceRequest

_LATEST_S = 253_402_300_799  # the end of the year 9999


def read_csv(path: str | Path) -> Trace:
    """The trace in a file from ``Trace.save``, or in an access log as CSV.

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
                    raise UsageError(f"{path}, line {lines.line_num + 1}: {error}") from None
    except FileNotFoundError:
        raise UsageError(f"{path}: there is no such file") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path}: is not a CSV file ({error})") from None
    return Trace.of(sorted(requests, key=lambda request: request.at_s))


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
    model = ModelId(line["model"], int(version))
    return TraceRequest(_seconds(line["time"]), model, took_s)


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
