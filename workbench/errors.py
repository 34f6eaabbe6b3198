"""The tree of all errors, without the status codes of any protocol.

    WorkbenchError
    ├── InvalidRequest           the request cannot be understood, or does not fit the model
    │   ├── RequestTooLarge      it is over a limit of the settings
    │   ├── UnknownMediaType     its body has a media type that the server cannot read
    │   └── NotAcceptable        it accepts only media types that the answer cannot have
    ├── ModelNotFound            no model of that name; it is a KeyError too
    ├── VersionNotFound          the model has no such version
    ├── RegionNotFound           no shared memory is registered under that name
    ├── ModelNotReady            the model is known, but not loaded now
    ├── LoadFailed               the model cannot be loaded: its file, its configuration, its device
    │   └── ModelNotSupported    it needs a feature that this server does not have
    ├── RunFailed                the model itself failed while it ran
    ├── MemoryExhausted          there is no room for the model, or its code ran out of memory
    ├── QueueRefused             the request may not wait, or waited too long in the model's queue
    ├── ThreadsExhausted         no thread can be started for it now
    ├── AccessDenied             the client may not make this request
    │   ├── TokenRequired        it has no token, or a wrong one
    │   └── HostRefused          it was sent to a host name that is not this server's
    ├── RequestStopped           nobody waits for the request any more
    │   └── DeadlineExceeded     it took longer than its time limit
    │       └── WaitedTooLong    it waited for a load, a thread or its turn longer than `wait`
    ├── NotSupported             a known request that this server does not answer
    ├── ServerNotRunning         the server is not started, or is stopping
    └── UsageError               a call, a setting or the repository makes no sense
        ├── SettingError         there is no such setting, or its value is not valid
        ├── RepositoryError      the model repository cannot be read
        ├── PortInUse            the port is taken
        └── AttributeUnknown     an object has no such attribute; it is an AttributeError too

Each adapter holds one table from these classes to its own codes; a class that is not in it has the
code of the nearest class above. A message is one line that says what is wrong and, where there is
one, what to do.
"""

from __future__ import annotations

import os
from contextlib import contextmanager

TYPE_CHECKING = False  # as in typing, whose import takes its time
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import TypeVar

    T = TypeVar("T")


class WorkbenchError(Exception):
    """The base class of all errors that the workbench raises on purpose.

    *retry_after_s*: after how many seconds the same request may succeed; ``None`` if unknown.
    """

    retry_after_s: float | None = None

    def __init__(self, message: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(message)
        if retry_after_s is not None:
            self.retry_after_s = retry_after_s

    def _render_traceback_(self) -> list[str]:
        """The text that IPython shows: one line, since the mistake is not in our code."""
        from workbench.tracebacks import in_a_cell  # it takes its time

        return in_a_cell(self, of_model=isinstance(self, RunFailed | MemoryExhausted))


class InvalidRequest(WorkbenchError):
    """The request cannot be understood, or does not fit the model."""


class RequestTooLarge(InvalidRequest):
    """The request is over a limit of the settings."""


class UnknownMediaType(InvalidRequest):
    """The body has a media type that the server cannot read, or may not read."""


class NotAcceptable(InvalidRequest):
    """The request accepts only media types that its answer cannot have."""


class ModelNotFound(WorkbenchError, KeyError):
    """There is no model of that name. A ``KeyError``, as Python raises for ``wb[name]``."""

    __str__ = Exception.__str__  # KeyError's puts the message in quotes


class VersionNotFound(WorkbenchError):
    """The model has no such version."""


class RegionNotFound(WorkbenchError):
    """No region of shared memory is registered under that name."""


class ModelNotReady(WorkbenchError):
    """The model is known, but it is not loaded now and nothing loads it by itself."""


class LoadFailed(WorkbenchError):
    """The model cannot be loaded: its file, its configuration or its device is wrong."""


class ModelNotSupported(LoadFailed):
    """The model needs a feature that this server does not have, such as sequences."""


class RunFailed(WorkbenchError):
    """The model failed while it ran. ``__cause__`` is the exception of a Python function.

    *circle*: the models that ask each other, or wait for each other, without an end.
    """

    def __init__(self, message: str, *, circle: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.circle = circle


class MemoryExhausted(WorkbenchError):
    """There is no room for the model, or its code ran out of memory, as ``__cause__`` says then.

    *need_nbytes* is the memory that it needs; *budget_nbytes* and *free_nbytes* are the device's,
    at the moment of the refusal. *too_large*: it would not fit even if nothing else were loaded.
    """

    def __init__(
        self,
        message: str,
        *,
        need_nbytes: int = 0,
        free_nbytes: int = 0,
        budget_nbytes: int = 0,
        too_large: bool = False,
    ) -> None:
        super().__init__(message)
        self.need_nbytes = need_nbytes
        self.free_nbytes = free_nbytes
        self.budget_nbytes = budget_nbytes
        self.too_large = too_large


class QueueRefused(WorkbenchError):
    """The request may not wait for the model, or not any longer."""


class ThreadsExhausted(WorkbenchError, RuntimeError):
    """The system cannot start another thread now. A ``RuntimeError``, as Python raises for it."""


class AccessDenied(WorkbenchError):
    """The client may not make this request: its page, or its kind, is not allowed."""


class TokenRequired(AccessDenied):
    """The request has no token, or a wrong one."""


class HostRefused(AccessDenied):
    """The request was sent to a host name that is not this server's."""


class RequestStopped(WorkbenchError):
    """Nobody waits for the request any more, so it was ended."""


class DeadlineExceeded(RequestStopped):
    """The request took longer than its time limit."""


class WaitedTooLong(DeadlineExceeded):
    """The request waited as long as ``wait`` allows, for a load, a thread or its turn."""

    retry_after_s = 1.0


class NotSupported(WorkbenchError):
    """The protocol has this request, but this server, or this model, does not support it."""


class ServerNotRunning(WorkbenchError):
    """The server is not started yet, or it is stopping."""


class UsageError(WorkbenchError):
    """A call, its arguments or the file that it names make no sense."""


class SettingError(UsageError):
    """There is no such setting, or its value is not valid."""


class RepositoryError(UsageError):
    """The model repository cannot be read."""


class PortInUse(UsageError):
    """The port is taken, by this process or another."""


class AttributeUnknown(UsageError, AttributeError):
    """An object has no such attribute. An ``AttributeError``, as Python raises for it."""


def nearest(table: Mapping[type[WorkbenchError], T], error: WorkbenchError) -> T:
    """The value in *table* for the class of *error*, or else for the nearest class above it."""
    return next(table[kind] for kind in type(error).__mro__ if kind in table)


def line_of(error: BaseException) -> str:
    """The message of *error*, which may be of any class, on one line."""
    try:
        return " ".join(str(error).split())
    except Exception as failure:  # its own __str__ may raise anything
        return f"its message cannot be read: __str__ raised {type(failure).__name__}"


def chain_of(error: BaseException | None) -> Iterator[BaseException]:
    """The *error* and all that led to it, each once, though it may be its own cause."""
    seen, left = set(), [error]
    while left:
        each = left.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            left += (each.__context__, each.__cause__)
            left += each.exceptions if isinstance(each, BaseExceptionGroup) else ()
            yield each


def class_and_line_of(error: BaseException) -> str:
    """The class of *error*, and its message on one line, if it has one."""
    return f"{type(error).__name__}: {line_of(error)}".removesuffix(": ")


def reason_of(error: OSError) -> str:
    """The system's words for *error*, without its number and the file."""
    return error.strerror or type(error).__name__


@contextmanager
def refused_in_one_line(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raises an ``OSError`` about *path*, or a file below it, as ``UsageError``.

    A file that is first written as ``.NAME.part`` is told by its name.
    """
    try:
        yield
    except OSError as error:
        folder, name = os.path.split(error.filename2 or error.filename or path)
        if name.startswith(".") and name.endswith(".part"):
            name = name[1:].removesuffix(".part")
        raise UsageError(f"{os.path.join(folder, name)}: {reason_of(error)}") from error  # noqa: PTH118


def forget_frames(error: BaseException) -> None:
    """Delete the tracebacks of *error* and its causes, once it has been reported.

    Their frames hold tensors, and often the error itself: such a reference cycle lasts until the
    garbage collector runs, and then all threads wait for it.
    """
    for each in chain_of(error):
        each.__traceback__ = None
