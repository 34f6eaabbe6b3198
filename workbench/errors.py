"""Everything that can go wrong, as one tree; no wire's status code is known here.

    WorkbenchError
    ├── InvalidRequest           the request cannot be understood, or does not fit the model
    │   ├── MalformedRequest     it is no JSON, or not such JSON as the protocol's
    │   ├── RequestTooLarge      it is over a limit of the settings
    │   ├── UnknownMediaType     its body is of a media type that is not read
    │   └── NotAcceptable        it accepts only media types that the answer cannot have
    ├── ModelNotFound            no model of that name
    ├── ModelExists              a model of that name is there already
    ├── VersionNotFound          the model has no such version
    ├── RegionNotFound           no shared memory is registered under that name
    ├── ModelNotReady            the model is known, but not loaded now
    ├── LoadFailed               the model cannot be loaded: its file, its configuration, its device
    │   └── ModelNotSupported    it needs what this server does not have
    ├── MemoryExhausted          there is no room for it, and none may be made
    │   └── ModelTooLarge        it would not fit into an empty device
    ├── DiskFull                 the disk has no room for the model's files
    ├── QueueRefused             the request may not wait for the model, or waited too long
    │   └── TooManyWaiting       as many requests wait as the settings allow
    ├── ThreadsExhausted         no thread can be started for it now
    ├── AccessDenied             the request may not be answered, whatever it asks for
    │   ├── TokenRequired        it has no token, or a wrong one
    │   ├── OriginRefused        a web page of another site sent it
    │   ├── HostRefused          it was sent to a host name that is not this server's
    │   └── GroupClosed          the settings close this group of requests
    ├── RunFailed                the model itself failed while it ran
    ├── ContainerRefused         the container of an endpoint answered with an error
    ├── RequestStopped           nobody waits for the request any more
    │   └── DeadlineExceeded     it took longer than it was given
    │       └── WaitedTooLong    it waited longer for a load, a thread or a turn than any may
    ├── NotSupported             a known request that this server does not answer
    │   └── ManyAnswers          the model may give several answers, and the request takes one
    ├── ServerNotRunning         the server is not started, or is stopping
    └── UsageError               what the user of the workbench asked for makes no sense
        ├── SettingError         a setting has no such name, or its value does not parse
        ├── RepositoryError      the model repository cannot be read
        └── PortInUse            the port is taken

Each adapter holds one table from these classes to its own codes. A message is
one line that says what is wrong and, where there is one, what to do.
"""

from __future__ import annotations

import os
import traceback

__all__ = [
    "AccessDenied",
    "ContainerRefused",
    "DeadlineExceeded",
    "DiskFull",
    "GroupClosed",
    "HostRefused",
    "InvalidRequest",
    "LoadFailed",
    "MalformedRequest",
    "ManyAnswers",
    "MemoryExhausted",
    "ModelExists",
    "ModelNotFound",
    "ModelNotReady",
    "ModelNotSupported",
    "ModelTooLarge",
    "NotAcceptable",
    "NotSupported",
    "OriginRefused",
    "PortInUse",
    "QueueRefused",
    "RegionNotFound",
    "RepositoryError",
    "RequestStopped",
    "RequestTooLarge",
    "RunFailed",
    "ServerNotRunning",
    "SettingError",
    "ThreadsExhausted",
    "TokenRequired",
    "TooManyWaiting",
    "UnknownMediaType",
    "UsageError",
    "VersionNotFound",
    "WaitedTooLong",
    "WorkbenchError",
]

_OURS = os.path.dirname(__file__) + os.sep  # noqa: PTH120  # the files of this package


class WorkbenchError(Exception):
    """The base class of all errors that the workbench raises on purpose.

    *retry_after_s*: after how many seconds the same request may succeed; ``None`` if unknown.
    """

    retry_after_s: float | None = None

    def _render_traceback_(self) -> list[str]:
        """What IPython shows in a cell: the one line, since the mistake is not in our code."""
        return [f"{type(self).__name__}: {self}"]


class InvalidRequest(WorkbenchError):
    """The request cannot be understood, or does not fit the model."""


class MalformedRequest(InvalidRequest):
    """The request is not JSON, or its members are not of the protocol's kinds and numbers."""


class RequestTooLarge(InvalidRequest):
    """The request is over a limit of the settings."""


class UnknownMediaType(InvalidRequest):
    """The body is of a media type that is not read, or of one that may not be."""


class NotAcceptable(InvalidRequest):
    """The request accepts only media types that its answer cannot have."""


class ModelNotFound(WorkbenchError):
    """There is no model of that name."""


class ModelExists(WorkbenchError):
    """A model of that name is loaded already, or is being loaded or unloaded."""


class VersionNotFound(WorkbenchError):
    """The model has no such version."""


class RegionNotFound(WorkbenchError):
    """No region of shared memory is registered under that name."""


class ModelNotReady(WorkbenchError):
    """The model is known, but it is not loaded now and nothing loads it by itself."""


class LoadFailed(WorkbenchError):
    """The model cannot be loaded: its file, its configuration or its device is wrong."""


class ModelNotSupported(LoadFailed):
    """The model needs what this server does not have, such as sequences."""


class MemoryExhausted(WorkbenchError):
    """There is no room for the model, and none may be made for it.

    *need_nbytes* is what it would take; *budget_nbytes* and *free_nbytes* are
    the device's, at the moment of the refusal.
    """

    def __init__(
        self, message: str, *, need_nbytes: int = 0, free_nbytes: int = 0, budget_nbytes: int = 0
    ) -> None:
        super().__init__(message)
        self.need_nbytes = need_nbytes
        self.free_nbytes = free_nbytes
        self.budget_nbytes = budget_nbytes


class ModelTooLarge(MemoryExhausted):
    """The model would not fit even if nothing else were loaded."""


class DiskFull(WorkbenchError):
    """The disk has no room for the files of the model."""


class QueueRefused(WorkbenchError):
    """The request may not wait for the model, or waited too long: its queue's policy says so."""


class TooManyWaiting(QueueRefused):
    """As many requests wait as may wait at once; try again after *retry_after_s*."""

    def __init__(self, message: str, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class ThreadsExhausted(WorkbenchError, RuntimeError):
    """The system starts no more threads now; it may in a moment. Python's own is a RuntimeError."""


class AccessDenied(WorkbenchError):
    """The request may not be answered, whatever it asks for."""


class TokenRequired(AccessDenied):
    """The server asks for its token, and the request has none, or a wrong one."""


class OriginRefused(AccessDenied):
    """A web page of another site sent the request, and the settings do not allow that site."""


class HostRefused(AccessDenied):
    """The request was sent to a host name that is not this server's."""


class GroupClosed(AccessDenied):
    """The settings close the group that the request belongs to."""


class RunFailed(WorkbenchError):
    """The model failed while it ran; its own exception, if it was one of Python's, is the cause."""

    def _render_traceback_(self) -> list[str]:
        """The one line, under the frames of the user's own function, without ours."""
        cause = self.__cause__
        if cause is None or cause.__traceback__ is None:
            return super()._render_traceback_()
        all_frames = traceback.extract_tb(cause.__traceback__)
        frames = [frame for frame in all_frames if not frame.filename.startswith(_OURS)]
        return [*traceback.format_list(frames), *super()._render_traceback_()]


class ContainerRefused(WorkbenchError):
    """The container of an endpoint answered with an error: the message is its body, *code* its own.

    A code of 0 is no answer at all.
    """

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class RequestStopped(WorkbenchError):
    """Nobody waits for the request any more, so it was ended."""


class DeadlineExceeded(RequestStopped):
    """The request took longer than it was given."""


class WaitedTooLong(DeadlineExceeded):
    """The request waited as long as any may, for a load, a thread or a turn.

    Try again after *retry_after_s*.
    """

    def __init__(self, message: str, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class NotSupported(WorkbenchError):
    """A request that is known, and that this server does not answer."""


class ManyAnswers(NotSupported):
    """The model may give several answers to one request, and this kind of request takes one."""


class ServerNotRunning(WorkbenchError):
    """The server is not started yet, or it is stopping."""


class UsageError(WorkbenchError):
    """What the user of the workbench asked for makes no sense."""


class SettingError(UsageError):
    """A setting has no such name, or its value does not parse."""


class RepositoryError(UsageError):
    """The model repository cannot be read."""


class PortInUse(UsageError):
    """The port is taken, by this process or another."""


def forget_frames(error: BaseException) -> None:
    """Delete the tracebacks of *error* and its causes, once it has been reported.

    Their frames hold tensors, and often the error itself: such a reference cycle lasts until the
    garbage collector runs, and then all threads wait for it.
    """
    seen: set[int] = set()
    left = [error]
    while left:
        each = left.pop()
        seen.add(id(each))
        each.__traceback__ = None
        causes = [each.__cause__, each.__context__]
        if isinstance(each, BaseExceptionGroup):
            causes.extend(each.exceptions)
        left.extend(cause for cause in causes if cause is not None and id(cause) not in seen)
