"""The V2 inference request and response, JSON with or without binary tensors behind it.

The grammar is the Open Inference Protocol's "Inference Request JSON Object"
and Triton's "Binary Tensor Data Extension".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from workbench.codecs import v2_binary, v2_json
from workbench.codecs.json_parser import Json
from workbench.codecs.v2_parameters import (
    SURROGATES,
    RegionSpan,
    ask_for,
    check_kinds,
    check_not_reserved,
    size_of,
    span_of,
)
from workbench.errors import InvalidRequest, NotSupported
from workbench.inference import InferRequest, InferResponse, Parameter
from workbench.model import Signature, shown_name
from workbench.tensor import DATATYPES, MAX_RANK, Tensor, element_count

ReadRegion = Callable[[str, int, int], memoryview]  # the region's name, offset, nbytes
WriteRegion = Callable[[str, int, bytes | memoryview], None]  # name, offset, data

MAX_ELEMENTS = 2**59
"""The most elements of one tensor: as many as numpy holds of any datatype."""

_OFF = "that is off: start the server with shared_memory='on' to allow it"
_NO_BYTES = memoryview(b"")
_NO_PARAMETERS: Mapping[str, Parameter] = {}
# Operators take positions, sizes and choices of these types. They check or count them, and then
# read them again: a client that changes them meanwhile could end the process.
_CHECKED = frozenset(("INT32", "INT64", "BOOL"))


@dataclass(frozen=True, slots=True)
class RequestRules:
    """The memory that a server shares with clients, if any.

    *describe* returns the model's signature, for what takes long to read: it is refused before.
    """

    read_region: ReadRegion | None = None
    describe: Callable[[], Signature] | None = None


@dataclass(frozen=True, slots=True)
class ReplyForm:
    """How a client wants its outputs: as JSON or binary, each or all; some as base64.

    Those in *spans* go into shared memory instead.
    """

    binary: bool = False
    binary_of: Mapping[str, bool] | None = None
    base64_of: frozenset[str] = frozenset()
    spans: Mapping[str, RegionSpan] | None = None

    def is_binary(self, output: str) -> bool:
        """True if *output* goes as binary data; its own wish wins over the request's."""
        return (self.binary_of or {}).get(output, self.binary)


_JSON_FORM = ReplyForm()
_BINARY_FORM = ReplyForm(binary=True)


EncodedResponse = tuple[bytes, *tuple[bytes | memoryview, ...]]
"""A response body in parts: the JSON, and the binary tensors behind it, if any."""


# ── requests ────────────────────────────────────────────────────────────────


def decode_request(
    model: str,
    version: int | None,
    body: bytes | memoryview,
    header_nbytes: int | None,
    rules: RequestRules = RequestRules(),  # frozen
) -> tuple[InferRequest, ReplyForm]:
    """The request in *body*, of whose bytes the first *header_nbytes* are JSON (``None``: all).

    Numeric tensors from binary data are views of *body*. Raises ``InvalidRequest``.
    """
    if header_nbytes is None:
        head, tail = bytes(body), _NO_BYTES  # slicing it copies no bytes
    elif 0 < header_nbytes <= len(body):
        view = memoryview(body)
        head, tail = bytes(view[:header_nbytes]), view[header_nbytes:]
    else:
        raise InvalidRequest(
            f"the length of the JSON header must be in 1..{len(body)}, got {header_nbytes}"
        )
    message = v2_json.members(_parsed(head, header_nbytes))
    if message is None:
        raise InvalidRequest("the request is not a JSON object")
    inputs = _inputs(message.get("inputs"), tail, rules)
    request = InferRequest(model, inputs, version)
    request.id = request_id(message.get("id"))
    parameters, outputs = message.get("parameters"), message.get("outputs")
    if parameters is not None:
        request.parameters = _parameters(parameters, "the request")
        for key in request.parameters:
            check_not_reserved(key)
        check_kinds(request.parameters)
    elif outputs is None:  # as in most requests
        return request, _JSON_FORM
    return request, _reply_form(outputs, request)


def _parsed(head: bytes, header_nbytes: int | None) -> Json:
    try:
        return v2_json.parse(head)
    except InvalidRequest as error:
        if header_nbytes is None and b'"binary_data_size"' in head:
            raise InvalidRequest(
                "binary data follows the JSON of the request: the header "
                f"Inference-Header-Content-Length must say how long that is ({error})"
            ) from None
        raise


def decode_raw(
    model: str, version: int | None, body: bytes | memoryview, signature: Signature
) -> tuple[InferRequest, ReplyForm]:
    """The request whose *body* is the data of the model's one input, without any JSON.

    Triton's raw request: a batch of one; BYTES are a single element without its length. Every
    output goes as binary data. Raises ``InvalidRequest``.
    """
    if len(signature.inputs) != 1:
        raise InvalidRequest(
            f"a raw request is for a model of one input; {shown_name(model)!r} has "
            f"{len(signature.inputs)}"
        )
    ((name, spec),) = signature.inputs.items()
    data = memoryview(body)
    if spec.datatype == "BYTES":
        data = memoryview(v2_binary.with_length(bytes(body)))
    shape = _raw_shape(name, spec.datatype, spec.shape, len(body))
    tensor = v2_binary.decode(name, spec.datatype, shape, data)
    return InferRequest(model, {name: tensor}, version), _BINARY_FORM


def _raw_shape(name: str, datatype: str, shape: tuple[int, ...], nbytes: int) -> tuple[int, ...]:
    """The shape of *nbytes* of data: a batch of one, whose only free dimension they determine.

    BYTES are one element.
    """
    dims = [1, *shape[1:]] if shape[:1] == (-1,) and len(shape) > 1 else list(shape)
    if datatype == "BYTES":
        if any(dim != 1 for dim in dims) and shape != (-1,):
            raise InvalidRequest(
                f"a raw request has one element of BYTES; input {name!r} takes shape {list(shape)}"
            )
        return (1,) * len(dims)
    free = [index for index, dim in enumerate(dims) if dim < 0]
    if len(free) > 1:
        raise InvalidRequest(
            f"a raw request does not tell the shape of input {name!r}, of which more than one size "
            "is free"
        )
    if free:
        step = element_count(tuple(dim for dim in dims if dim >= 0)) * DATATYPES[datatype].itemsize
        dims[free[0]] = nbytes // step if step else 1
    return tuple(dims)


def request_id(value: Json) -> str:
    """The id of a request, as text; empty if it has none. Raises ``InvalidRequest``."""
    if value is None:
        return ""
    if isinstance(value, str) and value.isascii():
        return value
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise InvalidRequest("'id' is not a string")
    text = str(value)
    if SURROGATES.search(text):
        raise InvalidRequest("'id' is not Unicode text: it has half of a surrogate pair")
    return text


def _inputs(entries: Json, tail: memoryview, rules: RequestRules) -> dict[str, Tensor]:
    if not v2_json.is_array(entries):
        told = "no 'inputs'" if entries is None else "'inputs' that are not a list"
        raise InvalidRequest(f"the request has {told}")
    inputs: dict[str, Tensor] = {}
    last = len(entries) - 1
    for index, value in enumerate(entries):
        entry = v2_json.members(value)
        name = _name(entry, "input")
        if name in inputs:
            raise InvalidRequest(f"input {name!r} is given twice")
        assert entry is not None
        inputs[name], taken = _input(name, entry, tail, rules, is_last=index == last)
        if taken:
            tail = tail[taken:]
    if tail:
        raise InvalidRequest(f"{len(tail)} bytes of binary data belong to no input")
    return inputs


def _input(
    name: str, entry: Mapping[str, Json], tail: memoryview, rules: RequestRules, *, is_last: bool
) -> tuple[Tensor, int]:
    """The tensor of one entry, and how many bytes of *tail* it took."""
    datatype = entry.get("datatype")
    if not isinstance(datatype, str) or datatype not in DATATYPES:
        told = v2_json.shown(datatype)
        raise InvalidRequest(
            f"input {name!r} has datatype {told}; it is one of {', '.join(DATATYPES)}"
        )
    shape = _shape(name, entry.get("shape"))
    check_taken(name, datatype, rules)
    parameters = entry.get("parameters")
    if parameters is not None:
        parameters = _parameters(parameters, f"input {name!r}")
    data = entry.get("data")
    if data is not None:
        encoding = _check_data_only(name, parameters) if parameters else ""
        return v2_json.decode(name, datatype, shape, data, encoding), 0
    parameters = parameters or _NO_PARAMETERS
    span = span_of(parameters, f"input {name!r}")
    if span is not None:
        return read_shared(name, datatype, shape, span, rules.read_region), 0
    size = parameters.get("binary_data_size")
    if size is None:
        size = _unsaid_nbytes(name, datatype, shape, tail, is_last=is_last)
    nbytes = size_of(size, "binary_data_size", f"input {name!r}")
    if nbytes > len(tail):
        raise InvalidRequest(
            f"input {name!r} must have {nbytes} bytes of binary data, {len(tail)} are left"
        )
    return v2_binary.decode(name, datatype, shape, tail[:nbytes]), nbytes


def _check_data_only(name: str, parameters: Mapping[str, Parameter]) -> str:
    """How 'data' is encoded. Raises ``InvalidRequest`` if the entry has other data too."""
    for other in ("binary_data_size", "shared_memory_region"):
        if other in parameters:
            raise InvalidRequest(f"input {name!r} has both 'data' and {other!r}")
    return "base64" if parameters.get("content_type") == "base64" else ""


def _unsaid_nbytes(
    name: str, datatype: str, shape: tuple[int, ...], tail: memoryview, *, is_last: bool
) -> int:
    """How many bytes of *tail* belong to the input if it does not say so, as OpenVINO allows."""
    elements = element_count(shape)
    if elements and not tail:
        raise InvalidRequest(f"input {name!r} has neither 'data' nor 'binary_data_size'")
    if datatype != "BYTES":
        return elements * DATATYPES[datatype].itemsize
    if not is_last:
        raise InvalidRequest(
            f"input {name!r} is BYTES and not the last one: it needs 'binary_data_size'"
        )
    return len(tail)


def read_shared(
    name: str,
    datatype: str,
    shape: tuple[int, ...],
    span: RegionSpan,
    read_region: ReadRegion | None,
) -> Tensor:
    """The input in *span*, a view of it unless its client could make the engine read elsewhere.

    Raises ``NotSupported`` without *read_region*, and as that does.
    """
    if read_region is None:
        raise NotSupported(f"input {name!r} is in shared memory; {_OFF}")
    data = read_region(span.region, span.offset, span.nbytes)
    if datatype in _CHECKED:
        data = memoryview(bytes(data))
    return v2_binary.decode(name, datatype, shape, data)


def _name(entry: Mapping[str, Json] | None, what: str) -> str:
    if entry is None:
        raise InvalidRequest(f"an {what} is not a JSON object")
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        told = "no 'name'" if name is None else "a 'name' that is not a string"
        told = "an empty 'name'" if name == "" else told
        raise InvalidRequest(f"an {what} has {told}")
    return name


def _shape(name: str, shape: Json) -> tuple[int, ...]:
    if not v2_json.is_array(shape):
        told = "no 'shape'" if shape is None else "a 'shape' that is not a list"
        raise InvalidRequest(f"input {name!r} has {told}")
    return check_shape(name, tuple(shape))


def check_shape(name: str, dims: tuple[Json, ...]) -> tuple[int, ...]:
    """The *dims* of input *name*, if a tensor can have them. Raises ``InvalidRequest``."""
    if len(dims) > MAX_RANK:
        raise InvalidRequest(f"the shape of input {name!r} has more than {MAX_RANK} dimensions")
    count = 1
    for dim in dims:
        if type(dim) is not int or dim < 0:
            raise InvalidRequest(f"the shape of input {name!r} is not a list of sizes from 0 up")
        count *= dim or 1  # a size of 0 must not hide sizes that nothing can have
    if count > MAX_ELEMENTS:
        many = str(count) if count.bit_length() <= 128 else "more than 2^128"
        raise InvalidRequest(
            f"the shape of input {name!r} has {many} elements; at most {MAX_ELEMENTS} are taken"
        )
    return dims


def check_taken(name: str, datatype: str, rules: RequestRules) -> None:
    """Raise ``InvalidRequest`` for texts, whose elements are read one by one, if none are taken."""
    if datatype != "BYTES" or rules.describe is None:
        return
    signature = rules.describe()
    spec = signature.inputs.get(name)
    if spec is not None and spec.datatype != datatype and name not in signature.image_forms:
        raise InvalidRequest(f"input {name!r} takes {spec.datatype}, got {datatype}")


def _parameters(entries: Json, whose: str) -> Mapping[str, Parameter]:
    if entries is None:
        return _NO_PARAMETERS
    parameters = v2_json.members(entries)
    if parameters is None:
        raise InvalidRequest(f"the 'parameters' of {whose} are not a JSON object")
    for key, value in parameters.items():
        if not isinstance(value, (str, int, float)):  # which bool is, too
            raise InvalidRequest(
                f"parameter {key!r} of {whose} is not a string, a number, true or false"
            )
    return parameters


def _reply_form(entries: Json, request: InferRequest) -> ReplyForm:
    """The form of the reply; the wanted outputs and classes are stored in *request*."""
    every = _flag(request.parameters.get("binary_data_output", False), "binary_data_output")
    if entries is None:
        return _BINARY_FORM if every else _JSON_FORM
    if not v2_json.is_array(entries):
        raise InvalidRequest("'outputs' is not a list")
    binary_of: dict[str, bool] = {}
    base64_of: set[str] = set()
    spans: dict[str, RegionSpan] = {}
    classes: dict[str, int] = {}
    for value in entries:
        entry = v2_json.members(value)
        name = _name(entry, "output")
        if name in binary_of:
            raise InvalidRequest(f"output {name!r} is asked for twice")
        assert entry is not None
        parameters = _parameters(entry.get("parameters"), f"output {name!r}")
        binary_of[name] = _flag(parameters.get("binary_data", every), "binary_data")
        if parameters.get("content_type") == "base64":
            base64_of.add(name)
        ask_for(name, parameters, classes, spans)
    request.outputs = tuple(binary_of)
    request.classes = classes
    return ReplyForm(every, binary_of, frozenset(base64_of), spans or None)


def _flag(value: Parameter, name: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidRequest(f"parameter {name!r} is not true or false: {value!r}")
    return value


# ── responses ───────────────────────────────────────────────────────────────


def encode_response(
    response: InferResponse, form: ReplyForm, write_region: WriteRegion | None = None
) -> EncodedResponse:
    """The body of *response* in the wanted *form*; *write_region* puts bytes into shared memory.

    Raises ``InvalidRequest`` for an output that the form cannot hold.
    """
    outputs: list[dict[str, object]] = []
    blobs: list[bytes | memoryview] = []
    floats = False
    for name, tensor in response.outputs.items():
        entry: dict[str, object] = {
            "name": name,
            "datatype": tensor.datatype,
            "shape": tensor.array.shape,
        }
        if form.spans and name in form.spans:
            write_shared(name, tensor, form.spans[name], write_region)
        elif form.is_binary(name):
            blobs.append(v2_binary.encode(tensor))
            entry["parameters"] = {"binary_data_size": len(blobs[-1])}
        else:
            encoding = "base64" if name in form.base64_of and tensor.datatype == "BYTES" else ""
            if encoding:
                entry["parameters"] = {"content_type": encoding}
            entry["data"] = v2_json.encode(name, tensor, encoding)
            floats = floats or v2_json.may_lack_numbers(entry["data"])
        outputs.append(entry)
    message: dict[str, object] = {"id": response.id} if response.id else {}
    message["model_name"] = response.model.name
    message["model_version"] = str(response.model.version)
    if response.parameters:
        message["parameters"] = dict(response.parameters)
    message["outputs"] = outputs
    head = v2_json.write(message)
    if floats and b"null" in head:  # written instead of numbers that JSON does not have
        v2_json.name_non_numbers(outputs)
        head = v2_json.write(message)
    return head, *blobs


def write_shared(
    name: str, tensor: Tensor, span: RegionSpan, write_region: WriteRegion | None
) -> None:
    """Put the output into *span*. Raises ``InvalidRequest``, or as ``read_shared``."""
    if write_region is None:
        raise NotSupported(f"output {name!r} is meant for shared memory; {_OFF}")
    data = v2_binary.encode(tensor)
    if len(data) > span.nbytes:
        raise InvalidRequest(
            f"output {name!r} has {len(data)} bytes; "
            f"'shared_memory_byte_size' leaves it {span.nbytes}"
        )
    write_region(span.region, span.offset, data)
