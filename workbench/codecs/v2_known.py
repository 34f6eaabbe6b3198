"""Recognises requests whose JSON differs from an earlier one only in its id and its numbers.

A client's requests to a model differ in their elements and ids; names, shapes and wanted outputs
stay the same. So the JSON text of a request is remembered in pieces: the text around the values of
its id and its 'data'. In a text with the same pieces, only these values are read. Requests with
binary tensors have a text without 'data'.

The result is the same as that of full parsing: replacing one JSON value by another does not change
how the text around it is read, and between two pieces there must be exactly one value. Any other
text, and any value that is neither numbers nor plain text, is left to ``v2.decode_request``.

What this saves, the most with binary tensors: ``benchmarks/without.py known_text``.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from workbench.codecs import v2_json
from workbench.codecs.json_parser import parse_numbers
from workbench.codecs.nesting import MAX_NESTING
from workbench.codecs.v2 import ReplyForm, RequestRules, decode_request
from workbench.codecs.v2_known_reply import KnownReply
from workbench.inference import Fit, InferRequest
from workbench.tensor import DATATYPES, Tensor

_KNOWN_TEXTS = 8  # to one model
_MISSES = 16  # of so many unknown texts one is remembered, which takes as long as reading it
_MAX_NBYTES = 2**16  # in longer texts most of the time goes into the elements anyway
_MAX_PIECES_NBYTES = 2**12  # texts that are kept
_ID = re.compile(rb'"id"[ \t\r\n]*:[ \t\r\n]*"([^"\\]*)"')
_DATA = re.compile(rb'"data"[ \t\r\n]*:[ \t\r\n]*(\[)')
_BRACKET = re.compile(rb"[\[\]]")
# For elements that are not an array, or not such numbers: full parsing reports the mistake.
_UNREADABLE = (AttributeError, OverflowError, RuntimeError, TypeError, ValueError)
_IS_LITTLE = sys.byteorder == "little"
_view = np.ndarray


@dataclass(slots=True)  # whose attributes are read in a third of the time of a NamedTuple's
class _Input:
    """One input: its *shape*, its *size* in elements, its *nbytes*, and the brackets around it."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    size: int
    nbytes: int
    dtype: np.dtype[Any]
    brackets: int = 0


Body = bytes | memoryview

_Places = list[tuple[int, int, _Input | None]]  # where each value begins and ends; None is the id

_Values = tuple[Body, int, bytes | None, list[bytes]]
"""A body, where its binary tensors begin, its id if these differ, and the texts of its arrays."""

Decoded = tuple[InferRequest, ReplyForm, "KnownText | None"]


class KnownText:
    """The JSON of a request, and its meaning; *form* is that of the wanted reply.

    *fit* is the check that such a request passed; *reply* writes the answers.
    """

    def __init__(
        self,
        text: bytes,
        values: _Places,
        tail: list[_Input],
        request: InferRequest,
        form: ReplyForm,
    ) -> None:
        ends = [end for _, end, _ in values]
        begins = [*(begin for begin, _, _ in values), len(text)]
        self._first = text[: begins[0]]
        # the last piece is looked for from the end: its value may be long
        finds = [*([bytes.find] * len(ends[1:])), bytes.rfind]
        self._rest = [
            (value is None, text[end:begin], find)
            for (_, _, value), end, begin, find in zip(
                values, ends, begins[1:], finds, strict=False
            )
        ]
        self._arrays = [value for _, _, value in values if value is not None]
        self._tail = tail
        self._tail_nbytes = sum(each.nbytes for each in tail)
        self._same = request.id, request.outputs, request.parameters, request.classes
        self.form = form
        self.fit: Fit | None = None
        self.reply = KnownReply(form)

    def cut(self, body: Body, text: bytes, end: int) -> _Values | None:
        """The values in *body*, if its *text*, up to *end*, has these pieces."""
        if end + self._tail_nbytes != len(body) or not text.startswith(self._first):
            return None
        at, id_ = len(self._first), None
        texts: list[bytes] = []
        for is_id, piece, find in self._rest:
            if is_id:
                stop = text.find(b'"', at, end)
                if not text.startswith(piece, stop):
                    return None
                id_ = text[at:stop]
            else:
                stop = find(text, piece, at, end)
                if stop < 0:
                    return None
                texts.append(text[at:stop])
            at = stop + len(piece)
        return (body, at, id_, texts) if at == end else None

    def read(self, model: str, version: int | None, values: _Values) -> InferRequest | None:
        """The request with these *values*; ``None`` if one has another form than the known one."""
        id_ = self._same[0] if values[2] is None else _plain_text(values[2])
        if id_ is None:
            return None
        inputs: dict[str, Tensor] = {}
        for each, text in zip(self._arrays, values[3], strict=True):
            tensor = _tensor(each, text)
            if tensor is None:
                return None
            inputs[each.name] = tensor
        return self._request(model, version, values, id_, inputs)

    def _request(
        self, model: str, version: int | None, values: _Values, id_: str, inputs: dict[str, Tensor]
    ) -> InferRequest:
        body, at, _, _ = values
        for each in self._tail:
            array = _view(each.shape, each.dtype, body, at)
            inputs[each.name] = Tensor(each.datatype, array)
            at += each.nbytes
        _, outputs, parameters, classes = self._same
        # by position: passing *fit* by name takes longer
        fit = self.fit
        return InferRequest(
            model, inputs, version, outputs, id_, parameters, classes, None, None, fit
        )


class KnownTexts:
    """The JSON texts of the requests to one model, of that name and version."""

    def __init__(self, model: str, version: int | None) -> None:
        self._model = model
        self._version = version
        self._texts: list[KnownText] = []
        self._misses = 0

    def decode(self, body: Body, header_nbytes: int | None, rules: RequestRules) -> Decoded:
        """The request, as from ``v2.decode_request``, and its known text, if there is one."""
        model, version = self._model, self._version
        end = len(body) if header_nbytes is None else header_nbytes
        if not 0 < end <= _MAX_NBYTES:
            return (*decode_request(model, version, body, header_nbytes, rules), None)
        text = body if isinstance(body, bytes) else bytes(body[:end])
        for known in self._texts:
            values = known.cut(body, text, end)
            if values is not None:
                request = known.read(model, version, values)
                if request is not None:
                    return request, known.form, known
        request, form = decode_request(model, version, body, header_nbytes, rules)
        if self._misses % _MISSES == 0:
            learned = known_text(body, end, request, form)
            if learned is not None:
                self._texts = [learned, *self._texts[: _KNOWN_TEXTS - 1]]
        self._misses += 1
        return request, form, None


def known_text(body: Body, end: int, request: InferRequest, form: ReplyForm) -> KnownText | None:
    """The text of *body*, which ends at *end* and was read as *request*, to be known again.

    ``None`` if it is not clear which part of the text has which meaning.
    """
    text = bytes(body[:end])
    inputs = [_input(name, tensor) for name, tensor in request.inputs.items()]
    if form.spans or not _is_plain(text, inputs):
        return None
    values: _Places = []
    said = _ID.search(text)
    if request.id and said and text.count(b'"id"') == 1:
        values.append((said.start(1), said.end(1), None))
    arrays = _arrays(text, inputs) if b'"data"' in text else []
    if arrays is None:
        return None
    tail = [] if arrays else inputs
    if end + sum(each.nbytes for each in tail) != len(body):  # such as a text that is not UTF-8
        return None
    values = sorted([*values, *arrays], key=lambda value: value[0])
    if end - sum(stop - start for start, stop, _ in values) > _MAX_PIECES_NBYTES:
        return None
    return KnownText(text, values, tail, request, form)


def _is_plain(text: bytes, inputs: list[_Input]) -> bool:
    """True if *text* has the usual spelling and order, and *inputs* are numbers."""
    if not _IS_LITTLE or b"\\" in text or b"shared_memory" in text:
        return False
    if text.count(b"[") + text.count(b"{") > MAX_NESTING:  # other values may nest as deep
        return False
    return all(each.datatype not in ("BOOL", "BYTES") and each.size for each in inputs)


def _arrays(text: bytes, inputs: list[_Input]) -> _Places | None:
    """The arrays of the 'data' of *inputs*; ``None`` if it is not clear which arrays these are."""
    arrays = [_array_at(text, match.start(1)) for match in _DATA.finditer(text)]
    if not len(arrays) == len(inputs) == text.count(b'"data"'):
        return None  # otherwise each belongs to one input, in their order
    return [
        (begin, end, replace(each, brackets=brackets))
        for (begin, end, brackets), each in zip(arrays, inputs, strict=True)
    ]


def _input(name: str, tensor: Tensor) -> _Input:
    array = tensor.array
    dtype = DATATYPES[tensor.datatype].dtype
    return _Input(name, tensor.datatype, array.shape, array.size, array.nbytes, dtype)


def _array_at(text: bytes, begin: int) -> tuple[int, int, int]:
    """The begin and end of the array at that place, and the number of its brackets."""
    depth = count = 0
    for match in _BRACKET.finditer(text, begin):
        opens = match[0] == b"["
        depth += 1 if opens else -1
        count += opens
        if not depth:
            return begin, match.end(), count
    return begin, len(text), count


def _plain_text(text: bytes) -> str | None:
    """The *text* up to a quote, if it is ASCII without escapes."""
    try:
        said = text.decode("ascii")
    except UnicodeDecodeError:
        return None
    return said if said.isprintable() and "\\" not in said else None


def _tensor(like: _Input, text: bytes) -> Tensor | None:
    if text.find(b"[", 1) > 0 and text.count(b"[") > like.brackets:  # it may be nested deeper
        return None
    try:
        array = v2_json.numbers(like.datatype, parse_numbers(text))
    except _UNREADABLE:
        return None
    if array.size != like.size:
        return None
    return Tensor(like.datatype, array.reshape(like.shape))
