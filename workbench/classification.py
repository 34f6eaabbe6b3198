"""An output as its best classes: Triton's "Classification Extension".

A class is told as text, ``value:index`` or ``value:index:label``.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from workbench.errors import InvalidRequest
from workbench.tensor import Array, Tensor, bf16_values


def classify(
    name: str, tensor: Tensor, count: int, labels: Sequence[str], *, batched: bool
) -> Tensor:
    """The *count* highest elements of *tensor*, best first, as BYTES.

    Of shape ``[batch, count]`` if *batched*, with one row for each element of
    the first dimension, else ``[count]``; fewer where there are fewer. Equal
    values keep their order, NaN comes last. Raises ``InvalidRequest`` for an
    output *name* that has no order, and a *count* of 0.
    """
    array = tensor.array
    if tensor.datatype in ("BYTES", "BOOL"):
        raise InvalidRequest(f"output {name!r} is {tensor.datatype}, which has no best classes")
    if count < 1:
        raise InvalidRequest(f"'classification' of output {name!r} must be 1 or more")
    if tensor.datatype == "BF16":
        array = bf16_values(array)
    if not batched or not array.ndim:
        array = array.reshape(1, -1)
    rows = array.reshape(len(array), prod(array.shape[1:]))
    texts = np.empty((len(rows), min(count, rows.shape[1])), object)
    for index, row in enumerate(rows):
        texts[index] = _best(row, texts.shape[1], labels)
    return Tensor("BYTES", texts if batched else texts[0])


def _best(row: Array, count: int, labels: Sequence[str]) -> list[bytes]:
    # Of equals the first is to come first: so the last one is sorted first, and all turned round.
    backwards = row.size - 1 - np.argsort(row[::-1], kind="stable")[::-1]
    if row.dtype.kind == "f":
        missing = np.isnan(row)
        backwards = np.concatenate([backwards[~missing[backwards]], np.flatnonzero(missing)])
    order = backwards[:count].tolist()
    return [_told(row[index], index, labels).encode() for index in order]


def _told(value: np.generic, index: int, labels: Sequence[str]) -> str:
    number = f"{value:f}" if value.dtype.kind == "f" else str(value)
    return f"{number}:{index}:{labels[index]}" if index < len(labels) else f"{number}:{index}"
