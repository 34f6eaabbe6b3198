"""What a server of the V2 protocol replies, as values of ours."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx

from workbench import errors
from workbench.codecs import v2_binary, v2_json
from workbench.core.status.snapshot import ModelStatus
from workbench.errors import InvalidRequest, NotSupported, WorkbenchError
from workbench.events import (
    Entry,
    MemoryRefused,
    ModelEvicted,
    ModelExpired,
    ModelLoadCancelled,
    ModelLoadFailed,
    ModelUnloaded,
    ToldEvent,
)
from workbench.model import ModelId, ModelState, TensorSpec
from workbench.residency import Absence, AbsenceKind
from workbench.statistics import FailureReason, RequestCounts
from workbench.tensor import Tensor
from workbench.views.text import cut
from workbench.views.times import clock_time

_ABSENCES = {
    ModelUnloaded.kind: AbsenceKind.UNLOADED,
    ModelExpired.kind: AbsenceKind.UNLOADED,
    ModelEvicted.kind: AbsenceKind.EVICTED,
    ModelLoadCancelled.kind: AbsenceKind.CANCELLED,
    MemoryRefused.kind: AbsenceKind.REFUSED,
    ModelLoadFailed.kind: AbsenceKind.FAILED,
}

HEADER_SIZE = "inference-header-content-length"
_SAID_AGAIN = re.compile(
    "(Request for unknown model|failed to load '.*'): "
    "(?=there is no model|model .* has no version|'.*' cannot be the name)",
    re.DOTALL,
)
"""What a workbench sends before a sentence that says the same."""

_ERRORS: Mapping[int, type[WorkbenchError]] = {
    400: errors.InvalidRequest,
    401: errors.TokenRequired,
    403: errors.AccessDenied,
    404: errors.ModelNotFound,
    413: errors.RequestTooLarge,
    501: errors.NotSupported,
    503: errors.ModelNotReady,
    507: errors.MemoryExhausted,
}


_UNLOADED = "unloaded"  # Triton's reason for what is no failure
_SHOWN = 60  # characters of an answer that cannot be read


def checked(reply: httpx.Response) -> httpx.Response:
    """The *reply* if it is one of success; else it raises the error that the reply tells.

    Its class is that of a workbench's error of this status, ``RunFailed`` for any other.
    """
    if reply.is_success:
        return reply
    raise _ERRORS.get(reply.status_code, errors.RunFailed)(_message(reply))


@contextmanager
def expecting(what: str, reply: httpx.Response) -> Iterator[None]:
    """For reading a *reply* as *what* the protocol has there.

    Raises ``NotSupported`` if it is something else.
    """
    try:
        yield
    except (InvalidRequest, ValueError, KeyError, TypeError, AttributeError, OverflowError):
        told = reply.text.strip()
        shown = repr(cut(told, _SHOWN)) if told else "nothing"
        asked = reply.request
        raise NotSupported(
            f"{asked.method} {asked.url} was answered with {shown} instead of {what}"
        ) from None


def about(told: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a server says of itself. A server written in Go has ``null`` for an empty list."""
    return {"name": told["name"], "extensions": [*(told.get("extensions") or ())]}


def index_rows(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of a repository's index. Raises ``TypeError`` and others if *told* has none."""
    if not isinstance(told, list):
        raise TypeError
    return [row | {"name": str(row["name"])} for row in told]


def counted_rows(told: Mapping[str, Any]) -> dict[tuple[str, str], Mapping[str, Any]]:
    """The statistics of models, by name and version."""
    return {(row["name"], row["version"]): row for row in told["model_stats"]}


def options_of(config: Mapping[str, Any]) -> tuple[set[str], dict[str, str]]:
    """The optional inputs of a model's *config*, and its parameters."""
    optional = {row["name"] for row in config["input"] if row.get("optional")}
    parameters = config.get("parameters") or {}
    return optional, {key: each["string_value"] for key, each in parameters.items()}


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
    reason: str = row.get("reason") or ""
    absence: Absence | None = None
    if state is ModelState.UNAVAILABLE and reason not in ("", _UNLOADED):
        broken = Absence(AbsenceKind.FAILED, reason)
        # what has no version could not be read
        absence = broken if absences is None or not model.version else absences.get(model)
    return ModelStatus(model, state, nbytes, reason=reason, requests=requests, absence=absence)


def event_entries(told: Mapping[str, Any]) -> list[Entry]:
    """The events that a workbench tells. Raises ``ValueError`` and others if *told* has none."""
    return list(map(_event_entry, told["events"]))


def _event_entry(row: Mapping[str, Any]) -> Entry:
    number, at_s = int(row["number"]), float(row["at_s"])
    clock_time(at_s)  # raises for a number that is no time
    name = row.get("model_name")
    model = None if name is None else ModelId(name, int(row["model_version"]))
    return Entry(number, at_s, ToldEvent(str(row["kind"]), str(row["text"]), model))


def tensor_specs(entries: list[dict[str, Any]] | None) -> dict[str, TensorSpec]:
    """Declared tensors, by name; some servers declare none."""
    return {
        each["name"]: TensorSpec(each["name"], each["datatype"], tuple(map(int, each["shape"])))
        for each in entries or ()
    }


def read_outputs(reply: httpx.Response) -> dict[str, Tensor]:
    """The outputs of a V2 response, of JSON and the binary data after it.

    Raises ``NotSupported`` if it is none.
    """
    with expecting("a model's outputs", reply):
        return _outputs(reply)


def _outputs(reply: httpx.Response) -> dict[str, Tensor]:
    body = memoryview(reply.content)
    size = int(reply.headers.get(HEADER_SIZE, len(body)))
    rest, outputs = body[size:], {}
    for entry in v2_json.plain(v2_json.parse(bytes(body[:size])))["outputs"]:
        name, datatype, shape = entry["name"], entry["datatype"], tuple(map(int, entry["shape"]))
        nbytes = (entry.get("parameters") or {}).get("binary_data_size")
        if nbytes is None:
            outputs[name] = v2_json.decode(name, datatype, shape, entry["data"])
        else:
            outputs[name] = v2_binary.decode(name, datatype, shape, rest[:nbytes])
            rest = rest[nbytes:]
    return outputs


def _message(reply: httpx.Response) -> str:
    try:
        body = reply.json()
        told = body["error"] if "error" in body else body["detail"]  # the latter is FastAPI's
    except (ValueError, KeyError, TypeError):
        told = reply.text[:200]
    return _SAID_AGAIN.sub("", str(told), count=1) or f"the server answered {reply.status_code}"
