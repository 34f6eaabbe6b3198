"""Errors as answers."""

import json

import pytest

from workbench.errors import InvalidRequest, QueueRefused, WaitedTooLong, WorkbenchError
from workbench.http.status import error_reply


@pytest.mark.parametrize("error", [InvalidRequest("é" * 10**6), ValueError("é" * 10**6)])
def test_long_messages(error: Exception) -> None:
    """A message that repeats a name of the request is cut where nobody reads on."""
    (body,) = error_reply(error).parts
    told = json.loads(bytes(body))["error"]
    assert len(told) < 5000
    assert told.endswith("ééé...")


def test_a_bug_is_logged_with_its_frames(caplog: pytest.LogCaptureFixture) -> None:
    """What is no error of ours goes to the log whole, and only then its frames are let go of."""
    error = KeyError("lost")
    with pytest.raises(KeyError):
        raise error
    assert error_reply(error).status == 500
    assert "test_a_bug_is_logged_with_its_frames" in caplog.text
    assert error.__traceback__ is None


@pytest.mark.parametrize("error", [QueueRefused("full", 5.2), WaitedTooLong("late", 5.2)])
def test_when_to_try_again(error: WorkbenchError) -> None:
    """A refusal for want of time or places says after how many whole seconds to try again."""
    reply = error_reply(error)
    assert reply.status == 503
    assert (b"retry-after", b"6") in reply.headers
