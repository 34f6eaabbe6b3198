"""What an endpoint answers when it refuses: the status, name and members of each error."""

from __future__ import annotations

from dataclasses import dataclass

from workbench import errors
from workbench.errors import (
    ContainerRefused,
    InvalidRequest,
    WorkbenchError,
    class_and_line_of,
    nearest,
)

_LOGS = "arn:aws:logs:local:000000000000:log-group:/aws/sagemaker/Endpoints"
_MOST_ATTRIBUTES = 1024

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
    errors.ContainerRefused: (424, "ModelError"),
    errors.DiskFull: (507, "InsufficientStorage"),
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


def check_attributes(value: str) -> None:
    """Raise ``InvalidRequest``, in AWS's words, for CustomAttributes that its API does not take."""
    if len(value) > _MOST_ATTRIBUTES:
        rule = f"have length less than or equal to {_MOST_ATTRIBUTES}"
    elif not value.isascii():
        rule = "satisfy regular expression pattern: \\p{ASCII}*"
    else:
        return
    raise InvalidRequest(
        f"1 validation error detected: Value {value[:40]!r} at 'customAttributes' failed to "
        f"satisfy constraint: Member must {rule}"
    )
