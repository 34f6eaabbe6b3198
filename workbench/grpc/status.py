"""The table from error classes to gRPC status codes, and what of it differs under ModelMesh."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from concurrent.futures import CancelledError
from typing import NoReturn

import grpc
from grpc import StatusCode

from workbench import errors
from workbench.errors import WorkbenchError, class_and_line_of, forget_frames, nearest
from workbench.exhaustion import is_exhaustion

_MESSAGE_NBYTES = 2000  # of a message: it is sent in a header, percent-encoded

_log = logging.getLogger("workbench")

Table = Mapping[type[WorkbenchError], StatusCode]

# After UNAVAILABLE ModelMesh asks another server, so that is for errors that may pass.
# An error has the code of the nearest class above it.
STATUS: Table = {
    errors.WorkbenchError: StatusCode.INTERNAL,
    errors.InvalidRequest: StatusCode.INVALID_ARGUMENT,
    errors.ModelNotFound: StatusCode.NOT_FOUND,
    errors.VersionNotFound: StatusCode.NOT_FOUND,
    errors.RegionNotFound: StatusCode.INVALID_ARGUMENT,
    errors.ModelNotReady: StatusCode.UNAVAILABLE,
    errors.LoadFailed: StatusCode.UNAVAILABLE,
    errors.ModelNotSupported: StatusCode.UNIMPLEMENTED,
    errors.MemoryExhausted: StatusCode.RESOURCE_EXHAUSTED,
    errors.QueueRefused: StatusCode.UNAVAILABLE,
    errors.ThreadsExhausted: StatusCode.UNAVAILABLE,
    errors.AccessDenied: StatusCode.PERMISSION_DENIED,
    errors.TokenRequired: StatusCode.UNAUTHENTICATED,
    errors.RunFailed: StatusCode.INTERNAL,
    errors.RequestStopped: StatusCode.UNAVAILABLE,
    errors.DeadlineExceeded: StatusCode.DEADLINE_EXCEEDED,
    errors.WaitedTooLong: StatusCode.UNAVAILABLE,
    errors.NotSupported: StatusCode.UNIMPLEMENTED,
    errors.ServerNotRunning: StatusCode.UNAVAILABLE,
    errors.UsageError: StatusCode.INVALID_ARGUMENT,
    errors.RepositoryError: StatusCode.INTERNAL,
    errors.PortInUse: StatusCode.INTERNAL,
}
# After NOT_FOUND ModelMesh unloads the model of the call, loads it and asks again: that is for a
# model that is not here, where its id is what the call asks for.
PLACED: Table = {**STATUS, errors.VersionNotFound: StatusCode.INVALID_ARGUMENT}
PLACED_UNNAMED: Table = {**PLACED, errors.ModelNotFound: StatusCode.INVALID_ARGUMENT}


def message_of(error: Exception, told: str = "") -> str:
    """One line about *error* for a client: *told*, or its own. The error's traceback is deleted.

    Any other error is a bug of the workbench, unless memory ran out, and is also logged.
    """
    if isinstance(error, WorkbenchError):
        text = told or str(error)
    elif isinstance(error, CancelledError):
        text = "the call was cancelled"
    else:
        if not is_exhaustion(error):
            _log.error("a request failed; this is a bug in the workbench", exc_info=error)
        text = class_and_line_of(error)
    forget_frames(error)
    written = text.encode("utf-8", "backslashreplace")
    cut = written[:_MESSAGE_NBYTES].decode("utf-8", "ignore")
    return cut if len(written) <= _MESSAGE_NBYTES else f"{cut}..."


def abort(
    context: grpc.ServicerContext, error: Exception, told: str = "", table: Table = STATUS
) -> NoReturn:
    """End the call with the status code of *error*'s class in *table*; see ``message_of``."""
    code = StatusCode.INTERNAL
    if isinstance(error, WorkbenchError):
        code = nearest(table, error)
        if error.retry_after_s is not None:  # gRPC's hint to clients that retry automatically
            pushback_ms = str(math.ceil(error.retry_after_s * 1e3))
            context.set_trailing_metadata((("grpc-retry-pushback-ms", pushback_ms),))
    elif isinstance(error, CancelledError):
        code = StatusCode.CANCELLED
    elif is_exhaustion(error):
        code = StatusCode.RESOURCE_EXHAUSTED
    context.abort(code, message_of(error, told))
    raise AssertionError  # never: abort raises
