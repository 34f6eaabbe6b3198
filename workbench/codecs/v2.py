"""The V2 inference request and response, JSON with or without binary tensors behind it.

The grammar is the Open Inference Protocol's "Inference Request JSON Object"
and Triton's "Binary Tensor Data Extension".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workbench.codecs import v2_binary, v2_json
from workbench.errors import InvalidRequest
from workbench.inference import InferRequest, InferResponse, Parameter
from workbench.tensor import DATATYPES, Tensor, element_count

Json = Any

# numpy's own limits, so that a shape that passes here can be made of any datatype
_MAX_RANK = 64
_MAX_ELEMENTS = 2**59
_SIZE = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class ReplyForm:
    """How a client wants its outputs: as JSON or binary, each or all; some as base64."""

    binary: bool = False
    binary_of: Mapping[str, bool] | None = None
    base64_of: frozenset[str] = frozenset()

    def is_binary(self, output: str) -> bool:
        """Whether *output* goes as binary data; its own wish wins over the request's."""
        return (self.binary_of or {}).get(output, self.binary)


@dataclass(frozen=True, slots=True)
class EncodedResponse:
    """A response body: the JSON, and the binary tensors behind it, if any."""

    head: bytes
    blobs: tuple[bytes | memoryview, ...]


# ── requests ────────────────────────────────────────────────────────────────


def decode_request(
    model: str, version: int | None, body: bytes, header_nbytes: int | None
) -> tuple[InferRequest, ReplyForm]:
    """The request in *body*, of whose bytes the first *header_nbytes* are JSON (``None``: all).

    Numeric tensors from binary data are views of *body*. Raises ``InvalidRequest``.
    """
    if header_nbytes is None:
        head, tail = body, memoryview(b"")
    elif 0 < header_nbytes <= len(body):
        view = memoryview(body)
        head, tail = bytes(view[:header_nbytes]), view[header_nbytes:]
    else:
        raise InvalidRequest(
            f"the length of the JSON header is to be in 1..{len(body)}, got {header_nbytes}"
        )
    message = v2_json.parse(head)
    if not v2_json.is_object(message):
        raise InvalidRequest("the request is not a JSON object")
    inputs = _inputs(message.get("inputs"), tail)
    parameters = _parameters(message.get("parameters"), "the request")
    outputs, form = _outputs(message.get("outputs"), parameters)
    return InferRequest(model, inputs, version, outputs, _id(message), parameters), form


def _id(message: Json) -> str:
    value = message.get("id")
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise InvalidRequest("'id' is not a string")
    text = str(value)
    try:
        text.encode()  # it goes back in the response
    except UnicodeEncodeError:
        raise InvalidRequest("'id' is not Unicode text: it has half of a surrogate pair") from None
    return text


def _inputs(entries: Json, tail: memoryview) -> dict[str, Tensor]:
    if not v2_json.is_array(entries):
        raise InvalidRequest("the request has no list of 'inputs'")
    inputs: dict[str, Tensor] = {}
    offset = 0
    for entry in entries:
        name = _name(entry, "input")
        if name in inputs:
            raise InvalidRequest(f"input {name!r} is given twice")
        inputs[name], taken = _input(name, entry, tail[offset:])
        offset += taken
    if offset != len(tail):
        raise InvalidRequest(f"{len(tail) - offset} bytes of binary data belong to no input")
    return inputs


def _input(name: str, entry: Json, tail: memoryview) -> tuple[Tensor, int]:
    """The tensor of one entry, and how many bytes of *tail* it took."""
    datatype = entry.get("datatype")
    if not isinstance(datatype, str) or datatype not in DATATYPES:
        told = repr(datatype) if isinstance(datatype, str | None) else v2_json.shown(datatype)
        raise InvalidRequest(
            f"input {name!r} has datatype {told}; it is one of {', '.join(DATATYPES)}"
        )
    shape = _shape(name, entry.get("shape"))
    parameters = _parameters(entry.get("parameters"), f"input {name!r}")
    data = entry.get("data")
    size = parameters.get("binary_data_size")
    if data is not None:
        if size is not None:
            raise InvalidRequest(f"input {name!r} has both 'data' and binary data")
        encoding = "base64" if parameters.get("content_type") == "base64" else ""
        return v2_json.decode(name, datatype, shape, data, encoding), 0
    if size is None:
        if datatype == "BYTES" or not tail:
            raise InvalidRequest(f"input {name!r} has neither 'data' nor 'binary_data_size'")
        size = element_count(shape) * DATATYPES[datatype].itemsize  # as OpenVINO lets clients do
    nbytes = _size(name, size)
    if nbytes > len(tail):
        raise InvalidRequest(
            f"input {name!r} is to have {nbytes} bytes of binary data, {len(tail)} are left"
        )
    return v2_binary.decode(name, datatype, shape, tail[:nbytes]), nbytes


def _name(entry: Json, what: str) -> str:
    if not v2_json.is_object(entry):
        raise InvalidRequest(f"an {what} is not a JSON object")
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        raise InvalidRequest(f"an {what} has no 'name'")
    return name


def _shape(name: str, shape: Json) -> tuple[int, ...]:
    if not v2_json.is_array(shape):
        raise InvalidRequest(f"input {name!r} has no 'shape'")
    dims = tuple(shape)
    for dim in dims:
        if isinstance(dim, bool) or not isinstance(dim, int) or dim < 0:
            raise InvalidRequest(f"the shape of input {name!r} is not a list of sizes from 0 up")
    if len(dims) > _MAX_RANK or element_count(tuple(dim or 1 for dim in dims)) > _MAX_ELEMENTS:
        raise InvalidRequest(f"the shape of input {name!r} is larger than any tensor can be")
    return dims


def _size(name: str, size: Parameter) -> int:
    """A whole number; as a string too, since OpenVINO's own sample sends one."""
    if isinstance(size, str) and _SIZE.fullmatch(size):
        size = int(size)
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise InvalidRequest(f"'binary_data_size' of input {name!r} is not a size: {size!r}")
    return size


def _parameters(entries: Json, whose: str) -> dict[str, Parameter]:
    if entries is None:
        return {}
    if not v2_json.is_object(entries):
        raise InvalidRequest(f"the 'parameters' of {whose} are not a JSON object")
    parameters = dict(entries.items())
    for key, value in parameters.items():
        if not isinstance(value, str | int | float | bool):
            raise InvalidRequest(
                f"parameter {key!r} of {whose} is not a string, a number, true or false"
            )
    return parameters


def _outputs(entries: Json, request: dict[str, Parameter]) -> tuple[tuple[str, ...], ReplyForm]:
    every = _flag(request.get("binary_data_output", False), "binary_data_output")
    if entries is None:
        return (), ReplyForm(every)
    if not v2_json.is_array(entries):
        raise InvalidRequest("'outputs' is not a list")
    binary_of: dict[str, bool] = {}
    base64_of: set[str] = set()
    for entry in entries:
        name = _name(entry, "output")
        if name in binary_of:
            raise InvalidRequest(f"output {name!r} is asked for twice")
        parameters = _parameters(entry.get("parameters"), f"output {name!r}")
        binary_of[name] = _flag(parameters.get("binary_data", every), "binary_data")
        if parameters.get("content_type") == "base64":
            base64_of.add(name)
    return tuple(binary_of), ReplyForm(every, binary_of, frozenset(base64_of))


def _flag(value: Parameter, name: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidRequest(f"parameter {name!r} is not true or false: {value!r}")
    return value


# ── responses ───────────────────────────────────────────────────────────────


def encode_response(response: InferResponse, form: ReplyForm) -> EncodedResponse:
    """The body of *response* in the wanted *form*."""
    outputs: list[dict[str, object]] = []
    blobs: list[bytes | memoryview] = []
    for name, tensor in response.outputs.items():
        entry: dict[str, object] = {
            "name": name,
            "datatype": tensor.datatype,
            "shape": tensor.shape,
        }
        if form.is_binary(name):
            blobs.append(v2_binary.encode(tensor))
            entry["parameters"] = {"binary_data_size": len(blobs[-1])}
        else:
            _put_data(entry, name, tensor, form)
        outputs.append(entry)
    message: dict[str, object] = {"id": response.id} if response.id else {}
    message["model_name"] = response.model.name
    message["model_version"] = str(response.model.version)
    message["outputs"] = outputs
    return EncodedResponse(v2_json.write(message), tuple(blobs))


def _put_data(entry: dict[str, object], name: str, tensor: Tensor, form: ReplyForm) -> None:
    encoding = "base64" if name in form.base64_of else ""
    if encoding and tensor.datatype == "BYTES":
        entry["parameters"] = {"content_type": "base64"}
    entry["data"] = v2_json.encode(name, tensor, encoding)
