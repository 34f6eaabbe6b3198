"""Traces of other servers: from an access log as CSV, or from scrapes of ``/metrics``."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from workbench.arguments import path_of
from workbench.errors import UsageError
from workbench.model import ModelId
from workbench.planner.trace import Trace, TraceRequest
from workbench.scrape import samples

_NAMES = {
    "time": ("time", "timestamp", "@timestamp", "at", "at_s", "date", "datetime", "eventtime"),
    "model": ("model", "model_name", "modelname", "target_model", "targetmodel"),
    "version": ("version", "model_version", "modelversion"),
    "bytes": ("bytes", "nbytes", "request_bytes", "request_size", "bytes_received"),
    "seconds": (
        "seconds", "duration", "duration_s", "latency_s", "duration_ms", "latency_ms", "latency_us",
        "modellatency",
    ),
}  # fmt: skip
_UNITS = {"_ms": 1e-3, "_us": 1e-6, "modellatency": 1e-6}  # CloudWatch has microseconds
_SUCCESS = "nv_inference_request_success"
_OURS = "workbench_request_duration_seconds_count"
_LAST_MS = 253_402_300_799_999  # of the year 9999


def read_trace(path: str | Path) -> Trace:
    """The trace in a file: one that ``Trace.save`` wrote (``.npz``), or an access log as CSV.

    Raises as ``Trace.load`` and ``read_csv``.
    """
    return Trace.load(path) if Path(path).suffix == ".npz" else read_csv(path)


def read_csv(path: str | Path, columns: Mapping[str, str] | None = None) -> Trace:
    """The trace in an access log: a CSV file with a line of column names, one line a request.

    Between columns is a comma, a semicolon or a tab.
    It has a time (Unix seconds or milliseconds, or ISO 8601) and a model, and may have a version, a
    size in bytes, and a duration: ``seconds``, ``latency_ms``, ``latency_us``. Columns are found by
    their usual names; *columns* names others, as ``{"model": "TargetModel", "time": "when"}``.
    Lines may be in any order. Raises ``UsageError`` that names the line.
    """
    try:
        with path_of("path", path).open(encoding="utf-8-sig", newline="") as file:
            between = max(",;\t", key=file.readline().count)
            file.seek(0)
            lines = csv.DictReader(file, restval="", delimiter=between)
            found = _columns(path, lines.fieldnames or (), columns or {})
            requests = []
            for line in lines:
                try:
                    requests.append(_request(line, found))
                except ValueError as error:
                    raise UsageError(f"{path}, line {lines.line_num}: {error}") from None
    except FileNotFoundError:
        raise UsageError(f"{path}: there is no such file") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path}: is not a CSV file ({error})") from None
    return Trace.of(sorted(requests, key=lambda request: request.at_s))


def _columns(path: str | Path, names: Iterable[str], given: Mapping[str, str]) -> dict[str, str]:
    """The column of each of *_NAMES* that the file has."""
    by_name = {name.strip().lower(): name for name in names}
    for wanted in given:
        if wanted not in _NAMES:
            raise UsageError(f"columns: {wanted!r} is none of {', '.join(_NAMES)}")
    found: dict[str, str] = {}
    for key, usual in _NAMES.items():
        one = [given[key].lower()] if key in given else usual
        hit = next((by_name[name] for name in one if name in by_name), None)
        if hit is not None:
            found[key] = hit
        elif key in given or key in ("time", "model"):
            there = ", ".join(by_name.values()) or "nothing"
            raise UsageError(
                f"{path}: no column for the {key} among {there}: say columns={{'{key}': ...}}"
            )
    return found


def _request(line: Mapping[str, str], found: Mapping[str, str]) -> TraceRequest:
    """The request that *line* tells. Raises ``ValueError`` that says what is wrong with it."""
    told = {key: line[name].strip() for key, name in found.items()}
    if not told["model"]:
        raise ValueError("names no model")
    version = _whole("version", told.get("version") or "1", least=1)
    nbytes = _whole("bytes", told.get("bytes") or "0", least=0)
    took_s = math.nan
    if told.get("seconds"):
        column = found["seconds"].strip().lower()
        unit = next((each for end, each in _UNITS.items() if column.endswith(end)), 1.0)
        took_s = _number("seconds", told["seconds"]) * unit
    return TraceRequest(_seconds(told["time"]), ModelId(told["model"], version), nbytes, took_s)


def _number(column: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text!r} in the column for the {column} is not a number") from None


def _whole(column: str, text: str, least: int) -> int:
    number = _number(column, text)
    if not least <= number < 2**63:
        raise ValueError(f"{text!r} in the column for the {column} is not a number from {least}")
    return int(number)


def _seconds(text: str) -> float:
    """Unix seconds of a time: Unix seconds or milliseconds, or ISO 8601 (UTC if it says none)."""
    try:
        number = float(text)
    except ValueError:
        try:
            when = datetime.fromisoformat(text)
        except ValueError:
            number = math.nan
        else:
            return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    if not abs(number) <= _LAST_MS:
        raise ValueError(f"{text!r} is not a time, in Unix seconds or milliseconds or ISO 8601")
    return number / 1e3 if number > 1e11 else number  # milliseconds since 1973


def read_metrics(scrapes: Iterable[tuple[float, str]]) -> Trace:
    """The trace behind *scrapes* of a server's ``/metrics``: (Unix seconds, text), in order.

    Triton's ``nv_inference_request_success`` counts requests by model, and a counter of our own
    does so for evicted models too. Those of one interval are spread evenly over it. If a counter
    falls, it has started again from 0. Raises ``UsageError`` if no scrape has that counter, or
    times are out of order.
    """
    before_s: float | None = None
    before: dict[ModelId, float] = {}
    requests: list[TraceRequest] = []
    named = False
    for at_s, text in scrapes:
        counts = _counts(text)
        named = named or bool(counts)
        if before_s is not None:
            if at_s <= before_s:
                raise UsageError(f"the scrape of {at_s} is not after the one of {before_s}")
            for model, count in counts.items():
                last = before.get(model, 0.0)
                more = round(count - last if count >= last else count)
                step_s = (at_s - before_s) / max(1, more)
                requests += [TraceRequest(before_s + n * step_s, model) for n in range(more)]
        before_s, before = at_s, counts
    if not named:
        raise UsageError(f"no scrape has {_SUCCESS}: is this /metrics of a server?")
    return Trace.of(sorted(requests, key=lambda request: request.at_s))


def _counts(text: str) -> dict[ModelId, float]:
    """The answered requests of each model.

    Of our own servers by a counter that stays when a model is evicted: Triton's is left out then,
    and is not 0 when the model comes back.
    """
    counts: dict[ModelId, float] = {}
    counter = _OURS if f"\n{_OURS}{{" in text else _SUCCESS
    for name, labels, value in samples(text):
        if name == counter and "model" in labels and 0 <= value < math.inf:
            version = labels.get("version", "1")
            model = ModelId(labels["model"], int(version) if version.isdecimal() else 1)
            counts[model] = counts.get(model, 0.0) + value
    return counts
