"""The table from errors to status codes."""

from collections.abc import Mapping
from concurrent.futures import CancelledError

import grpc
import pytest
from grpc import StatusCode

from workbench import errors
from workbench.errors import nearest
from workbench.grpc.status import PLACED, PLACED_UNNAMED, STATUS, Table, abort
from workbench.http.status import STATUS as HTTP


class Context:
    """A call that is only refused."""

    def __init__(self) -> None:
        self.trailing: tuple[tuple[str, str], ...] = ()

    def set_trailing_metadata(self, trailing: tuple[tuple[str, str], ...]) -> None:
        self.trailing = trailing

    def abort(self, code: StatusCode, details: str) -> None:
        self.code, self.details = code, details
        raise grpc.RpcError


def refused(error: Exception) -> Context:
    context = Context()
    with pytest.raises(grpc.RpcError):
        abort(context, error)
    return context


CLASSES = [value for value in vars(errors).values() if isinstance(value, type)]


@pytest.mark.parametrize("table", [STATUS, HTTP], ids=["gRPC", "HTTP"])
def test_every_error_has_a_code(table: Mapping[type, object]) -> None:
    """Each kind of errors has a code on each wire, and below it only what has another one."""
    assert {each for each in CLASSES if each.__base__ is errors.WorkbenchError} <= set(table)
    below = [each for each in table if each is not errors.WorkbenchError]
    kept = {each for each in below if table[each] != nearest(table, each.__base__())}
    assert kept | set(errors.WorkbenchError.__subclasses__()) >= set(below)


@pytest.mark.parametrize(
    ("table", "kinds"),
    [
        (STATUS, {errors.ModelNotFound, errors.VersionNotFound}),
        (PLACED, {errors.ModelNotFound}),
        (PLACED_UNNAMED, set()),
    ],
)
def test_not_found_is_what_is_not_here(table: Table, kinds: set[type]) -> None:
    """Only models and versions that are not here are NOT_FOUND, and under ModelMesh no version."""
    assert {kind for kind, code in table.items() if code is StatusCode.NOT_FOUND} == kinds


def test_a_client_is_at_fault_on_both_wires() -> None:
    """Codes that blame the client go with HTTP's 4xx, and the others with its 5xx."""
    ours = {
        StatusCode.INTERNAL,
        StatusCode.UNAVAILABLE,
        StatusCode.RESOURCE_EXHAUSTED,
        StatusCode.UNIMPLEMENTED,
        StatusCode.DEADLINE_EXCEEDED,
    }
    for kind in CLASSES:
        error = kind("wrong")
        assert (nearest(STATUS, error) in ours) == (nearest(HTTP, error) >= 500), kind


def test_a_hint_to_try_again() -> None:
    """An error that passes says when to try again, as gRPC's own retries read it."""
    context = refused(errors.QueueRefused("later", 1.5))
    assert context.code is StatusCode.UNAVAILABLE
    assert context.trailing == (("grpc-retry-pushback-ms", "1500"),)


def test_a_bug_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    """An error that is none of ours is INTERNAL, and goes to the log."""
    context = refused(ZeroDivisionError("a\nb"))
    assert (context.code, context.details) == (StatusCode.INTERNAL, "ZeroDivisionError: a b")
    assert "bug" in caplog.text


def test_a_cancelled_call() -> None:
    """A call that nobody waits for is CANCELLED."""
    assert refused(CancelledError()).code is StatusCode.CANCELLED


@pytest.mark.parametrize("letter", ["a", "ü", "\ud800"])
def test_a_message_fits_a_header(letter: str) -> None:
    """A message is cut where it would be too long for a header, between two letters."""
    details = refused(errors.InvalidRequest(letter * 5000)).details
    assert len(details.encode()) <= 2003
    assert details.endswith("...")


def test_frames_are_forgotten() -> None:
    """What an error came through is let go of."""
    error = errors.InvalidRequest("no")
    try:
        raise error
    except errors.InvalidRequest:
        refused(error)
    assert error.__traceback__ is None
