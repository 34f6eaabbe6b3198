"""One benchmark: a model under one load after another."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from operator import index
from typing import NamedTuple, SupportsIndex, TypeAlias

import numpy as np

from workbench.annexes.bench import client
from workbench.annexes.bench.client import Point
from workbench.annexes.bench.report import Bench
from workbench.annexes.bench.target import BenchServer
from workbench.client.coercion import tensors_of
from workbench.errors import ServerNotRunning, UsageError
from workbench.inference import zeros_of
from workbench.model import ModelId, Signature
from workbench.seconds import parse_seconds
from workbench.tensor import Array, Tensor

_MOST_CLIENTS = 1024
_LONGEST_S = 3600.0

Several: TypeAlias = Iterable[int] | int | str
"""What a person gives for several numbers: a list of them, one alone, or a text such as "1,8"."""


class LoadLevels(NamedTuple):
    """The loads to measure: each batch size with each number of clients, each for *seconds*.

    A batch is ``None`` where requests are of the inputs as they are.
    """

    clients: list[int]
    batches: list[int | None]
    seconds: float

    @classmethod
    def of(cls, clients: Several, batches: Several, seconds: float | str) -> LoadLevels:
        """The loads that a person asks for. Raises ``UsageError`` and ``SettingError``."""
        loads = cls(
            _several("clients", clients),
            [*_several("batches", batches)] or [None],
            parse_seconds(seconds, "seconds"),
        )
        if not loads.clients or not all(1 <= count <= _MOST_CLIENTS for count in loads.clients):
            raise UsageError(f"clients are numbers from 1 to {_MOST_CLIENTS}")
        if not all(size is None or size >= 1 for size in loads.batches):
            raise UsageError("a batch has at least one element")
        if loads.seconds > _LONGEST_S:
            raise UsageError(f"a load lasts up to {_LONGEST_S:.0f} seconds, not {loads.seconds:g}")
        return loads


def bench(
    target: BenchServer,
    model: str,
    inputs: object,
    loads: LoadLevels,
    *,
    signature: Signature | None = None,
    told: Callable[[Point, float], object] = lambda _point, _share: None,
) -> Bench:
    """Measure *model* at the server *target* under *loads*.

    Requests are of *inputs*, or of an example if these are ``None``. Each load lasts longer if
    answers take their time. *signature* is what the server tells of the model, unless it is given.
    *told* is called with each point, and the share of all that is done.

    Raises ``UsageError``, ``ServerNotRunning``, and what a first request to the model raises.
    """
    signature = signature or target.signature(model)
    if inputs is None and not signature.inputs:
        raise UsageError(f"{target.url} does not say what {model!r} takes: pass its inputs")
    points: list[Point] = []
    for size in loads.batches:
        tensors, batch = tensors_for(model, signature, inputs, size)
        request = target.request(model, tensors)
        target.ask(request)
        for count in loads.clients:
            points.append(_measured(target, request, batch, count, loads.seconds))
            told(points[-1], len(points) / (len(loads.batches) * len(loads.clients)))
    return Bench(model, target.url, tuple(points))


def _several(name: str, values: Several) -> list[int]:
    """The numbers that a person gives for *name*. Raises ``UsageError``."""
    listed = values.split(",") if isinstance(values, str) else values
    try:
        each = listed if isinstance(listed, Iterable) else [listed]
        return [_whole_number(value) for value in each if value != ""]
    except (ValueError, TypeError):
        raise UsageError(f"{name}: {values!r} is not a list such as 1,2,4") from None


def _whole_number(value: str | SupportsIndex) -> int:
    return int(value) if isinstance(value, str) else index(value)


def tensors_for(
    model: str, signature: Signature, given: object, batch: int | None
) -> tuple[dict[str, Tensor], int]:
    """The inputs of one request to *model*, and how many elements it has.

    They are those *given*, or an example if that is ``None``; of *batch* elements, or as they are.
    Raises ``UsageError`` for a model that takes no batches.
    """
    batched = all(spec.shape and spec.shape[0] == -1 for spec in signature.inputs.values())
    if batch not in (None, 1) and not batched:
        raise UsageError(f"{model} takes no batches: its first dimension has one size")
    named = ModelId(model, 1)
    if given is None:
        return tensors_of(named, signature, _example(signature, batch or 1)), batch or 1
    tensors = tensors_of(named, signature, given, apart=True)
    if batch is not None:
        return {name: _repeated(name, each, batch) for name, each in tensors.items()}, batch
    return tensors, max(len(each.array) for each in tensors.values()) if batched else 1


def _example(signature: Signature, batch: int) -> dict[str, Array]:
    """Inputs of *batch* elements: random numbers from 0 to 1, whole numbers 0, texts ``"text"``.

    Any other dimension that may have any size has 1.
    """
    random = np.random.default_rng(1)
    zeros = {name: zeros_of(spec, batch) for name, spec in signature.inputs.items()}
    floats = [n for n, s in signature.inputs.items() if s.datatype.startswith(("FP", "BF"))]
    return zeros | {name: random.random(zeros[name].shape, np.float32) for name in floats}


def _repeated(name: str, tensor: Tensor, batch: int) -> Tensor:
    """The rows of *tensor* again and again, until there are *batch*."""
    array = tensor.array
    if not array.ndim or not len(array):
        raise UsageError(f"input {name!r} has no rows, of which a batch could be made")
    return Tensor(tensor.datatype, np.resize(array, (batch, *array.shape[1:])))


def _measured(
    target: BenchServer, request: bytes, batch: int, clients: int, seconds: float
) -> Point:
    """The figures of sending *request* repeatedly from *clients*, measured by another process.

    So the server's process is not its own client. Raises ``ServerNotRunning`` if nothing could be
    sent.
    """
    job = {
        "host": target.host,
        "port": target.port,
        "tls": target.tls,
        "request": base64.b64encode(request).decode(),
        "clients": clients,
        "seconds": seconds,
    }
    # -P: the folder of the file is not searched for modules; a new session: an interrupt of the
    # kernel is the parent's affair, which ends this process
    process = subprocess.Popen(  # noqa: S603 - our own file
        [sys.executable, "-P", client.__file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, told = process.communicate(json.dumps(job))
    finally:  # subprocess.run does not wait for the end after an interrupt
        process.kill()
        process.wait()
    if not out:
        last = (told.strip().splitlines() or ["it said nothing"])[-1]
        raise UsageError(f"the process that sends the requests ended: {last}")
    point = Point(batch, clients, **json.loads(out))
    if not point.answers and not point.failed:
        why = point.failure or "no request was answered in time"
        raise ServerNotRunning(f"{target.url}: {why}")
    return point
