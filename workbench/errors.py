"""The tree of all errors, without the status codes of any protocol.

    WorkbenchError
    ├── InvalidRequest           the request cannot be understood, or does not fit the model
    │   ├── RequestTooLarge      it is over a limit of the settings
    │   ├── UnknownMediaType     its body has a media type that the server cannot read
    │   └── NotAcceptable        it accepts only media types that the answer cannot have
    ├── ModelNotFound            no model of that name
    │   └── ModelKeyError        nor in wb[name]; it is a KeyError too
    ├── ModelExists              a model of that name is loaded already
    ├── VersionNotFound          the model has no such version
    ├── RegionNotFound           no shared memory is registered under that name
    ├── ModelNotReady            the model is known, but not loaded now
    ├── LoadFailed               the model cannot be loaded: its file, its configuration, its device
    │   └── ModelNotSupported    it needs a feature that this server does not have
    ├── RunFailed                the model itself failed while it ran
    │   └── WaitsWithoutEnd      functions ask each other without an end
    ├── MemoryExhausted          the model does not fit, and no other may be evicted for it
    │   ├── ModelTooLarge        it would not fit into an empty device
    │   └── RunExhausted         a function or an artifact's code ran out of it; a RunFailed too
    ├── DiskFull                 the disk has no room for the model's files
    ├── QueueRefused             the request may not wait for the model, or waited too long
    │   └── TooManyWaiting       the most requests that the settings allow wait already
    ├── ThreadsExhausted         no thread can be started for it now
    ├── AccessDenied             the client may not make this request
    │   ├── TokenRequired        it has no token, or a wrong one
    │   ├── OriginRefused        a web page of another site sent it
    │   ├── HostRefused          it was sent to a host name that is not this server's
    │   └── GroupClosed          the settings close this group of requests
    ├── ContainerRefused         the container of an endpoint answered with an error
    ├── RequestStopped           nobody waits for the request any more
    │   └── DeadlineExceeded     it took longer than its time limit
    │       └── WaitedTooLong    it waited for a load, a thread or its turn longer than `wait`
    ├── NotSupported             a known request that this server does not answer
    │   └── ManyAnswers          the model may give several answers, and the request takes one
    ├── ServerNotRunning         the server is not started, or is stopping
    └── UsageError               a call, a setting or the repository makes no sense
        ├── SettingError         there is no such setting, or its value is not valid
        ├── RepositoryError      the model repository cannot be read
        ├── PortInUse            the port is taken
        ├── AttributeUnknown     an object has no such attribute; it is an AttributeError too
        ├── ArgumentError        a method is called with wrong arguments; it is a TypeError too
        └── FileRefused          a file cannot be written or read; it is an OSError too

Each adapter holds one table from these classes to its own codes; a class that is not in it has the
code of the nearest class above. A message is one line that says what is wrong and, where there is
one, what to do.
"""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager

TYPE_CHECKING = False  # as in typing, whose import takes its time
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import FrameType
    from typing import TypeVar

    T = TypeVar("T")

_CELL_MAGIC = "get_ipython().run_cell_magic("  # what IPython makes of a cell with %%
_TIMED = ("<timed exec>", "<timed eval>")  # as IPython calls what is below %%time
_EXHAUSTIONS = ("OutOfMemoryError", "ResourceExhaustedError")  # PyTorch, CuPy; TensorFlow
_OUT_OF_MEMORY = (  # how libraries tell it, in small letters; XLA begins with RESOURCE_EXHAUSTED:
    "out of memory",
    "out_of_memory",
    "failed to allocate memory",
    "smaller than requested bytes",
    "bad_alloc",
    "alloc_failed",
    "allocation_failed",
    "defaultcpuallocator",
    "cannot allocate memory",
    "cudaerrormemoryallocation",
)
_OURS = os.path.dirname(__file__) + os.sep  # noqa: PTH120  # the files of this package


def place_in_cell(frame: FrameType | None) -> str:
    """Which line of a longer cell called *frame*: ``" (line 3 of the cell)"``; else nothing."""
    lines = []
    while frame is not None:
        lines.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return _place(reversed(lines))


def show_in_one_line(interrupt: BaseException, called: str) -> None:
    """Have IPython show the *interrupt* of the method *called* without the frames inside it."""
    from inspect import currentframe  # it takes its time, and errors are imported first of all

    line = f"{type(interrupt).__name__}: {called} was interrupted{place_in_cell(currentframe())}"
    interrupt._render_traceback_ = lambda: [line]  # type: ignore[attr-defined]


def _is_cell(filename: str) -> bool:
    """Whether it is how IPython calls a cell, in a terminal or in a kernel."""
    folder = os.path.basename(os.path.dirname(filename))  # noqa: PTH119, PTH120
    return filename.startswith("<ipython-input-") or folder.startswith("ipykernel_")


def _place(lines: Iterator[tuple[str, int]]) -> str:
    """As ``place_in_cell``, of the files and lines that called each other, the first one first."""
    import linecache  # where IPython keeps the text of cells

    line = 0
    for filename, number in lines:
        if _is_cell(filename):
            text = linecache.getlines(filename)
            if len(text) > 1:
                line = number
            elif text and text[0].startswith(_CELL_MAGIC):
                line = next((each + 1 for name, each in lines if name in _TIMED), 0)
            break
    return f" (line {line} of the cell)" if line else ""


class WorkbenchError(Exception):
    """The base class of all errors that the workbench raises on purpose.

    *retry_after_s*: after how many seconds the same request may succeed; ``None`` if unknown.
    """

    retry_after_s: float | None = None

    def _render_traceback_(self) -> list[str]:
        """What IPython shows in a cell: the one line, since the mistake is not in our code."""
        lines, trace = [], self.__traceback__
        while trace is not None:
            lines.append((trace.tb_frame.f_code.co_filename, trace.tb_lineno))
            trace = trace.tb_next
        return [f"{type(self).__name__}: {self}{_place(iter(lines))}"]


class InvalidRequest(WorkbenchError):
    """The request cannot be understood, or does not fit the model."""


class RequestTooLarge(InvalidRequest):
    """The request is over a limit of the settings."""


class UnknownMediaType(InvalidRequest):
    """The body has a media type that the server cannot read, or may not read."""


class NotAcceptable(InvalidRequest):
    """The request accepts only media types that its answer cannot have."""


class ModelNotFound(WorkbenchError):
    """There is no model of that name."""


class ModelKeyError(ModelNotFound, KeyError):
    """``wb[name]`` names no model."""

    __str__ = Exception.__str__  # KeyError's puts the message in quotes


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
    """The model needs a feature that this server does not have, such as sequences."""


class RunFailed(WorkbenchError):
    """The model failed while it ran. ``__cause__`` is the exception of a Python function."""

    def _render_traceback_(self) -> list[str]:
        """The one line, under the frames of the user's own function, without ours."""
        cause = self.__cause__
        if cause is None or cause.__traceback__ is None:
            return super()._render_traceback_()
        import traceback  # it takes its time, and errors are imported first of all

        all_frames = traceback.extract_tb(cause.__traceback__)
        frames = [frame for frame in all_frames if not frame.filename.startswith(_OURS)]
        return [*traceback.format_list(frames), *super()._render_traceback_()]


class WaitsWithoutEnd(RunFailed):
    """Functions ask each other, or wait for each other, without an end."""


class MemoryExhausted(WorkbenchError):
    """There is no room for the model, and no other model may be evicted for it.

    *need_nbytes* is the memory that it needs; *budget_nbytes* and *free_nbytes* are
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


class RunExhausted(MemoryExhausted, RunFailed):
    """The code of a model ran out of memory, of the host or of a GPU. ``__cause__`` says where."""


class DiskFull(WorkbenchError):
    """The disk has no room for the files of the model."""


class QueueRefused(WorkbenchError):
    """The queue policy of the model does not let the request wait, or wait any longer."""


class TooManyWaiting(QueueRefused):
    """The most requests that may wait at once wait already; try again after *retry_after_s*."""

    def __init__(self, message: str, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class ThreadsExhausted(WorkbenchError, RuntimeError):
    """The system cannot start another thread now. A ``RuntimeError``, as Python raises for it."""


class AccessDenied(WorkbenchError):
    """The client may not make this request."""


class TokenRequired(AccessDenied):
    """The request has no token, or a wrong one."""


class OriginRefused(AccessDenied):
    """A web page of another site sent the request, and the settings do not allow that site."""


class HostRefused(AccessDenied):
    """The request was sent to a host name that is not this server's."""


class GroupClosed(AccessDenied):
    """The settings close the group that the request belongs to."""


class ContainerRefused(WorkbenchError):
    """The container of an endpoint answered with an error, whose body is the message.

    *code* is its status, and *told* what the body says.
    """

    def __init__(self, message: str, code: int = 500, told: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.told = told or message


class RequestStopped(WorkbenchError):
    """Nobody waits for the request any more, so it was ended."""


class DeadlineExceeded(RequestStopped):
    """The request took longer than its time limit."""


class WaitedTooLong(DeadlineExceeded):
    """The request waited as long as the setting ``wait`` allows for a load, a thread or its turn.

    Try again after *retry_after_s*.
    """

    def __init__(self, message: str, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class NotSupported(WorkbenchError):
    """The protocol has this request, but this server does not support it."""


class ManyAnswers(NotSupported):
    """The model may give several answers to one request, and this kind of request takes one."""


class ServerNotRunning(WorkbenchError):
    """The server is not started yet, or it is stopping."""


class UsageError(WorkbenchError):
    """A call, a setting or the repository makes no sense."""


class SettingError(UsageError):
    """There is no such setting, or its value is not valid."""


class RepositoryError(UsageError):
    """The model repository cannot be read."""


class PortInUse(UsageError):
    """The port is taken, by this process or another."""


class AttributeUnknown(UsageError, AttributeError):
    """An object has no such attribute. An ``AttributeError``, as Python raises for it."""


class ArgumentError(UsageError, TypeError):
    """A method is called with wrong arguments. A ``TypeError``, as Python raises for it."""


class FileRefused(UsageError, OSError):
    """A file cannot be written or read. An ``OSError``, as Python raises for it."""


def nearest(table: Mapping[type[WorkbenchError], T], error: WorkbenchError) -> T:
    """What *table* has for the class of *error*, or else for the nearest class above it."""
    return next(table[kind] for kind in type(error).__mro__ if kind in table)


def line_of(error: BaseException) -> str:
    """The message of *error*, which may be of any class, on one line."""
    try:
        return " ".join(str(error).split())
    except Exception as failure:  # its own __str__ may raise anything
        return f"its message cannot be read: __str__ raised {type(failure).__name__}"


def is_exhaustion(error: BaseException | None) -> bool:
    """Whether *error*, of any library, or an error that led to it says that memory ran out."""
    seen: set[int] = set()  # ``raise error from error`` makes it its own cause
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, MemoryError | MemoryExhausted) or _tells_exhaustion(error):
            return True
        if isinstance(error, BaseExceptionGroup) and any(map(is_exhaustion, error.exceptions)):
            return True
        error = error.__cause__ or error.__context__
    return False


def _tells_exhaustion(error: BaseException) -> bool:
    """Whether its class or its words are those of a library that got no memory.

    Errors of Python's own classes have such words by chance, unless they are of the general ones.
    """
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    kinds = type(error).__mro__
    if isinstance(error, WorkbenchError) or (
        kinds[0].__module__ == "builtins" and kinds[0] not in (RuntimeError, Exception)
    ):
        return False
    if any(kind.__name__ in _EXHAUSTIONS for kind in kinds):
        return True
    told = line_of(error).lower()
    return told.startswith("resource_exhausted:") or any(words in told for words in _OUT_OF_MEMORY)


def class_and_line_of(error: BaseException) -> str:
    """The class of *error*, and its message on one line, if it has one."""
    return f"{type(error).__name__}: {line_of(error)}".removesuffix(": ")


def reason_of(error: OSError) -> str:
    """The system's words for *error*, without its number and the file."""
    return error.strerror or type(error).__name__


@contextmanager
def refused_in_one_line(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raises an ``OSError`` about *path*, or a file below it, as ``FileRefused``.

    A file that is first written as ``.NAME.part`` is told by its name.
    """
    try:
        yield
    except FileRefused:
        raise
    except OSError as error:
        folder, name = os.path.split(error.filename2 or error.filename or path)
        if name.startswith(".") and name.endswith(".part"):
            name = name[1:].removesuffix(".part")
        refused = FileRefused(f"{os.path.join(folder, name)}: {reason_of(error)}")  # noqa: PTH118
        refused.errno = error.errno
        raise refused from error


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
