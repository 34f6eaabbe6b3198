"""What a container answers when it refuses: the status of each error, and its name and text."""

from __future__ import annotations

import errno
from dataclasses import dataclass

from workbench import errors
from workbench.contracts.sagemaker.errors import ContainerRefused, ModelExists
from workbench.errors import WorkbenchError, chain_of, class_and_line_of, nearest
from workbench.exhaustion import is_exhaustion

STATUS: dict[type[WorkbenchError], int] = {
    errors.WorkbenchError: 500,
    errors.InvalidRequest: 400,
    errors.RequestTooLarge: 413,
    errors.UnknownMediaType: 415,
    errors.NotAcceptable: 406,
    errors.ModelNotFound: 404,
    errors.VersionNotFound: 404,
    errors.RegionNotFound: 404,
    errors.ModelNotReady: 404,  # it is not loaded, and the platform is to load it
    ModelExists: 409,
    errors.LoadFailed: 400,
    errors.MemoryExhausted: 507,
    errors.ThreadsExhausted: 507,
    errors.QueueRefused: 503,
    errors.AccessDenied: 403,
    errors.TokenRequired: 401,
    errors.HostRefused: 421,
    errors.RunFailed: 500,
    errors.RequestStopped: 503,
    errors.NotSupported: 400,
    errors.ServerNotRunning: 503,
    errors.UsageError: 400,
    errors.RepositoryError: 500,
    errors.PortInUse: 500,
}
"""By class; an error has that of the nearest class above it."""

KINDS = {
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

_MOST_CHARACTERS = 4000
_SHORT = (errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A *status*, and the *message* that says why."""

    status: int
    message: str

    @property
    def body(self) -> dict[str, object]:
        """What every client understands: multi-model-server's members, and Triton's "error"."""
        kind = KINDS.get(self.status, KINDS[400] if self.status < 500 else KINDS[500])
        told = {"code": self.status, "type": kind, "message": self.message}
        return {**told, "error": self.message}


def refusal_of(error: Exception, model_name: str | None = None) -> Refusal:
    """The answer to a request that ended with *error*, for the model that its path names."""
    if isinstance(error, ContainerRefused):
        return Refusal(error.code, error.told)
    told = _shown(str(error) if isinstance(error, WorkbenchError) else class_and_line_of(error))
    if _is_short(error):
        return Refusal(507, told)
    status = nearest(STATUS, error) if isinstance(error, WorkbenchError) else 500
    if status == 404 and model_name is not None:
        return Refusal(404, f"Model not found: {_shown(model_name)}")
    return Refusal(status, told)


def _is_short(error: BaseException) -> bool:
    """Whether *error*, or what led to it, is that the system or the budget has no more to give."""
    lacks = (isinstance(each, OSError) and each.errno in _SHORT for each in chain_of(error))
    return is_exhaustion(error) or any(lacks)


def _shown(text: str) -> str:
    """*text* for a message: cut if it is long, without what JSON cannot carry."""
    cut = text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}..."
    return cut.encode("utf-8", "backslashreplace").decode()
