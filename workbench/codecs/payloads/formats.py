"""From media types to what reads and writes them.

JSON may be the V2 protocol's, whose answer then is V2 too. Of any other media type are arrays
alone: what is not in them, the model's signature says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

from workbench.codecs import v2, v2_binary, v2_json
from workbench.codecs.payloads import media
from workbench.codecs.payloads.arrays import read_npy, read_npz, write_npy, write_npz
from workbench.codecs.payloads.documents import (
    ROWS,
    read_json,
    read_json_lines,
    read_member,
    write_json,
    write_json_lines,
)
from workbench.codecs.payloads.media import MediaType, choose, parse_media_type
from workbench.codecs.payloads.tables import (
    read_csv,
    read_libsvm,
    read_named_csv,
    short_csv_reader,
    without_empty,
    write_csv,
)
from workbench.codecs.payloads.tensors import Arrays, inputs_of, only_input, shape_for
from workbench.errors import InvalidRequest, NotAcceptable, UnknownMediaType
from workbench.inference import Fit, InferRequest, InferResponse, check_request
from workbench.model import ModelId, Signature, TensorSpec
from workbench.rows import columns_of
from workbench.tensor import Array, Tensor

T = TypeVar("T")

Parts = tuple[bytes | memoryview, ...]

READ = (
    media.JSON, media.CSV, media.NPY, media.NPZ, media.JSON_LINES, media.LIBSVM, media.OCTETS,
    media.TRITON,
)  # fmt: skip
_OF_ONE = (media.NPY, media.OCTETS)  # which hold one array, without a name
PLAIN = (media.JSON, media.CSV, media.NPY, media.NPZ, media.JSON_LINES, media.OCTETS)
_V2 = (media.JSON, media.TRITON, *PLAIN[1:])

_V2_INPUTS = re.compile(rb'"inputs"\s*:\s*\[\s*\{')
_TABLES = (media.CSV, media.LIBSVM)
_MANY_SHAPES = 64
_NOTHING: Mapping[str, Any] = {}  # one for all is made faster than one for each
_CSV = MediaType(media.CSV)
_ANY = TensorSpec("", "FP64", ())  # rows of numbers, however many
_HEADER_LENGTH = "json-header-size"


class Payload(NamedTuple):
    """The body of an answer, in *parts*, and its media type; the code of an artifact adds more."""

    content_type: str
    parts: Parts
    headers: tuple[tuple[bytes, bytes], ...] = ()
    status: int = 200


class PayloadForm(NamedTuple):
    """How a client wants its answer: as *name* (a media type), JSON as V2 in the form *v2*.

    *as_rows*: plain JSON as "predictions".
    """

    name: str
    v2: v2.ReplyForm | None = None
    as_rows: bool = False


class Decoder:
    """Reads bodies of one Content-Type for a *model*, to be answered as one Accept says.

    Both as in the headers of these names; JSON if they are empty. What follows from them and from
    the *signature* of the model is found out once, for all bodies.
    """

    def __init__(
        self, model: str, content_type: str, accept: str, signature: Signature, max_nbytes: int
    ) -> None:
        self.signature = signature
        self._model = model
        self._accept = accept
        self._max_nbytes = max_nbytes
        self._media_type = parse_media_type(content_type or media.JSON)
        self._is_told = bool(content_type)
        self._short: v2_json.ShortReader | None = None
        self._is_json = self._media_type.name == media.JSON
        if len(signature.inputs) == 1:
            (self._only,) = signature.inputs.values()
            if self._is_json:
                self._short = v2_json.short_reader(self._only.datatype)
            elif self._media_type == _CSV:
                self._short = short_csv_reader(self._only.datatype)
        self._has_columns = bool(columns_of(signature))
        self._known: dict[tuple[int, ...], _KnownShape] = {}

    def read(self, body: bytes) -> tuple[InferRequest, PayloadForm]:
        """The request in *body*, and the form of its answer.

        Raises ``UnknownMediaType``, ``NotAcceptable``, ``InvalidRequest``.
        """
        if self._short is None:
            return self._read_any(body)
        array, is_rows = self._short(body), False
        if array is None:
            if self._is_json:
                named = bool(self.signature.columns)
                array, is_rows = read_member(body, self._short, named=named)
            if array is None:
                return self._read_any(body)
        known = self._known.get(array.shape) or self._learn(array)
        if known.taken is not None:
            array = array.reshape(known.taken)
        inputs = {self._only.name: Tensor(self._only.datatype, array)}
        request = InferRequest(
            self._model, inputs, parameters=_NOTHING, classes=_NOTHING, fit=known.fit
        )
        return request, self._rows if is_rows and ROWS not in inputs else self._plain

    def _learn(self, array: Array) -> _KnownShape:
        """The model's word on arrays of the shape of *array*."""
        spec, shape = self._only, array.shape
        taken = shape_for(spec, shape)
        inputs = {spec.name: Tensor(spec.datatype, array.reshape(taken))}
        request, of = InferRequest(self._model, inputs), ModelId(self._model, 1)
        fit = None
        with suppress(InvalidRequest):  # which the run reports
            fit = check_request(of, self.signature, request)
        if len(self._known) >= _MANY_SHAPES:
            self._known.clear()
        known = self._known[shape] = _KnownShape(None if taken == shape else taken, fit)
        return known

    @cached_property
    def _plain(self) -> PayloadForm:
        """The form of an answer that is nothing but arrays. Raises ``NotAcceptable``."""
        return PayloadForm(_holding(len(self.signature.outputs), self._accept, PLAIN))

    @cached_property
    def _rows(self) -> PayloadForm:
        return self._plain._replace(as_rows=True)

    def _read_any(self, body: bytes) -> tuple[InferRequest, PayloadForm]:
        model, signature = self._model, self.signature
        media_type, header_nbytes = self._media_type, None
        if media_type.name == media.TRITON:
            header_nbytes = _header_nbytes(media_type, len(body))
        if header_nbytes == 0:
            request, form = v2.decode_raw(model, None, body, signature)
            return request, _v2_form(self._accept, request, signature, form)
        is_v2 = media_type.name == media.JSON and b'"inputs"' in body and _V2_INPUTS.search(body)
        if is_v2 and self._has_columns and b'"datatype"' not in body:
            is_v2 = None  # they are rows
        if header_nbytes is not None or is_v2:
            rules = v2.RequestRules(describe=lambda: signature)
            request, form = v2.decode_request(model, None, body, header_nbytes, rules)
            return request, _v2_form(self._accept, request, signature, form)
        if media_type.name not in READ:
            raise UnknownMediaType(
                f"a body of media type {media_type.name!r} is not read; these are: "
                f"{', '.join(READ)}"
            )
        plain = self._plain
        if media_type.name == media.OCTETS:
            return v2.decode_raw(model, None, body, signature)[0], plain
        try:
            inputs, as_rows = _plain_inputs(body, media_type, signature, self._max_nbytes)
        except InvalidRequest as error:
            if self._is_told:
                raise
            told = f"{error}; without a Content-Type a body is read as JSON"
            raise InvalidRequest(told) from None
        return InferRequest(model, inputs), self._rows if as_rows else plain


class _KnownShape(NamedTuple):
    """The shape in which the model takes arrays of one, if it is another; *fit* if it does."""

    taken: tuple[int, ...] | None
    fit: Fit | None


def _v2_form(
    accept: str, request: InferRequest, signature: Signature, form: v2.ReplyForm
) -> PayloadForm:
    """The form of the answer to a V2 *request*. Raises ``NotAcceptable``."""
    n_outputs = len(request.outputs or signature.outputs)
    return PayloadForm(_holding(n_outputs, accept, _V2), form)


def _holding(n_outputs: int, accept: str, offers: tuple[str, ...]) -> str:
    """The one of *offers* that *accept* likes best of those that hold so many outputs.

    Raises ``NotAcceptable``.
    """
    name = choose(accept, offers)
    if n_outputs == 1 or name not in _OF_ONE:
        return name
    try:
        return choose(accept, tuple(each for each in offers if each not in _OF_ONE))
    except NotAcceptable:
        raise NotAcceptable(f"{name} holds one output, and the answer has {n_outputs}") from None


def _plain_inputs(
    body: bytes, media_type: MediaType, signature: Signature, max_nbytes: int
) -> tuple[dict[str, Tensor], bool]:
    """The inputs that are nothing but arrays; and whether they came as rows of JSON."""
    if media_type.name == media.JSON:
        return read_json(body, signature)
    if media_type.name == media.JSON_LINES:
        return read_json_lines(body, signature), False
    if media_type.name == media.CSV and columns_of(signature):
        columns = read_named_csv(body, media_type, signature)
        if columns is not None:
            return inputs_of(columns, signature), False
    spec = only_input(signature) if media_type.name in _TABLES else _ANY
    return inputs_of(read_arrays(body, media_type, max_nbytes, spec), signature), False


def read_arrays(
    body: bytes, media_type: MediaType, max_nbytes: int, spec: TensorSpec = _ANY
) -> Arrays:
    """The arrays in a *body* of rows for the input *spec*, or of numpy's.

    Raises ``UnknownMediaType``, ``InvalidRequest``.
    """
    if media_type.name == media.CSV:
        cells = read_csv(body, media_type, spec.datatype)
        return without_empty(cells) if spec.missing else cells
    if media_type.name == media.LIBSVM:
        return read_libsvm(body, media_type, (-1, *spec.shape[1:])[-1], max_nbytes)
    if media_type.name == media.NPY:
        return read_npy(body)
    if media_type.name == media.NPZ:
        return read_npz(body, max_nbytes)
    raise UnknownMediaType(f"a body of media type {media_type.name!r} holds no arrays")


def _header_nbytes(media_type: MediaType, nbytes: int) -> int:
    """How much of a body in Triton's media type is JSON."""
    text = media_type.parameters.get(_HEADER_LENGTH, "")
    if not text.isascii() or not text.isdigit() or len(text) > 18 or int(text) > nbytes:
        raise InvalidRequest(
            f"{media.TRITON} must say {_HEADER_LENGTH}=N, the bytes of its JSON, of which the "
            f"body has {nbytes}; it says {text[:40]!r}"
        )
    return int(text)


def encode(response: InferResponse, form: PayloadForm) -> Payload:
    """The answer in that *form*. Raises ``InvalidRequest`` for what the form cannot hold."""
    if form.v2 is not None and form.name in (media.JSON, media.TRITON):
        encoded = v2.encode_response(response, form.v2)
        if len(encoded) == 1:
            return Payload(media.JSON, (encoded[0],))
        content_type = f"{media.TRITON};{_HEADER_LENGTH}={len(encoded[0])}"
        return Payload(content_type, encoded)
    if form.name == media.JSON:
        return Payload(media.JSON, (write_json(response.outputs, as_rows=form.as_rows),))
    return Payload(form.name, (_WRITERS[form.name](response.outputs),))


def _only(values: Iterable[T], name: str) -> T:
    """The only one of *values*, which are outputs."""
    found = tuple(values)
    if len(found) != 1:
        raise NotAcceptable(f"{name} holds one output, and the answer has {len(found)}")
    return found[0]


_WRITERS: dict[str, Callable[[Mapping[str, Tensor]], bytes | memoryview]] = {
    media.JSON_LINES: write_json_lines,
    media.CSV: write_csv,
    media.NPZ: write_npz,
    media.NPY: lambda outputs: write_npy(*_only(outputs.items(), media.NPY)),
    media.OCTETS: lambda outputs: v2_binary.encode(_only(outputs.values(), media.OCTETS)),
}
