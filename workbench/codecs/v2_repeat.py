"""The same JSON request again, with other numbers in its tensor.

Clients ask the same over and over: nothing differs but the elements. What
stands before and after them was read and checked once; if it is the same to
the byte, only the elements are parsed, and of the response only they are written.

That is exact. Where one JSON value stands another may stand, and nothing
around it reads differently: a body that is the known *before*, one flat array
of numbers, and the known *after* says what the known body said, of other
numbers. Whatever is not just that is left to ``v2.decode_request``.
"""

from __future__ import annotations

import re
import time

import numpy as np

from workbench.codecs import v2_json
from workbench.codecs.v2 import ReplyForm, encode_response
from workbench.inference import InferRequest, InferResponse
from workbench.model import Signature
from workbench.tensor import Array, Tensor

_MAX_NBYTES = 2**16  # beyond it, all of the reading is little beside that of the elements
_KEY = re.compile(rb'"data"[ \t\r\n]*:[ \t\r\n]*\[')
# Of elements that are not an array, or not such numbers: reading all of it says what is wrong.
_UNREADABLE = (AttributeError, OverflowError, RuntimeError, TypeError, ValueError)


class Repeat:
    """What a body said, apart from the elements of its one tensor."""

    __slots__ = (
        "_after",
        "_before",
        "_count",
        "_datatype",
        "_name",
        "_reply_after",
        "_reply_before",
        "_reply_shape",
        "_shape",
        "form",
        "request",
    )

    def __init__(self, request: InferRequest, form: ReplyForm, before: bytes, after: bytes) -> None:
        self.request = request
        self.form = form
        self._before = before
        self._after = after
        ((self._name, tensor),) = request.inputs.items()
        self._datatype = tensor.datatype
        self._shape = tensor.shape
        self._count = tensor.array.size
        self._reply_shape: tuple[int, ...] | None = None
        self._reply_before = self._reply_after = b""

    def holds_for(self, signature: Signature) -> bool:
        """Whether the request was held against this very *signature*."""
        fit = self.request.fit
        return fit is not None and fit[0] is signature

    def read(self, body: bytes) -> InferRequest | None:
        """The request in *body*, if it is the same but for the elements.

        It is the known request, with other elements: one is done before the next is read.
        """
        before, after = self._before, self._after
        if not (body.startswith(before) and body.endswith(after)):
            return None
        elements = body[len(before) : len(body) - len(after)]
        if elements.find(b"[", 1) > 0:
            return None
        try:
            array = v2_json.numbers(self._datatype, v2_json.parse_strictly(elements))
        except _UNREADABLE:
            return None
        if array.size != self._count:
            return None
        request = self.request
        request.inputs = {self._name: Tensor(self._datatype, array.reshape(self._shape))}
        request.made_s = time.perf_counter()
        return request

    def write(self, response: InferResponse) -> bytes | None:
        """The body of *response*, if it is one numeric output as JSON and nothing else."""
        outputs = response.outputs
        if len(outputs) != 1:
            return None
        (tensor,) = outputs.values()
        array = tensor.array
        if array.shape != self._reply_shape and not self._learn_reply(response, array):
            return None
        elements = v2_json.write(array.ravel())
        if b"null" in elements:  # which is no number: writing all of it names it
            return None
        return b"%b%b%b" % (self._reply_before, elements, self._reply_after)

    def _learn_reply(self, response: InferResponse, array: Array) -> bool:
        """Whether the response's form is known now, but for its elements."""
        ((name, tensor),) = response.outputs.items()
        plain = tensor.datatype != "BF16" and array.dtype.kind in "fiub" and array.itemsize != 2
        if not plain or self.form.is_binary(name) or self.form.spans:
            return False
        head = encode_response(response, self.form).head
        start = head.rindex(b'"data":') + len(b'"data":')  # it comes last, and holds no text
        self._reply_before, self._reply_after = head[:start], head[head.rindex(b"]") - 1 :]
        self._reply_shape = array.shape
        return True


def repeat_of(body: bytes, request: InferRequest, form: ReplyForm) -> Repeat | None:
    """What *body*, which said *request*, would say with other elements; ``None`` where unclear.

    A request with an id of its own will not come again.
    """
    if request.id or len(request.inputs) != 1 or len(body) > _MAX_NBYTES or form.spans:
        return None
    (tensor,) = request.inputs.values()
    key = _KEY.search(body)
    if tensor.datatype in ("BF16", "BOOL", "BYTES") or key is None or body.count(b'"data"') != 1:
        return None
    start, end = key.end() - 1, body.find(b"]", key.end()) + 1
    before, after = body[:start], body[end:]
    around = before + after
    if b"\\" in around:  # a key may be spelled in other ways then
        return None
    if b"shared_memory_region" in around or b"binary_data_size" in around:
        return None  # the tensor may have come from there
    repeat = Repeat(request, form, before, after)
    again = repeat.read(body)
    if again is None:
        return None
    (same,) = again.inputs.values()
    return repeat if np.array_equal(same.array, tensor.array) else None
