"""The end of what nobody waits for any more."""

import pytest

from workbench.errors import DeadlineExceeded, RequestStopped
from workbench.stop import CancellationToken


def test_ends_what_is_under_way() -> None:
    """It calls what ends the thing that is under way, once, and keeps the first reason."""
    stop, ended = CancellationToken(), []
    with stop.calls(lambda: ended.append("run")):
        assert ended == []
        stop.set(DeadlineExceeded("late"))
        stop.set(RequestStopped("gone"))
    assert ended == ["run"]
    assert isinstance(stop.error, DeadlineExceeded)


def test_ends_what_begins_late() -> None:
    """What begins after it was set is ended at once."""
    stop, ended = CancellationToken(), []
    stop.set(RequestStopped("gone"))
    with stop.calls(lambda: ended.append("run")):
        assert ended == ["run"]


def test_what_is_done_is_left_alone() -> None:
    """What ended by itself, or in an error, is not ended again."""
    stop, ended = CancellationToken(), []
    with pytest.raises(ZeroDivisionError), stop.calls(lambda: ended.append("run")):
        raise ZeroDivisionError
    stop.set(RequestStopped("gone"))
    assert ended == []
