"""Refusals of a container and of an endpoint: the status, name and text of each error."""

from __future__ import annotations

import errno
import re
import uuid
from collections.abc import Mapping
from typing import NamedTuple

from workbench import errors
from workbench.annexes.sagemaker.errors import ContainerRefused, DiskFull, ModelExists
from workbench.codecs import v2_json
from workbench.errors import InvalidRequest, WorkbenchError, chain_of, class_and_line_of, nearest
from workbench.exhaustion import is_exhaustion
from workbench.http import status as http_status
from workbench.http.reply import Reply, json_reply
from workbench.http.status import error_reply

STATUS: dict[type[WorkbenchError], int] = {
    **http_status.STATUS,
    ModelExists: 409,
    errors.ModelNotReady: 404,  # it is not loaded, and the platform is to load it
    errors.LoadFailed: 400,
    errors.ModelNotSupported: 400,
    errors.NotSupported: 400,
    errors.ThreadsExhausted: 507,
}
"""Of the container, by class; an error has that of the nearest class above it."""

KINDS: dict[type[WorkbenchError], tuple[int, str]] = {
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
"""Of the endpoint, with AWS's names, by class."""

_NAMES = {
    400: "BadRequestException",
    404: "ModelNotFoundException",
    405: "MethodNotAllowedException",
    406: "NotAcceptableException",
    409: "ConflictStatusException",
    413: "RequestEntityTooLargeException",
    415: "UnsupportedMediaTypeException",
    500: "InternalServerException",
    503: "ServiceUnavailableException",
    507: "InsufficientStorageException",
}
"""The names of statuses, as multi-model-server has them; others have that of 400 or 500."""

VARIANT = "AllTraffic"
"""The one production variant of each endpoint."""

_LOGS = "arn:aws:logs:local:000000000000:log-group:/aws/sagemaker/Endpoints"
_HEADER = "x-amzn-sagemaker-"
_MOST_CHARACTERS = 4000  # of an error
_ALLOWED = {"custom-attributes": (1024, r"[\x00-\x7f]*"), "inference-id": (64, "([!-~][ -~]*)?")}
_NOT_SERVED = (
    "target-container-hostname", "inference-component", "session-id", "enable-explanations"
)  # fmt: skip  # headers that ask for what no endpoint has here
_SHORT = (errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT)


# ── the container ──


class Refusal(NamedTuple):
    """A *status*, and the *message* that says why."""

    status: int
    message: str

    @property
    def body(self) -> dict[str, object]:
        """The members of multi-model-server, and Triton's "error": every client finds its own."""
        kind = _NAMES.get(self.status, _NAMES[400] if self.status < 500 else _NAMES[500])
        told = {"code": self.status, "type": kind, "message": self.message}
        return {**told, "error": self.message}


def refusal_of(error: Exception, model_name: str | None = None) -> Refusal:
    """The container's answer to *error*, for the model that the path names."""
    if isinstance(error, ContainerRefused):
        return Refusal(error.code, error.told)
    told = _text_of(error)
    if _is_short(error):
        return Refusal(507, told)
    status = nearest(STATUS, error) if isinstance(error, WorkbenchError) else 500
    if status == 404 and model_name is not None:
        return Refusal(404, f"Model not found: {_shown(model_name)}")
    return Refusal(status, told)


def refused(error: Exception, model_name: str | None) -> Reply:
    """The container's reply to *error*, with the headers that belong to it."""
    refusal = refusal_of(error, model_name)
    return Reply(refusal.status, error_reply(error).headers, (v2_json.write(refusal.body),))


def refused_by_container(error: Exception, model_name: str) -> ContainerRefused:
    """The platform's error for an *error* of the container, about the model of that name."""
    refusal = refusal_of(error, model_name)
    return ContainerRefused(v2_json.write(refusal.body).decode(), *refusal)


def _text_of(error: Exception) -> str:
    return _shown(str(error) if isinstance(error, WorkbenchError) else class_and_line_of(error))


def _shown(text: str) -> str:
    """*text* for a message: cut if it is long, without what JSON cannot carry."""
    cut = text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}..."
    return cut.encode("utf-8", "backslashreplace").decode()


def _is_short(error: BaseException) -> bool:
    """True if the system or the budget had no more to give, which led to *error*."""
    lacks = (isinstance(each, OSError) and each.errno in _SHORT for each in chain_of(error))
    return is_exhaustion(error) or any(lacks)


# ── the endpoint ──


def endpoint_refused(error: Exception, endpoint: str) -> Reply:
    """The endpoint's reply to *error*, with the headers that belong to it."""
    text, headers = _text_of(error), error_reply(error).headers
    status, kind = nearest(KINDS, error if isinstance(error, WorkbenchError) else WorkbenchError())
    body: dict[str, object] = {"Message": text}
    if isinstance(error, ContainerRefused):
        is_client = 400 <= error.code < 500
        side = "client" if is_client else "server"
        told = f'Received {side} error ({error.code}) from model with message "{text}". '
        body = {
            "ErrorCode": f"{'CLIENT_ERROR' if is_client else 'INTERNAL_FAILURE'}_FROM_MODEL",
            "Message": f"{told}See the events of endpoint {endpoint} for more information.",
            "OriginalStatusCode": error.code,
            "OriginalMessage": text,
            "LogStreamArn": f"{_LOGS}/{endpoint}",
        }
    return told_by_endpoint(status, kind, body, headers)


def told_by_endpoint(
    status: int,
    kind: str,
    body: Mapping[str, object],
    headers: tuple[tuple[bytes, bytes], ...] = (),
) -> Reply:
    """A reply with an error of the *kind*, by which AWS's clients know it."""
    named = (b"x-amzn-errortype", kind.encode()), request_id()
    if headers:
        return Reply(status, (*headers, *named), (v2_json.write(body),))
    return json_reply(v2_json.write(body), status, named)


def request_id() -> tuple[bytes, bytes]:
    """The header with a new number of a request."""
    return b"x-amzn-requestid", str(uuid.uuid4()).encode()


def check_headers(endpoint: str, headers: Mapping[str, str]) -> None:
    """Raise ``InvalidRequest`` if the *headers* ask for what *endpoint* does not have."""
    for name, (most, allowed) in _ALLOWED.items():
        value = headers.get(_HEADER + name, "")
        if len(value) > most or not re.fullmatch(allowed, value):
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
