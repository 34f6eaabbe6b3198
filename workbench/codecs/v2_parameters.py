"""The parameters of V2's requests, inputs and outputs that mean something, on every wire.

They are those of the Open Inference Protocol, Triton's classification, sequence and shared memory
extensions, and OpenVINO's dialect.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from workbench.codecs import v2_json
from workbench.errors import InvalidRequest
from workbench.inference import Parameter

SURROGATES = re.compile("[\ud800-\udfff]")
"""Halves of surrogate pairs, which no response can repeat."""

_SIZE = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class RegionSpan:
    """The *nbytes* of a *region* of shared memory from its byte *offset* on."""

    region: str
    offset: int
    nbytes: int


def span_of(parameters: Mapping[str, Parameter], whose: str) -> RegionSpan | None:
    """The span of shared memory in *parameters*, if there is one. Raises ``InvalidRequest``."""
    region = parameters.get("shared_memory_region")
    if region is None:
        return None
    if not isinstance(region, str):
        raise InvalidRequest(f"'shared_memory_region' of {whose} is not a name")
    if "binary_data_size" in parameters or parameters.get("binary_data"):
        raise InvalidRequest(f"{whose} has both shared memory and binary data")
    key = "shared_memory_byte_size"
    nbytes = size_of(parameters.get(key, ""), key, whose)
    key = "shared_memory_offset"
    return RegionSpan(region, size_of(parameters.get(key, 0), key, whose), nbytes)


def size_of(size: object, key: str, whose: str) -> int:
    """The parameter *key*, a number, or a string as in OpenVINO's own sample.

    Raises ``InvalidRequest``.
    """
    if isinstance(size, str) and _SIZE.fullmatch(size):
        size = int(size)
    if type(size) is not int or not 0 <= size < 2**63:
        raise InvalidRequest(f"{key!r} of {whose} is not a size: {v2_json.shown(size)}")
    return size


def ask_for(
    name: str,
    parameters: Mapping[str, Parameter],
    classes: dict[str, int],
    spans: dict[str, RegionSpan],
) -> None:
    """Note if output *name* is wanted as *classes* or in *spans*. Raises ``InvalidRequest``."""
    whose = f"output {name!r}"
    if "classification" in parameters:
        classes[name] = size_of(parameters["classification"], "classification", whose)
    span = span_of(parameters, whose)
    if span is not None:
        if name in classes:
            raise InvalidRequest(f"{whose} has both shared memory and 'classification'")
        spans[name] = span


def check_not_reserved(parameter: str) -> None:
    """Raise ``InvalidRequest`` for the name of a *parameter* that Triton keeps for itself."""
    if parameter.startswith("triton_"):
        raise InvalidRequest(f"parameter {parameter!r}: names with 'triton_' first are reserved")


def _is_whole(value: Parameter) -> bool:
    return type(value) is int and 0 <= value < 2**64


def _is_sequence(value: Parameter) -> bool:
    return _is_whole(value) or (isinstance(value, str) and not SURROGATES.search(value))


def _is_flag(value: Parameter) -> bool:
    return isinstance(value, bool)


# The parameters of a request that mean something: what they can be, and that in words.
_KINDS: Mapping[str, tuple[Callable[[Parameter], bool], str]] = {
    "priority": (_is_whole, "a whole number from 0"),
    "timeout": (_is_whole, "a whole number from 0"),
    "sequence_id": (_is_sequence, "a whole number from 0, or Unicode text"),
    "sequence_start": (_is_flag, "true or false"),
    "sequence_end": (_is_flag, "true or false"),
}


def check_kinds(parameters: Mapping[str, Parameter]) -> None:
    """Check those of a request's *parameters* that mean something. Raises ``InvalidRequest``."""
    for key in _KINDS.keys() & parameters:
        fits, expected = _KINDS[key]
        if not fits(parameters[key]):
            told = v2_json.shown(parameters[key])
            raise InvalidRequest(f"parameter {key!r} of the request is {expected}, not {told}")
