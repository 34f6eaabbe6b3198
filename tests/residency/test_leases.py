"""Futures of leases that nobody waits for any more."""

from concurrent.futures import Future

import pytest

from doubles import FakeSession
from workbench.errors import LoadFailed
from workbench.model import ModelId
from workbench.residency import Lease, Loan, abandon
from workbench.residency.leases import give_back
from workbench.residency.state import DeviceBooks, Resident

A = ModelId("a", 1)


class Lender:
    """Counts what it gets back."""

    def __init__(self) -> None:
        self.back: list[bool] = []

    def take_back(self, loans: object, counts: bool) -> None:
        self.back.append(counts)

    def lease(self, *, counts: bool = False) -> Lease:
        resident = Resident(A, DeviceBooks(0, 100), None, 0.0, pinned=False)  # type: ignore[arg-type]
        session = FakeSession(A, 1, lambda: None)
        return Lease([Loan(A, session, resident)], self.take_back, counts=counts)


@pytest.mark.parametrize("counts", [True, False])
def test_a_lease_is_given_back_once(counts: bool) -> None:
    """However often it is released; whether it counts as a use is told."""
    lender = Lender()
    with lender.lease(counts=counts) as lease:
        pass
    lease.release()
    assert lender.back == [counts]
    assert lease.sessions == {}


@pytest.mark.parametrize("granted_before", [True, False])
def test_what_is_given_back_when_it_comes(granted_before: bool) -> None:
    """A lease that was wanted only to load the model goes back as soon as it is there."""
    lender, future = Lender(), Future[Lease]()
    if granted_before:
        future.set_result(lender.lease())
    give_back(future)
    if not granted_before:
        assert lender.back == []
        future.set_result(lender.lease())
    assert lender.back == [False]


def test_what_is_abandoned() -> None:
    """A wait is cancelled; a lease that came just before goes back."""
    waits = Future[Lease]()
    abandon(waits)
    assert waits.cancelled()
    lender, came = Lender(), Future[Lease]()
    came.set_result(lender.lease())
    abandon(came)
    assert lender.back == [False]


def test_a_lease_that_never_comes(caplog: pytest.LogCaptureFixture) -> None:
    """A wait that was cancelled, or that failed, gives nothing back, and nothing is logged."""
    cancelled, failed = Future[Lease](), Future[Lease]()
    for future in (cancelled, failed):
        give_back(future)
    cancelled.cancel()
    failed.set_exception(LoadFailed("broken"))
    assert caplog.records == []
