"""Waiting for models that a user wants loaded."""

from concurrent.futures import Future

import pytest

from doubles import FakeLoader, Jobs, threaded
from workbench.core.lifecycle.await_load import loaded
from workbench.errors import RequestStopped
from workbench.events import EventLog
from workbench.memory.eviction import POLICIES
from workbench.model import ModelId
from workbench.residency import OnDevice, Purpose, Residency, Telemetry
from workbench.stop import CancellationToken

A, BIG = ModelId("a", 1), ModelId("big", 1)


def test_an_interrupted_wait_gives_the_lease_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait that is interrupted leaves no lease behind: the model can be evicted."""
    jobs = Jobs()
    work = threaded(FakeLoader({"a": 60, "big": 100}), jobs.submit)
    residency = Residency([OnDevice(100, work)], POLICIES["lru"], Telemetry(EventLog()))

    def interrupted(_: object, timeout: float | None = None) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Future, "exception", interrupted)
        with pytest.raises(KeyboardInterrupt):
            loaded(residency, residency.acquire(A, purpose=Purpose.LOAD), [A], None, 30.0)
    jobs.run_all()
    asked = residency.acquire(BIG)
    jobs.run_all()
    assert asked.result(0).model == BIG


def test_a_load_that_is_stopped_when_it_is_done_has_no_lease() -> None:
    """What was stopped gave its lease back already: nobody may use the model without one."""
    jobs = Jobs()
    work = threaded(FakeLoader({"a": 60}), jobs.submit)
    residency = Residency([OnDevice(100, work)], POLICIES["lru"], Telemetry(EventLog()))
    residency.acquire(A)
    jobs.run_all()  # so that the lease is granted at once
    stop = CancellationToken()
    stop.set(RequestStopped("nobody waits"))
    with pytest.raises(RequestStopped, match="nobody waits"):
        loaded(residency, residency.acquire(A, purpose=Purpose.LOAD), [A], stop, 30.0)
    assert residency.snapshot().residents[A].leases == 1  # that of the first request
