"""The one table from errors to HTTP statuses, and the body of an error."""

from __future__ import annotations

import logging
import math

from workbench import errors
from workbench.codecs import v2_json
from workbench.errors import WorkbenchError, class_and_line_of, forget_frames, nearest
from workbench.exhaustion import is_exhaustion
from workbench.http.compression import CODINGS, UnknownCoding
from workbench.http.reply import Reply, json_reply

_ACCEPTED = (b"accept-encoding", b", ".join(CODINGS))
_CHALLENGE = (b"www-authenticate", b"Bearer")

_MOST_CHARACTERS = 4000

_log = logging.getLogger("workbench")

STATUS: dict[type[WorkbenchError], int] = {
    errors.WorkbenchError: 500,
    errors.InvalidRequest: 400,
    errors.RequestTooLarge: 413,
    errors.UnknownMediaType: 415,
    errors.NotAcceptable: 406,
    errors.ModelNotFound: 404,
    errors.VersionNotFound: 404,
    errors.RegionNotFound: 404,
    errors.ModelNotReady: 503,
    errors.LoadFailed: 503,
    errors.ModelNotSupported: 501,
    errors.MemoryExhausted: 507,
    errors.QueueRefused: 503,
    errors.AccessDenied: 403,
    errors.TokenRequired: 401,
    errors.HostRefused: 421,
    errors.ThreadsExhausted: 503,
    errors.RunFailed: 500,
    errors.RequestStopped: 503,
    errors.NotSupported: 501,
    errors.ServerNotRunning: 503,
    errors.UsageError: 400,
    errors.RepositoryError: 500,
    errors.PortInUse: 500,
}
"""By class; an error has that of the nearest class above it."""


def error_reply(error: Exception, told: str = "") -> Reply:
    """The JSON error object of the V2 protocol, under the status of *error*'s class.

    The message is *told*, if that is given. Any other error is a bug of the workbench, unless
    memory ran out: it goes to the log, and to the client as 500. The error's traceback is deleted.
    """
    reply = _reply(error, told)
    forget_frames(error)
    return reply


def _reply(error: Exception, told: str) -> Reply:
    if isinstance(error, WorkbenchError):
        reply = message_reply(nearest(STATUS, error), told or str(error))
        if isinstance(error, UnknownCoding):
            return reply.with_header(*_ACCEPTED)
        if isinstance(error, errors.TokenRequired):
            return reply.with_header(*_CHALLENGE)
        if error.retry_after_s is not None:
            return reply.with_header(b"retry-after", b"%d" % math.ceil(error.retry_after_s))
        return reply
    if is_exhaustion(error):
        return message_reply(507, class_and_line_of(error))
    _log.error("a request failed; this is a bug in the workbench", exc_info=error)
    return message_reply(500, class_and_line_of(error))


def message_reply(status: int, message: str) -> Reply:
    """A JSON error object with *message*, which is cut if it is very long."""
    if len(message) > _MOST_CHARACTERS:  # a name in it may be as long as the request
        message = f"{message[:_MOST_CHARACTERS]}..."
    writable = message.encode("utf-8", "backslashreplace").decode()
    return json_reply(v2_json.write({"error": writable}), status)
