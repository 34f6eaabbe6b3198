"""``/metrics``: the server's counters, under Triton's names and under our own.

All of it is read from the server's core when it is requested: nothing is registered anywhere, and
inferences cost nothing more.

As in Triton, a model's ``nv_`` series exist while it is in memory or loading; those of failures
always. Unlike in Triton, the counters go on when the model is loaded again. Our series,
``workbench_``, exist from the first request for the model on, until it is no longer served. Their
sums, ``workbench_all_``, go on, and never fall.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from workbench.core import ModelStatus, ServerCore, Snapshot
from workbench.http.calls import HttpCall
from workbench.http.exposition import (
    CONTENT_TYPE,
    COUNTER,
    GAUGE,
    HISTOGRAM,
    Family,
    Sample,
    label_text,
    write,
)
from workbench.http.metric_tables import BOOKS, GPUS, HOST, OURS, TRITON, Figure, S
from workbench.http.reply import Reply
from workbench.model import ModelState
from workbench.statistics import BUCKETS_S, FailureReason, RequestCounts

# Each bound is twice the one before, from 16 microseconds to 67 seconds, and one of the
# bounds that requests are counted under, so that the numbers are exact.
_BOUNDS = tuple(
    (bucket, label_text(le=repr(BUCKETS_S[bucket]))) for bucket in range(16, len(BUCKETS_S), 4)
)


_Labelled = Sequence[tuple[str, ModelStatus]]  # keyed by the text of the model's labels


def metrics(core: ServerCore, call: HttpCall) -> Reply:
    """Prometheus's text of everything that *core* counted, and of its memory.

    Models that were never asked for have no series, and no file is read for them.
    """
    return Reply(
        200, ((b"content-type", CONTENT_TYPE),), (write(families(core.status.measured())),)
    )


def families(now: Snapshot) -> Iterator[Family]:
    """The families of the snapshot *now*; they may be empty."""
    models = [
        (label_text(model=each.id.name, version=str(each.id.version), **each.tags), each)
        for each in now.models
    ]
    live = [row for row in models if row[1].state is not ModelState.UNAVAILABLE or row[1].pending]
    yield from (_each(metric, live) for metric in TRITON)
    yield _failures(models)
    yield from (_each(metric, models) for metric in OURS)
    yield _states(models)
    yield _durations(models)
    yield from _sums([*now.models, *filter(None, [now.forgotten])])
    yield from _memory(now)
    yield from (_each(figure, [("", now)]) for figure in HOST)
    yield from _gpus(now)


def _each(figure: Figure[S], rows: Iterable[tuple[str, S]]) -> Family:
    """The *figure* of all *rows*, by the text of their labels; unknown ones have no sample."""
    values = ((labels, figure.read(row)) for labels, row in rows)
    samples = (Sample(labels, value) for labels, value in values if value is not None)
    return Family(figure.name, figure.kind, figure.help_text, samples)


def _failures(models: _Labelled) -> Family:
    samples = (
        Sample(
            f"{labels},{label_text(reason=reason.value)}", model.requests.failures.get(reason, 0)
        )
        for labels, model in models
        for reason in FailureReason
    )
    help_text = "Requests that ended in an error"
    return Family("nv_inference_request_failure", COUNTER, help_text, samples)


def _sums(models: Sequence[ModelStatus]) -> Iterator[Family]:
    """Our counters, summed over all *models*, those that are no longer served included."""
    for figure in OURS:
        if figure.kind == COUNTER:
            name = figure.name.replace("_model_", "_all_")
            help_text = f"{figure.help_text}: of all models so far"
            total = sum(figure.read(model) or 0 for model in models)
            yield Family(name, COUNTER, help_text, [Sample("", total)])
    counts = [RequestCounts(), *(model.requests for model in models)]
    buckets = zip(*(each.buckets for each in counts), strict=True)
    total_s = sum(each.total_s for each in counts)
    requests = RequestCounts(total_s=total_s, buckets=tuple(map(sum, buckets)))
    help_text = "Seconds from the arrival of all answered requests so far to their answers"
    name = "workbench_all_request_duration_seconds"
    yield Family(name, HISTOGRAM, help_text, _histogram("", requests))


def _states(models: _Labelled) -> Family:
    samples = (
        Sample(f"{labels},{label_text(state=state.value)}", int(model.state is state))
        for labels, model in models
        for state in ModelState
    )
    help_text = "1 for the state that the model is in, 0 for the others"
    return Family("workbench_model_state", GAUGE, help_text, samples)


def _durations(models: _Labelled) -> Family:
    samples = (sample for labels, model in models for sample in _histogram(labels, model.requests))
    help_text = "Seconds from the arrival of the answered requests to their answers"
    return Family("workbench_request_duration_seconds", HISTOGRAM, help_text, samples)


def _histogram(labels: str, requests: RequestCounts) -> Iterator[Sample]:
    below = list(accumulate(requests.buckets))
    comma = "," if labels else ""
    for bucket, le in _BOUNDS:
        yield Sample(f"{labels}{comma}{le}", below[bucket], "_bucket")
    yield Sample(f'{labels}{comma}le="+Inf"', below[-1], "_bucket")
    yield Sample(labels, requests.total_s, "_sum")
    yield Sample(labels, below[-1], "_count")


def _memory(now: Snapshot) -> Iterator[Family]:
    """The books of the devices that models run on, and the system's figures for them."""
    devices = [(label_text(device=str(each.device)), each) for each in now.devices]
    for figure in BOOKS:
        yield _each(figure._replace(name=f"workbench_memory_{figure.name}_bytes"), devices)


def _gpus(now: Snapshot) -> Iterator[Family]:
    gpus = [
        (label_text(gpu_uuid=each.device.uuid), each)
        for each in now.devices
        if each.device.kind == "cuda"
    ]
    yield from (_each(figure, gpus) for figure in GPUS)
