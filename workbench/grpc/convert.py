"""Converts between the messages of the V2 data plane and the core's requests and responses.

Raw contents go both ways without a copy of their own: large ones are views of the received message,
and outputs are appended to the rest of the reply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError, Message

from workbench.codecs import v2, v2_binary, v2_json
from workbench.codecs.v2_parameters import (
    RegionSpan,
    ask_for,
    check_kinds,
    check_not_reserved,
    span_of,
)
from workbench.core import Describe
from workbench.errors import InvalidRequest
from workbench.inference import InferRequest, InferResponse, Parameter
from workbench.model import ModelId, is_version
from workbench.protobuf_fields import varint
from workbench.protos import message_class
from workbench.tensor import DATATYPES, Tensor, element_count

Carried = Callable[[str, Tensor], bytes | memoryview]  # what a reply carries of an output

_REQUEST = message_class("grpc_service", "inference.ModelInferRequest")
_RESPONSE = message_class("grpc_service", "inference.ModelInferResponse")
_STREAM_RESPONSE = message_class("grpc_service", "inference.ModelStreamInferResponse")

_RAW_INPUT = 7 << 3 | 2  # the first bytes of a field with that number and a length
_RAW_OUTPUT = bytes((6 << 3 | 2,))
_INFER_RESPONSE = bytes((2 << 3 | 2,))
_EMPTY_END = "triton_enable_empty_final_response"
_FINAL = "triton_final_response"
_MANY_HEADS = 256  # of replies
_COPIED_NBYTES = 2**14  # a smaller message is copied faster than it is searched

_CONTENTS = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}


def parse(kind: type[Message], data: bytes) -> Any:
    """The message of that *kind* in *data*. Raises ``InvalidRequest``."""
    try:
        return kind.FromString(data)
    except DecodeError as error:
        name = kind.DESCRIPTOR.full_name
        raise InvalidRequest(f"the request is not a message {name!r}: {error}") from None


def version_of(text: str) -> int | None:
    """The version in a client's *text*, ``None`` if it is empty. Raises ``InvalidRequest``."""
    if not text:
        return None
    if not is_version(text):
        raise InvalidRequest(f"{text[:100]!r} is not a version: a version is a whole number from 1")
    return int(text)


class InferMessage:
    """A ``ModelInferRequest`` in *data*, by *rules*; *write_region* is for outputs.

    Only if *functions* is true may functions run for it. ``check`` comes first; it finds *version*
    and *wants_empty_end*, for streams: whether the client wants an empty reply after the last one.
    Raises ``InvalidRequest``.
    """

    def __init__(
        self, data: bytes, rules: v2.RequestRules, write_region: v2.WriteRegion | None = None
    ) -> None:
        found = _split(data) if len(data) > _COPIED_NBYTES else None
        self._raw: Sequence[memoryview] | None
        head, self._raw = found or (data, None)
        self._is_large = len(data) > _COPIED_NBYTES
        self._rules, self._write_region = rules, write_region
        self.functions = True
        self.headers: Sequence[tuple[str, str | bytes]] = ()  # the metadata of its call
        self._shares = False
        self._is_typed = False  # whether its contents are typed, as those of its replies are then
        self._carried: Carried | None = None  # of its outputs, what replies carry, if not all
        self.message = parse(_REQUEST, head)
        self.name: str = self.message.model_name
        self.version: int | None = None
        self.wants_empty_end = False

    def check(self) -> None:
        """Check what must be known before the model is found. Raises ``InvalidRequest``."""
        message = self.message
        if message.model_version:
            self.version = version_of(message.model_version)
        if message.parameters:
            self.wants_empty_end = _wants_empty_end(message.parameters)

    def read(self, describe: Describe) -> InferRequest:
        """The request. Raises ``InvalidRequest``, ``NotSupported``."""
        message = self.message
        if self._is_large:
            self._rules = replace(self._rules, describe=describe)
        raw = self._raw
        if raw is None:
            raw = [memoryview(each) for each in message.raw_input_contents]
        request = InferRequest(self.name, self._inputs(message.inputs, raw), self.version)
        request.id = message.id
        request.functions = self.functions
        request.headers = self.headers
        if message.parameters:
            request.parameters = _parameters(message.parameters, "the request")
            check_kinds(request.parameters)
            for parameter in request.parameters:
                check_not_reserved(parameter)
        if message.outputs:
            spans = _ask_for(message.outputs, request)
            if spans:
                self._shares, self._carried = True, partial(_carried, spans, self._write_region)
        self._is_typed = bool(request.inputs) and not (raw or self._shares)
        return request

    def encode(self, response: InferResponse) -> bytes:
        """The ``ModelInferResponse`` of *response*. Raises as ``v2.write_shared`` does."""
        return b"".join(_parts(response, self._carried, self._is_typed))

    def encode_in_stream(self, response: InferResponse) -> bytes:
        """The ``ModelStreamInferResponse`` of *response*, which says whether it is the last one.

        See ``encode``.
        """
        parts = _parts(response, self._carried, self._is_typed, response.final)
        return b"".join((_INFER_RESPONSE, varint(sum(map(len, parts))), *parts))

    def _inputs(self, entries: Any, raw: Sequence[memoryview]) -> dict[str, Tensor]:
        inputs: dict[str, Tensor] = {}
        left = iter(raw)
        for entry in entries:
            name = entry.name
            if not name:
                raise InvalidRequest("an input has no name")
            if name in inputs:
                raise InvalidRequest(f"input {name!r} is given twice")
            datatype = entry.datatype
            if datatype not in DATATYPES:
                known = ", ".join(DATATYPES)
                raise InvalidRequest(
                    f"input {name!r} has datatype {datatype!r}; it is one of {known}"
                )
            shape = v2.check_shape(name, tuple(entry.shape))
            v2.check_taken(name, datatype, self._rules)
            if entry.parameters and (span := self._span(entry)) is not None:
                read_region = self._rules.read_region
                inputs[name] = v2.read_shared(name, datatype, shape, span, read_region)
            elif raw:
                if entry.HasField("contents") and entry.contents.ListFields():
                    raise InvalidRequest(
                        f"input {name!r} has 'contents', and the request 'raw_input_contents': "
                        "it must have one of them"
                    )
                inputs[name] = v2_binary.decode(name, datatype, shape, self._next(left, name))
            else:
                inputs[name] = self._typed(name, datatype, shape, entry.contents)
        if next(left, None) is not None:
            raise InvalidRequest(
                f"{len(raw)} raw contents for {len(entries)} inputs of model {self.name!r}: "
                "each input has one, unless it is in shared memory"
            )
        return inputs

    def _span(self, entry: Any) -> RegionSpan | None:
        """The input's place in shared memory, if it is there."""
        whose = f"input {entry.name!r}"
        span = span_of(_parameters(entry.parameters, whose), whose)
        if span is not None:
            self._shares = True
            if entry.contents.ListFields():
                raise InvalidRequest(f"{whose} has both shared memory and 'contents'")
        return span

    def _next(self, left: Iterator[memoryview], name: str) -> memoryview:
        data = next(left, None)
        if data is None:
            raise InvalidRequest(f"the request has no data for input {name!r}")
        return data

    def _typed(self, name: str, datatype: str, shape: tuple[int, ...], contents: Any) -> Tensor:
        field = _CONTENTS.get(datatype)
        if field is None:
            raise InvalidRequest(
                f"input {name!r} is {datatype}, which only 'raw_input_contents' can carry"
            )
        for given, _ in contents.ListFields():
            if given.name != field:
                raise InvalidRequest(
                    f"the data of input {name!r}, {datatype}, goes into {field!r}, not "
                    f"{given.name!r}"
                )
        values, count = getattr(contents, field), element_count(shape)
        if len(values) != count:
            raise InvalidRequest(
                f"input {name!r} has {len(values)} elements; shape {list(shape)} takes {count}"
            )
        dtype = DATATYPES[datatype].dtype
        if dtype.kind in "iu" and dtype.itemsize < 4:  # in a field of 32 bits
            try:
                array = v2_json.narrowed(datatype, dtype, np.array(values, np.int64))
            except OverflowError as error:
                raise InvalidRequest(f"input {name!r}: {error}") from None
        else:
            array = np.array(values, dtype)
        return Tensor(datatype, array.reshape(shape))


def _split(data: bytes) -> tuple[bytes, list[memoryview]] | None:
    """The request without its raw contents, and views of these; ``None`` if its form is unusual.

    protobuf copies them twice: out of the message, and out of its own memory.
    """
    whole = memoryview(data)
    rest: list[memoryview] = []
    raw: list[memoryview] = []
    at, end = 0, len(data)
    while at < end:
        start, tag = at, data[at]
        length, shift = 0, 0
        while True:
            at += 1
            if at == end or shift > 35:
                return None
            length |= (data[at] & 0x7F) << shift
            shift += 7
            if data[at] < 0x80:
                break
        at += 1
        if tag & 7 != 2 or tag >= 0x80 or at + length > end:  # no known field looks like this
            return None
        if tag == _RAW_INPUT:
            raw.append(whole[at : at + length])
        else:
            rest.append(whole[start : at + length])
        at += length
    return b"".join(rest), raw


def _wants_empty_end(parameters: Any) -> bool:
    """Takes the wish out of *parameters*; perf_analyzer has it also where no stream is."""
    if _EMPTY_END not in parameters:
        return False
    value = parameters.pop(_EMPTY_END)
    if value.WhichOneof("parameter_choice") != "bool_param":
        raise InvalidRequest(f"parameter {_EMPTY_END!r} is not a bool_param")
    return bool(value.bool_param)


def _parameters(entries: Mapping[str, Any], whose: str) -> dict[str, Parameter]:
    parameters: dict[str, Parameter] = {}
    for key, value in entries.items():
        kind = value.WhichOneof("parameter_choice")
        if kind is None:
            raise InvalidRequest(f"parameter {key!r} of {whose} has no value of a known kind")
        parameters[key] = getattr(value, kind)
    return parameters


def _ask_for(entries: Iterable[Any], request: InferRequest) -> dict[str, RegionSpan]:
    """Note which outputs are wanted, and which as classes; where those in shared memory go."""
    wanted: dict[str, None] = {}
    spans: dict[str, RegionSpan] = {}
    classes: dict[str, int] = {}
    for entry in entries:
        name = entry.name
        if not name:
            raise InvalidRequest("an output has no name")
        if name in wanted:
            raise InvalidRequest(f"output {name!r} is asked for twice")
        wanted[name] = None
        if entry.parameters:
            parameters = _parameters(entry.parameters, f"output {name!r}")
            ask_for(name, parameters, classes, spans)
    request.outputs = tuple(wanted)
    request.classes = classes
    return spans


def _carried(
    spans: Mapping[str, RegionSpan], write_region: v2.WriteRegion | None, name: str, tensor: Tensor
) -> bytes | memoryview:
    """The output as bytes; none if it goes into one of *spans*, as Triton has it."""
    span = spans.get(name)
    if span is None:
        return v2_binary.encode(tensor)
    v2.write_shared(name, tensor, span, write_region)
    return b""


# ── replies ─────────────────────────────────────────────────────────────────


def _parts(
    response: InferResponse,
    carried: Carried | None = None,
    typed: bool = False,
    final: bool | None = None,
) -> list[Any]:
    """The reply; of its outputs what *carried* says, or all. *typed*: not raw, if all can be so."""
    outputs = response.outputs.items()
    layout = tuple([(name, each.datatype, each.array.shape) for name, each in outputs])
    typed = typed and all(datatype in _CONTENTS for _, datatype, _ in layout)
    parts: list[Any] = [_typed(response) if typed else _head(response.model, layout)]
    if response.id or response.parameters or final is not None:
        message: Any = _RESPONSE(id=response.id)
        for key, value in (response.parameters or {}).items():
            set_parameter(message.parameters[key], value)
        if final is not None:
            message.parameters[_FINAL].bool_param = final
        parts.append(message.SerializeToString())
    for name, tensor in () if typed else outputs:
        data = v2_binary.encode(tensor) if carried is None else carried(name, tensor)
        parts += (_RAW_OUTPUT, varint(len(data)), data)
    return parts


def _typed(response: InferResponse) -> bytes:
    """As ``_head``, with the typed contents of each output."""
    message: Any = _RESPONSE.FromString(_head(response.model, ()))
    for name, tensor in response.outputs.items():
        array = tensor.array.reshape(-1)
        output = message.outputs.add(name=name, datatype=tensor.datatype, shape=tensor.array.shape)
        # a view's elements are numbers of Python's, which a list of all would hold at once
        values = array if tensor.datatype == "BYTES" else array.data
        getattr(output.contents, _CONTENTS[tensor.datatype]).extend(values)
    return bytes(message.SerializeToString())


@lru_cache(_MANY_HEADS)
def _head(model: ModelId, layout: tuple[tuple[str, str, tuple[int, ...]], ...]) -> bytes:
    """The start of a reply of *model*: the name, datatype and shape of each output."""
    message: Any = _RESPONSE(model_name=model.name, model_version=str(model.version))
    for name, datatype, shape in layout:
        message.outputs.add(name=name, datatype=datatype, shape=shape)
    return bytes(message.SerializeToString())


def error_in_stream(told: str, request_id: str) -> bytes:
    """The ``ModelStreamInferResponse`` for the request of that id, which failed."""
    message: Any = _STREAM_RESPONSE(error_message=told)
    message.infer_response.id = request_id
    message.infer_response.parameters[_FINAL].bool_param = True
    return bytes(message.SerializeToString())


def set_parameter(message: Any, value: Parameter) -> None:
    """Set the field of an ``InferParameter`` that fits *value*."""
    if isinstance(value, bool):
        message.bool_param = value
    elif isinstance(value, int):
        field = "int64_param" if value < 2**63 else "uint64_param"
        setattr(message, field, value)
    elif isinstance(value, float):
        message.double_param = value
    else:
        message.string_param = value
