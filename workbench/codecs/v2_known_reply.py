"""Writes responses whose JSON differs from the last one only in its id and its numbers.

If the outputs have the names, datatypes and shapes of the last response, only the elements, as JSON
or binary, and the id are written. Any other is left to ``v2.encode_response``, which writes the
same to the byte. What this saves: ``benchmarks/without.py known_reply``.
"""

from __future__ import annotations

import re

from workbench.codecs import v2_binary, v2_json
from workbench.codecs.v2 import EncodedResponse, ReplyForm, encode_response
from workbench.inference import InferResponse
from workbench.model import ModelId

_DATA = re.compile(rb'(?<="data":)\[[^\]]*\]')  # in what encode_response writes
# name, datatype, shape, and the text after its elements; None if they are binary, and whether few
_Output = tuple[str, str, tuple[int, ...], bytes | None, bool]


class KnownReply:
    """The last response in a *form*, without its id and its elements."""

    def __init__(self, form: ReplyForm) -> None:
        self._form = form
        self._model: ModelId | None = None  # if a response of it is known
        self._outputs: list[_Output] = []
        self._before = b""  # the text before the first elements, and without its brace
        self._after_id = b""

    def encode(self, response: InferResponse) -> EncodedResponse:
        """As ``v2.encode_response``. Raises ``InvalidRequest`` as that does."""
        outputs = response.outputs
        if response.model is not self._model or len(outputs) != len(self._outputs):
            return self._learn(response)
        if response.parameters:
            return self._learn(response)
        text = self._before
        if response.id:
            text = b'{"id":%b,%b' % (v2_json.write(response.id), self._after_id)
        texts: list[bytes] = [text]
        blobs: list[bytes | memoryview] = []
        for (name, tensor), known in zip(outputs.items(), self._outputs):  # noqa: B905  # faster
            known_name, datatype, shape, behind, is_small = known
            array = tensor.array
            if array.shape != shape or name != known_name or tensor.datatype != datatype:
                return self._learn(response)
            if behind is None:
                blobs.append(array.tobytes() if is_small else v2_binary.encode(tensor))
                continue
            elements = v2_json.write(array.ravel())
            if b"null" in elements:  # not a number: encode_response reports it
                return encode_response(response, self._form)
            texts += (elements, behind)
        return b"".join(texts), *blobs

    def _learn(self, response: InferResponse) -> EncodedResponse:
        """As ``encode``; and remember the response, if others can differ in their elements only."""
        encoded = encode_response(response, self._form)
        tensors = response.outputs.values()
        plain = all(t.array.dtype.kind in "fiub" and t.array.itemsize != 2 for t in tensors)
        if response.parameters or not plain:
            return encoded
        anonymous = InferResponse(response.model, response.outputs)
        before, *behind = _DATA.split(encode_response(anonymous, self._form)[0])
        self._model, self._before, self._after_id = response.model, before, before[1:]
        texts = iter(behind)
        self._outputs = [
            (
                name,
                tensor.datatype,
                tensor.array.shape,
                None if self._form.is_binary(name) else next(texts),
                v2_binary.is_small(tensor),
            )
            for name, tensor in response.outputs.items()
        ]
        return encoded
