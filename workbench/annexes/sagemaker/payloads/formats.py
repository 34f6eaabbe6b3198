"""From media types to what reads and writes them.

JSON may be the V2 protocol's, whose answer then is V2 too. Of any other media type are arrays
alone: what is not in them, the model's signature says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from workbench.annexes.sagemaker.payloads import media
from workbench.annexes.sagemaker.payloads.arrays import read_npy, read_npz, write_npy, write_npz
from workbench.annexes.sagemaker.payloads.documents import (
    ROWS,
    read_json,
    read_json_lines,
    read_member,
    write_json,
    write_json_lines,
)
from workbench.annexes.sagemaker.payloads.inputs import (
    named_inputs,
    of_array,
    one_input,
    shape_for,
)
from workbench.annexes.sagemaker.payloads.libsvm import read_libsvm
from workbench.annexes.sagemaker.payloads.media import MediaType, choose, parse_media_type
from workbench.annexes.sagemaker.payloads.tables import (
    read_csv,
    read_numbers,
    short_csv_reader,
    text_of,
    write_csv,
)
from workbench.codecs import v2, v2_json
from workbench.errors import InvalidRequest, NotAcceptable
from workbench.http.reply import Reply
from workbench.inference import Fit, InferRequest, InferResponse, check_request
from workbench.model import ModelId, Signature
from workbench.rows import columns_of
from workbench.tensor import Array, Tensor

_V2 = (media.JSON, media.TRITON, *media.PLAIN[1:])
_V2_INPUTS = re.compile(rb'"inputs"\s*:\s*\[\s*\{')
_MANY_SHAPES = 64
_NOTHING: Mapping[str, Any] = {}  # one for all is made faster than one for each
_CSV = MediaType(media.CSV)
_HEADER_LENGTH = "json-header-size"


class PayloadForm(NamedTuple):
    """The form of an answer: *name*, a media type, and JSON as V2 in the form *v2*.

    *as_rows*: plain JSON as "predictions".
    """

    name: str
    v2: v2.ReplyForm | None = None
    as_rows: bool = False


class PayloadRequest:
    """The wish of requests with equal heads: to run the core's model *name*.

    *content_type* and *accept* are as in the headers of these names; JSON if they are empty. A
    body may have *max_nbytes* once it is unpacked. Functions may run only if *functions* is true.
    """

    def __init__(
        self, name: str, content_type: str, accept: str, max_nbytes: int, functions: bool = True
    ) -> None:
        self.name = name
        self.content_type = content_type
        self.accept = accept
        self.max_nbytes = max_nbytes
        self.functions = functions
        self.media_type = parse_media_type(content_type or media.JSON)
        self._reader: _Reader | None = None

    def read(self, body: bytes, signature: Signature) -> tuple[InferRequest, PayloadForm]:
        """The request in *body* to a model of that *signature*, and the form of its answer.

        Raises ``UnknownMediaType``, ``NotAcceptable``, ``InvalidRequest``.
        """
        reader = self._reader
        if reader is None or reader.signature is not signature:
            reader = self._reader = _Reader(self, signature)
        return reader.read(body)


class _Reader:
    """Reads bodies of what is *asked*, of a model of that *signature*.

    What follows from both is found out once, for all bodies.
    """

    def __init__(self, asked: PayloadRequest, signature: Signature) -> None:
        self.signature = signature
        self._asked = asked
        self._is_json = asked.media_type.name == media.JSON
        self._short: v2_json.ShortReader | None = None
        self._shapes: dict[tuple[int, ...], tuple[tuple[int, ...], Fit | None]] = {}
        if len(signature.inputs) == 1:
            (self._only,) = signature.inputs.values()
            if self._is_json:
                self._short = v2_json.short_reader(self._only.datatype)
            elif asked.media_type == _CSV:
                self._short = short_csv_reader(self._only.datatype)

    def read(self, body: bytes) -> tuple[InferRequest, PayloadForm]:
        """See ``PayloadRequest.read``."""
        if self._short is None:
            return self._read_any(body)
        array, is_rows = self._short(body), False
        if array is None and self._is_json:
            array, is_rows = read_member(body, self._short, named=bool(self.signature.columns))
        if array is None:
            return self._read_any(body)
        shape, fit = self._shapes.get(array.shape) or self._learn(array)
        inputs = {self._only.name: Tensor(self._only.datatype, array.reshape(shape))}
        request = InferRequest(
            self._asked.name, inputs, parameters=_NOTHING, classes=_NOTHING, fit=fit
        )
        return request, self._rows if is_rows and ROWS not in inputs else self._plain

    def _learn(self, array: Array) -> tuple[tuple[int, ...], Fit | None]:
        """The shape in which the model takes *array*, and that it fits, if it does."""
        name, spec, fit = self._asked.name, self._only, None
        shape = shape_for(spec, array.shape)
        inputs = {spec.name: Tensor(spec.datatype, array.reshape(shape))}
        with suppress(InvalidRequest):  # which the run reports
            fit = check_request(ModelId(name, 1), self.signature, InferRequest(name, inputs))
        if len(self._shapes) >= _MANY_SHAPES:
            self._shapes.clear()
        self._shapes[array.shape] = shape, fit
        return shape, fit

    @cached_property
    def _plain(self) -> PayloadForm:
        """The form of an answer that is nothing but arrays. Raises ``NotAcceptable``."""
        n_outputs = len(self.signature.outputs)
        return PayloadForm(_holding(n_outputs, self._asked.accept, media.PLAIN))

    @cached_property
    def _rows(self) -> PayloadForm:
        return self._plain._replace(as_rows=True)

    def _read_any(self, body: bytes) -> tuple[InferRequest, PayloadForm]:
        asked, signature, header_nbytes = self._asked, self.signature, None
        if asked.media_type.name == media.TRITON:
            header_nbytes = _header_nbytes(asked.media_type, len(body))
        is_v2 = self._is_json and b'"inputs"' in body and _V2_INPUTS.search(body)
        if is_v2 and columns_of(signature) and b'"datatype"' not in body:
            is_v2 = None  # they are rows
        if header_nbytes is not None or is_v2:
            if header_nbytes == 0:
                request, form = v2.decode_raw(asked.name, None, body, signature)
            else:
                rules = v2.RequestRules(describe=lambda: signature)
                request, form = v2.decode_request(asked.name, None, body, header_nbytes, rules)
            n_outputs = len(request.outputs or signature.outputs)
            return request, PayloadForm(_holding(n_outputs, asked.accept, _V2), form)
        if asked.media_type.name not in media.KNOWN:
            raise media.not_read(asked.media_type.name)
        plain = self._plain
        try:
            inputs, as_rows = self._inputs(body)
        except InvalidRequest as error:
            if asked.content_type:
                raise
            told = f"{error}; without a Content-Type a body is read as JSON"
            raise InvalidRequest(told) from None
        return InferRequest(asked.name, inputs), self._rows if as_rows else plain

    def _inputs(self, body: bytes) -> tuple[dict[str, Tensor], bool]:
        """The inputs that are nothing but arrays; and whether they came as rows of JSON."""
        media_type, signature = self._asked.media_type, self.signature
        if self._is_json:
            return read_json(body, signature)
        if media_type.name == media.JSON_LINES:
            return read_json_lines(body, signature), False
        if media_type.name == media.CSV:
            return read_csv(body, media_type, signature), False
        if media_type.name == media.LIBSVM:
            shape = signature.main_input.shape if signature.main_input else ()
            text, width = text_of(body, media_type), (-1, *shape[1:])[-1]
            rows = read_libsvm(text, width, self._asked.max_nbytes)
            return one_input(signature, rows, of_array), False
        arrays = read_arrays(body, media_type, self._asked.max_nbytes)
        if not isinstance(arrays, Mapping):
            return one_input(signature, arrays, of_array), False
        return named_inputs(signature, arrays, of_array, lambda array: array.ndim > 1), False


def read_arrays(body: bytes, media_type: MediaType, max_nbytes: int) -> Array | Mapping[str, Array]:
    """The arrays in a *body* of numbers in rows, or of numpy's.

    Raises ``UnknownMediaType``, ``InvalidRequest``.
    """
    if media_type.name == media.CSV:
        return read_numbers(body, media_type)
    if media_type.name == media.LIBSVM:
        return read_libsvm(text_of(body, media_type), -1, max_nbytes)
    if media_type.name == media.NPY:
        return read_npy(body)
    if media_type.name == media.NPZ:
        return read_npz(body, max_nbytes)
    raise media.not_read(media_type.name)


def _holding(n_outputs: int, accept: str, offers: tuple[str, ...]) -> str:
    """The best of *offers* for *accept* that holds so many outputs: npy holds one, without a name.

    Raises ``NotAcceptable``.
    """
    name = choose(accept, offers)
    if n_outputs == 1 or name != media.NPY:
        return name
    try:
        return choose(accept, tuple(each for each in offers if each != media.NPY))
    except NotAcceptable:
        raise NotAcceptable(f"{name} holds one output, and the answer has {n_outputs}") from None


def _header_nbytes(media_type: MediaType, nbytes: int) -> int:
    """The bytes of JSON in a body of Triton's media type."""
    text = media_type.parameters.get(_HEADER_LENGTH, "")
    if not text.isascii() or not text.isdigit() or len(text) > 18 or int(text) > nbytes:
        raise InvalidRequest(
            f"{media.TRITON} must say {_HEADER_LENGTH}=N, the bytes of its JSON, of which the "
            f"body has {nbytes}; it says {text[:40]!r}"
        )
    return int(text)


def encode(response: InferResponse, form: PayloadForm) -> Reply:
    """The answer in that *form*. Raises ``InvalidRequest`` for what the form cannot hold."""
    outputs = response.outputs
    if form.v2 is not None and form.name in (media.JSON, media.TRITON):
        parts = v2.encode_response(response, form.v2)
        length = f"{media.TRITON};{_HEADER_LENGTH}={len(parts[0])}"
        return Reply(200, content_type(media.JSON if len(parts) == 1 else length), parts)
    if form.name == media.JSON:
        body = write_json(outputs, as_rows=form.as_rows)
    else:
        body = _WRITERS[form.name](outputs)
    return Reply(200, content_type(form.name), (body,))


@lru_cache(maxsize=256)  # always the same objects, so that a connection knows their lines
def content_type(name: str) -> tuple[tuple[bytes, bytes], ...]:
    """The header of a reply in the media type *name*."""
    return ((b"content-type", name.encode()),)


def _write_npy(outputs: Mapping[str, Tensor]) -> bytes:
    if len(outputs) != 1:
        raise NotAcceptable(f"{media.NPY} holds one output, and the answer has {len(outputs)}")
    return write_npy(*next(iter(outputs.items())))


_WRITERS: dict[str, Callable[[Mapping[str, Tensor]], bytes]] = {
    media.JSON_LINES: write_json_lines,
    media.CSV: write_csv,
    media.NPZ: write_npz,
    media.NPY: _write_npy,
}
