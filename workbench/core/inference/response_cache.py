"""A cache of answers, to answer the same request again without a run.

As in Triton, it is one cache of a fixed size for all models whose configuration has
``response_cache``.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from workbench.inference import InferRequest
from workbench.tensor import Array, Tensor

_ENTRY_NBYTES = 512  # an entry takes so much beside the elements of its tensors
_TEXT_NBYTES = 40  # a BYTES element takes so much beside its bytes
_MISSING = b"\xff" * 8  # in place of a text that is missing: the length of none
_STEPS = 16  # memory is booked in steps of this part of the cache's size


class _Answer(NamedTuple):
    outputs: Mapping[str, Tensor]
    nbytes: int


class ResponseCache:
    """Keeps up to *limit_nbytes* of answers; the least recently used ones leave first.

    *reserve* books a number of bytes for the whole cache; it returns False if that is more than
    before and not free. Then older answers leave instead, so that no model is evicted for answers.
    Thread-safe; do not call it under a lock that *reserve* takes.
    """

    def __init__(self, limit_nbytes: int, reserve: Callable[[int], bool]) -> None:
        self._limit_nbytes = limit_nbytes
        self._step_nbytes = max(1, limit_nbytes // _STEPS)
        self._reserve = reserve
        self._lock = threading.RLock()  # *reserve* may lead to a call of this cache
        self._answers: OrderedDict[tuple[object, bytes], _Answer] = OrderedDict()
        self._nbytes = 0
        self._booked_nbytes = 0

    def find(self, owner: object, key: bytes) -> dict[str, Tensor] | None:
        """Copies of the outputs that *owner* gave for the request with this *key*, if kept."""
        with self._lock:
            answer = self._answers.get((owner, key))
            if answer is None:
                return None
            self._answers.move_to_end((owner, key))
        return copies_of(answer.outputs)

    def keep(self, owner: object, key: bytes, outputs: Mapping[str, Tensor]) -> None:
        """Keep copies of *outputs* if there is room for them."""
        nbytes = _ENTRY_NBYTES + sum(_nbytes(tensor.array) for tensor in outputs.values())
        if nbytes > self._limit_nbytes:
            return
        try:
            answer = _Answer(copies_of(outputs), nbytes)
        except MemoryError:  # whoever waits for the answer itself gets it
            return
        with self._lock:
            self._drop((owner, key))
            while self._nbytes + nbytes > self._limit_nbytes:
                self._drop(next(iter(self._answers)))
            if self._book(self._nbytes + nbytes):
                self._answers[owner, key] = answer
                self._nbytes += nbytes

    def forget(self, owner: object) -> None:
        """Drop all answers of *owner*, which is unloaded."""
        with self._lock:
            for known in [known for known in self._answers if known[0] is owner]:
                self._drop(known)
            self._give_back()

    def shrink(self, nbytes: int) -> None:
        """Drop answers until *nbytes* fewer are booked, or none is left: a model needs the room."""
        with self._lock:
            most_nbytes = max(0, self._booked_nbytes - nbytes)
            while self._answers and self._rounded(self._nbytes) > most_nbytes:
                self._drop(next(iter(self._answers)))
            self._give_back()

    def _book(self, nbytes: int) -> bool:
        """Book *nbytes* for the whole cache; if they are not free, drop older answers instead.

        Returns whether *nbytes* fit now.
        """
        wanted_nbytes = self._rounded(nbytes)
        if wanted_nbytes <= self._booked_nbytes:
            return True
        if self._reserve(wanted_nbytes):
            self._booked_nbytes = wanted_nbytes
            return True
        new_nbytes = nbytes - self._nbytes
        while self._answers and self._nbytes + new_nbytes > self._booked_nbytes:
            self._drop(next(iter(self._answers)))
        return self._nbytes + new_nbytes <= self._booked_nbytes

    def _rounded(self, nbytes: int) -> int:
        step_nbytes = self._step_nbytes
        return min(self._limit_nbytes, -(-nbytes // step_nbytes) * step_nbytes)

    def _give_back(self) -> None:
        needed_nbytes = self._rounded(self._nbytes)
        if needed_nbytes < self._booked_nbytes:
            self._booked_nbytes = needed_nbytes
            self._reserve(needed_nbytes)

    def _drop(self, known: tuple[object, bytes]) -> None:
        answer = self._answers.pop(known, None)
        if answer is not None:
            self._nbytes -= answer.nbytes


def key_of(request: InferRequest) -> bytes:
    """A digest of all parts of *request* on which the answer of an engine depends."""
    digest = blake2b(digest_size=32)
    wanted = request.outputs, sorted(request.classes.items()), request.scalars_of_one
    digest.update(repr(wanted).encode())
    for name in sorted(request.inputs):
        tensor = request.inputs[name]
        digest.update(repr((name, tensor.datatype, tensor.shape)).encode())
        if tensor.datatype == "BYTES":
            for element in tensor.array.reshape(-1):
                if not isinstance(element, bytes):
                    digest.update(_MISSING)
                    continue
                digest.update(len(element).to_bytes(8, "little"))
                digest.update(element)
        else:
            digest.update(np.ascontiguousarray(tensor.array).reshape(-1).view(np.uint8).data)
    return digest.digest()


def _nbytes(array: Array) -> int:
    if not array.dtype.hasobject:
        return array.nbytes
    return sum(_TEXT_NBYTES + len(element) for element in array.reshape(-1))


def copies_of(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The *tensors*, with elements that nobody else can change."""
    return {name: Tensor(each.datatype, each.array.copy()) for name, each in tensors.items()}
