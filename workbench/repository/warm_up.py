"""``model_warmup`` of a configuration -> the samples that a model runs on before it is READY."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from workbench.model import WarmUpInput, WarmUpSample
from workbench.repository.fields import datatype_of, is_plain

_FOLDER = "warmup"
_LIMIT_NBYTES = 256 << 20  # of a sample's inputs, whose elements take at most so many bytes:
_NUMBER_NBYTES, _TEXT_NBYTES = 8, 128
_MOST_RUNS = 10_000


def warm_up_samples(folder: Path, messages: Iterable[Any]) -> tuple[WarmUpSample, ...]:
    """The samples for the model in *folder*; those without a batch are left out.

    Raises ``ValueError`` with the name of a sample that is wrong.
    """
    samples = []
    for index, message in enumerate(messages):
        if message.batch_size:
            name = message.name or str(index)
            try:
                samples.append(_sample(folder, name, message))
            except ValueError as error:
                raise ValueError(f"model_warmup {name!r}: {error}") from None
    return tuple(samples)


def _sample(folder: Path, name: str, message: Any) -> WarmUpSample:
    if message.count > _MOST_RUNS:
        raise ValueError(f"count {message.count} is above {_MOST_RUNS}")
    inputs = {each: _input(folder, each, message.inputs[each]) for each in sorted(message.inputs)}
    nbytes = sum(
        math.prod(given.shape) * (_TEXT_NBYTES if given.datatype == "BYTES" else _NUMBER_NBYTES)
        for given in inputs.values()
    )
    if nbytes * message.batch_size > _LIMIT_NBYTES:
        raise ValueError(f"its inputs are larger than {_LIMIT_NBYTES >> 20} MiB")
    return WarmUpSample(name, message.batch_size, message.count or 1, inputs)


def _input(folder: Path, name: str, message: Any) -> WarmUpInput:
    datatype = datatype_of(message)
    if datatype is None:
        raise ValueError(f"input {name!r} has no data_type")
    shape = tuple(message.dims)
    if any(dim < 1 for dim in shape):
        raise ValueError(f"dims of input {name!r} must be positive, not {list(shape)}")
    match message.WhichOneof("input_data_type"):
        case "zero_data" if message.zero_data:
            return WarmUpInput(datatype, shape, "zero")
        case "random_data" if message.random_data:
            return WarmUpInput(datatype, shape, "random")
        case "input_data_file":
            return WarmUpInput(datatype, shape, _file(folder, name, message.input_data_file))
    raise ValueError(f"input {name!r} has neither zero_data, random_data nor input_data_file")


def _file(folder: Path, name: str, filename: str) -> Path:
    path = folder / _FOLDER / filename
    if not is_plain(filename) or not path.is_file():
        raise ValueError(
            f"input_data_file {filename!r} of input {name!r} is not a file of the model's "
            f"folder {_FOLDER!r}"
        )
    return path
