"""Triton's "Generate Extension": flat JSON, whose keys are a model's inputs and outputs.

``{"text": "hello", "temperature": 0.5}`` -> ``{"model_name": ..., "answer": "..."}``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from workbench.codecs import v2, v2_json
from workbench.codecs.json_parser import Json
from workbench.codecs.v2_parameters import check_kinds, check_not_reserved
from workbench.errors import InvalidRequest
from workbench.inference import InferRequest, InferResponse, Parameter
from workbench.model import Signature, TensorSpec
from workbench.rows import specs_of
from workbench.spelling import meant
from workbench.tensor import Tensor, element_count


def decode_request(
    model: str, version: int | None, body: bytes, signature: Signature
) -> InferRequest:
    """The request in *body*, for a model of that *signature*; an empty body is ``{}``.

    A key with the name of an input, or of a matrix's column, gives its data, at the top level or in
    "parameters"; so an input may be called "id" or "parameters". Any other key is a parameter.
    Raises ``InvalidRequest``, naming the key.
    """
    value = v2_json.parse(body.strip() or b"{}")
    specs = specs_of(signature)
    entries = _entries(value, "the request")
    request_id = "" if "id" in specs else v2.request_id(entries.pop("id", None))
    nested: dict[str, Json] = {}
    if "parameters" not in specs:
        nested = _nested(entries.pop("parameters", {}))
    inputs: dict[str, Tensor] = {}
    parameters: dict[str, Parameter] = {}
    for key, value in (*entries.items(), *nested.items()):
        spec = specs.get(key)
        if key in inputs or key in parameters:
            raise _twice(key)
        if spec is None:
            check_not_reserved(key)
            parameters[key] = _parameter(model, key, value, specs)
        else:
            shape = _shape(spec, value)
            inputs[key] = v2_json.decode(key, spec.datatype, shape, value)
    check_kinds(parameters)
    return InferRequest(model, inputs, version, (), request_id, parameters)


def _entries(value: Json, what: str) -> dict[str, Json]:
    members = v2_json.members(value)
    if members is None:
        raise InvalidRequest(f"{what} is not a JSON object")
    repeated = v2_json.repeated_name(value)
    if repeated is not None:
        raise _twice(repeated)
    return members


def _nested(parameters: Json) -> dict[str, Json]:
    if v2_json.members(parameters) is None:
        raise InvalidRequest("'parameters' is not a JSON object")
    return _entries(parameters, "'parameters'")


def _twice(key: str) -> InvalidRequest:
    return InvalidRequest(f"{key!r} is given twice")


def _parameter(model: str, key: str, value: Json, inputs: Iterable[str]) -> Parameter:
    if not isinstance(value, str | int | float):  # which bool is, too
        raise InvalidRequest(
            f"{key!r} is no input of {model!r}, and a parameter is a string, a number, true or "
            f"false, not {v2_json.shown(value)}{meant(key, inputs)}"
        )
    return value


# ── shapes, which clients do not send ───────────────────────────────────────


def _shape(spec: TensorSpec, value: Json) -> tuple[int, ...]:
    """The shape of *value*: its own if it is nested, with leading 1s up to the rank of *spec*."""
    own = v2_json.shape_of(spec.name, value)
    if len(own) > 1:
        return (1,) * (len(spec.shape) - len(own)) + own
    return _filled(spec, own[0] if own else 1)


def _filled(spec: TensorSpec, count: int) -> tuple[int, ...]:
    """The declared shape for *count* elements; all free sizes but the last one are 1."""
    fixed = element_count(tuple(size for size in spec.shape if size >= 0))
    rest, over = divmod(count, fixed) if fixed else (1, count)
    free = [index for index, size in enumerate(spec.shape) if size < 0]
    if over or (rest != 1 and not free):
        raise InvalidRequest(
            f"input {spec.name!r} takes shape {list(spec.shape)}, "
            f"which {count} elements do not fill"
        )
    shape = [1 if size < 0 else size for size in spec.shape]
    if free:
        shape[free[-1]] = rest
    return tuple(shape)


# ── responses ───────────────────────────────────────────────────────────────


def encode_response(response: InferResponse) -> bytes:
    """The flat JSON object: an output of one element is that element, any other a flat list.

    An output may be called "id", "model_name" or "model_version", and then replaces it. Raises
    ``InvalidRequest`` for BYTES that are not UTF-8.
    """
    outputs: dict[str, dict[str, Any]] = {
        name: {"data": v2_json.encode(name, tensor)} for name, tensor in response.outputs.items()
    }
    body = v2_json.write(_flat(response, outputs))
    if b"null" in body:  # numbers that JSON does not have
        v2_json.name_non_numbers(outputs.values())
        body = v2_json.write(_flat(response, outputs))
    return body


def _flat(response: InferResponse, outputs: dict[str, dict[str, Any]]) -> dict[str, object]:
    message: dict[str, object] = {"id": response.id} if response.id else {}
    message["model_name"] = response.model.name
    message["model_version"] = str(response.model.version)
    message.update(response.parameters or {})
    for name, output in outputs.items():
        data = output["data"]
        message[name] = _one(data[0]) if len(data) == 1 else data
    return message


def _one(element: object) -> object:
    """An *element* as ``write`` takes it, which knows only some of numpy's integers."""
    return int(element) if isinstance(element, np.integer) else element
