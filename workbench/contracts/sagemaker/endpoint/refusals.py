"""What an endpoint answers when it refuses: the status, name and members of each error."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from workbench import errors
from workbench.contracts.sagemaker.errors import ContainerRefused, DiskFull
from workbench.errors import InvalidRequest, WorkbenchError, class_and_line_of, nearest

_LOGS = "arn:aws:logs:local:000000000000:log-group:/aws/sagemaker/Endpoints"
_HEADER = "x-amzn-sagemaker-"

VARIANT = "AllTraffic"
"""The one production variant of each endpoint."""

_MOST_CHARACTERS = {"custom-attributes": 1024, "inference-id": 64}
_ALLOWED = {"custom-attributes": r"[\x00-\x7f]*", "inference-id": "([!-~][ -~]*)?"}
_NOT_SERVED = (
    "target-container-hostname", "inference-component", "session-id", "enable-explanations"
)  # fmt: skip  # headers that ask for what no endpoint has here

_KINDS: dict[type[WorkbenchError], tuple[int, str]] = {
    errors.WorkbenchError: (500, "InternalFailure"),
    errors.InvalidRequest: (400, "ValidationError"),
    errors.ModelNotFound: (400, "ValidationError"),
    errors.UsageError: (400, "ValidationError"),
    errors.NotSupported: (400, "ValidationError"),
    errors.RequestTooLarge: (413, "ValidationError"),
    errors.AccessDenied: (403, "AccessDeniedException"),
    errors.TokenRequired: (401, "AccessDeniedException"),
    errors.HostRefused: (421, "AccessDeniedException"),
    errors.WaitedTooLong: (429, "ModelNotReadyException"),
    ContainerRefused: (424, "ModelError"),
    DiskFull: (507, "InsufficientStorage"),
    errors.QueueRefused: (503, "ServiceUnavailable"),
    errors.ThreadsExhausted: (503, "ServiceUnavailable"),
    errors.RequestStopped: (503, "ServiceUnavailable"),
    errors.ServerNotRunning: (503, "ServiceUnavailable"),
}
"""By class; an error has that of the nearest class above it."""


@dataclass(frozen=True, slots=True)
class EndpointRefusal:
    """A *status*, the *kind* of AWS's error, and the members of its body."""

    status: int
    kind: str
    body: dict[str, object]


def endpoint_refusal(error: Exception, endpoint: str) -> EndpointRefusal:
    """The answer to a request to *endpoint* that ended with *error*."""
    if not isinstance(error, WorkbenchError):
        text = class_and_line_of(error)
        return EndpointRefusal(500, "InternalFailure", {"Message": text[:4000]})
    status, kind = nearest(_KINDS, error)
    text = str(error).encode("utf-8", "backslashreplace").decode()
    if not isinstance(error, ContainerRefused):
        return EndpointRefusal(status, kind, {"Message": text})
    side, code = "server", "INTERNAL_FAILURE_FROM_MODEL"
    if 400 <= error.code < 500:
        side, code = "client", "CLIENT_ERROR_FROM_MODEL"
    message = (
        f'Received {side} error ({error.code}) from model with message "{text}". '
        f"See the events of endpoint {endpoint} for more information."
    )
    body = {
        "ErrorCode": code,
        "Message": message,
        "OriginalStatusCode": error.code,
        "OriginalMessage": text,
        "LogStreamArn": f"{_LOGS}/{endpoint}",
    }
    return EndpointRefusal(status, kind, body)


def check_headers(endpoint: str, headers: Mapping[str, str]) -> None:
    """Raise ``InvalidRequest`` if the *headers* ask for what *endpoint* does not have."""
    for name, most in _MOST_CHARACTERS.items():
        value = headers.get(_HEADER + name, "")
        if len(value) > most or not re.fullmatch(_ALLOWED[name], value):
            raise InvalidRequest(
                f"{_HEADER}{name} must be at most {most} printable characters of ASCII, "
                f"not {value[:40]!r}"
            )
    for name in _NOT_SERVED:
        if headers.get(_HEADER + name):
            raise InvalidRequest(f"Endpoint {endpoint} does not support {_HEADER}{name}.")
    variant = headers.get(f"{_HEADER}target-variant") or VARIANT
    if variant != VARIANT:
        raise InvalidRequest(
            f"Variant {variant[:63]} of endpoint {endpoint} not found. Its variant is {VARIANT}."
        )
