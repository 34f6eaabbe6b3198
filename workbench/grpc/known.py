"""Recognises requests that differ from an answered one only in their raw contents."""

from __future__ import annotations

import sys

import numpy as np

from workbench.codecs import v2_binary
from workbench.grpc.convert import RAW_INPUT, InferMessage, split
from workbench.inference import InferRequest
from workbench.protobuf_fields import varint
from workbench.tensor import DATATYPES, Tensor

_LARGE_NBYTES = 2**18  # a larger request is read in the ordinary way


class KnownRequest:
    """A small answered request of one input: its *asked*, without the raw contents.

    Clients repeat requests with other contents. Nothing of such a request is parsed, checked or
    composed again.
    """

    def __init__(self, head: bytes, asked: InferMessage, request: InferRequest) -> None:
        ((self._input, tensor),) = request.inputs.items()
        self._datatype = tensor.datatype
        self._shape = tuple(asked.message.inputs[0].shape)  # also where a scalar came as [1]
        self._head = head
        self._outputs = request.outputs
        anything = tensor.datatype not in ("BYTES", "BOOL") and sys.byteorder == "little"
        self._dtype = DATATYPES[tensor.datatype].dtype if anything else None
        self.asked = asked
        self.fit = request.fit

    @classmethod
    def of(cls, data: bytes, asked: InferMessage, request: InferRequest) -> KnownRequest | None:
        """A known request of *data*, if only the raw contents of one input follow its head."""
        message = asked.message
        found = split(data) if len(data) <= _LARGE_NBYTES else None
        if found is None or len(found[1]) != 1 or message.id or message.parameters:
            return None
        rest, (raw,) = found
        head = rest + bytes((RAW_INPUT,)) + varint(len(raw))
        if request.classes or asked.shares or head + raw != data:
            return None
        ((name, tensor),) = request.inputs.items()
        if (name, tensor.datatype) != (message.inputs[0].name, message.inputs[0].datatype):
            return None  # it came as a column
        return cls(head, asked, request)

    def matches(self, data: bytes) -> bool:
        """Whether *data*, which is as long, differs only in its contents."""
        return data.startswith(self._head)

    def read(self, data: bytes) -> InferRequest:
        """The request in *data*, which matches. Raises ``InvalidRequest``."""
        if self._dtype is not None:  # any bytes are valid numbers
            array = np.frombuffer(data, self._dtype, -1, len(self._head)).reshape(self._shape)
            tensor = Tensor(self._datatype, array)
        else:
            raw = memoryview(data)[len(self._head) :]
            tensor = v2_binary.decode(self._input, self._datatype, self._shape, raw)
        request = InferRequest(self.asked.name, {self._input: tensor}, self.asked.version)
        request.outputs = self._outputs
        request.fit = self.fit
        return request
