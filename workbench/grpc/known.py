"""Recognises requests that differ from an answered one only in their raw contents."""

from __future__ import annotations

import sys

import numpy as np

from workbench.codecs import v2_binary
from workbench.grpc.convert import RAW_INPUT, InferMessage, split, varint
from workbench.inference import InferRequest
from workbench.tensor import ALIGNED_NBYTES, DATATYPES, Array, Tensor

_LARGE_NBYTES = 2**18  # a larger request is read in the ordinary way
_SMALL_NBYTES = 2**12  # smaller contents are copied to an aligned address
_ROOMS_NBYTES = 2**14  # memory that is made at once


class KnownRequest:
    """A small answered request of one input: its *asked*, without the raw contents.

    Clients repeat requests with other contents. Nothing of such a request is parsed, checked or
    composed again.
    """

    __slots__ = (
        "_datatype",
        "_head",
        "_input",
        "_nbytes",
        "_outputs",
        "_rooms",
        "_shape",
        "asked",
        "fit",
        "scalars_of_one",
    )

    def __init__(
        self, head: bytes, nbytes: int, asked: InferMessage, request: InferRequest
    ) -> None:
        ((self._input, tensor),) = request.inputs.items()
        self._datatype, self._shape = tensor.datatype, tensor.array.shape
        self._head, self._nbytes = head, nbytes
        self._outputs = request.outputs
        self._rooms = _TensorPool.of(tensor)
        self.asked = asked
        self.fit = request.fit
        self.scalars_of_one = request.scalars_of_one

    @classmethod
    def of(cls, data: bytes, asked: InferMessage, request: InferRequest) -> KnownRequest | None:
        """A known request of *data*, if only the raw contents of one input follow its head."""
        message = asked.message
        found = split(data) if len(data) <= _LARGE_NBYTES else None
        if found is None or len(found[1]) != 1 or message.id or message.parameters:
            return None
        rest, (raw,) = found
        head = rest + bytes((RAW_INPUT,)) + varint(len(raw))
        if request.classes or head + raw != data:
            return None
        return cls(head, len(raw), asked, request)

    def matches(self, data: bytes) -> bool:
        """Whether *data*, which is as long, differs only in its contents."""
        return data.startswith(self._head)

    def read(self, data: bytes) -> InferRequest:
        """The request in *data*, which matches. Raises ``InvalidRequest``."""
        if self._rooms is not None:
            tensor = Tensor(self._datatype, self._rooms.placed(data, len(self._head)))
        else:
            raw = memoryview(data)[len(self._head) :]
            tensor = v2_binary.decode(self._input, self._datatype, self._shape, raw)
        request = InferRequest(self.asked.name, {self._input: tensor}, self.asked.version)
        request.outputs = self._outputs
        request.fit = self.fit
        request.scalars_of_one = self.scalars_of_one
        return request


class _TensorPool:
    """Memory for tensors of *dtype* and *shape* at aligned addresses; each piece is used once.

    Several are made at once: to make one takes longer than to copy small contents into it.
    """

    __slots__ = ("_dtype", "_left", "_shape")

    def __init__(self, dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> None:
        self._dtype, self._shape = dtype, shape
        self._left: list[tuple[Array, Array]] = []

    @classmethod
    def of(cls, tensor: Tensor) -> _TensorPool | None:
        """A pool for tensors like this one, if they are small and any bytes are valid numbers."""
        array = tensor.array
        anything = tensor.datatype not in ("BYTES", "BOOL") and sys.byteorder == "little"
        if not anything or not array.shape or not 0 < array.nbytes <= _SMALL_NBYTES:
            return None
        return cls(DATATYPES[tensor.datatype].dtype, array.shape)

    def placed(self, data: bytes, begin: int) -> Array:
        """A copy of the elements in *data* from *begin* on."""
        while True:
            try:
                room, elements = self._left.pop()
                break
            except IndexError:  # also if other threads took all of them
                self._left.extend(self._made())
        elements[:] = np.frombuffer(data, self._dtype, -1, begin)
        return room

    def _made(self) -> list[tuple[Array, Array]]:
        """More of them: each in its shape, and as a row of bytes."""
        nbytes = int(np.prod(self._shape)) * self._dtype.itemsize
        stride = -(-nbytes // ALIGNED_NBYTES) * ALIGNED_NBYTES
        count = max(1, _ROOMS_NBYTES // stride)
        memory = np.empty(count * stride + ALIGNED_NBYTES, np.uint8)
        begin = -memory.__array_interface__["data"][0] % ALIGNED_NBYTES
        block = memory[begin : begin + count * stride].reshape(count, stride)
        rows = block[:, :nbytes].view(self._dtype)
        return list(zip(rows.reshape(count, *self._shape), rows, strict=True))
