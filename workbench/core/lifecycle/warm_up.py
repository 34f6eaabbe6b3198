"""The samples of ``model_warmup``, on which a model runs before it is READY."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from workbench.codecs import v2_binary
from workbench.errors import InvalidRequest, LoadFailed, reason_of
from workbench.inference import InferRequest
from workbench.model import ModelId, Signature, WarmUpInput, WarmUpSample
from workbench.nbytes import show_nbytes
from workbench.stop import CancellationToken
from workbench.tensor import DATATYPES, Array, Tensor

_LETTERS = 8  # in a random text
_FILE_NBYTES = 256 << 20


def request_of(
    model: ModelId, signature: Signature, sample: WarmUpSample, stop: CancellationToken
) -> InferRequest:
    """The request that *sample* describes. Raises ``LoadFailed`` if its file is not valid."""
    batch = (sample.batch_size,) if signature.max_batch_size else ()
    inputs = {name: _tensor(name, each, batch) for name, each in sample.inputs.items()}
    return InferRequest(model.name, inputs, model.version, stop=stop)


def _tensor(name: str, given: WarmUpInput, batch: tuple[int, ...]) -> Tensor:
    """An input tensor: one element, repeated to fill the batch."""
    kind = DATATYPES[given.datatype]
    if isinstance(given.data, Path):
        array = _read(name, given, given.data)
    elif given.data == "random":
        array = _random(given)
    elif given.datatype == "BYTES":
        array = np.full(given.shape, b"", object)
    else:
        array = np.zeros(given.shape, kind.dtype)
    if batch:
        array = np.broadcast_to(array, batch + given.shape)
    return Tensor(given.datatype, np.ascontiguousarray(array).reshape(batch + given.shape))


def _random(given: WarmUpInput) -> Array:
    """Random values: floats from 0 to 1, whole numbers 0 or 1, texts of letters."""
    random = np.random.default_rng(0)
    if given.datatype == "BYTES":
        letters = random.integers(ord("a"), ord("z") + 1, (math.prod(given.shape), _LETTERS))
        words = [bytes(word) for word in letters.astype(np.uint8)]
        array = np.empty(len(words), object)
        array[:] = words
        return array.reshape(given.shape)
    dtype = DATATYPES[given.datatype].dtype
    if dtype.kind == "f":
        return random.random(given.shape).astype(dtype)
    if given.datatype == "BF16":  # which is the upper half of an FP32
        bits = random.random(given.shape, np.float32).view(np.uint32) >> 16
        return np.asarray(bits, np.uint16)
    return random.integers(0, 2, given.shape).astype(dtype)


def _read(name: str, given: WarmUpInput, path: Path) -> Array:
    try:
        if path.stat().st_size > _FILE_NBYTES:
            raise LoadFailed(f"the file {str(path)!r} is larger than {show_nbytes(_FILE_NBYTES)}")
        data = memoryview(path.read_bytes())
        return v2_binary.decode(name, given.datatype, given.shape, data).array
    except InvalidRequest as error:
        raise LoadFailed(f"the file {str(path)!r}: {error}") from None
    except OSError as error:
        raise LoadFailed(f"the file {str(path)!r} cannot be read: {reason_of(error)}") from None
