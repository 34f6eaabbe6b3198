"""Loading and closing: what the watch is told of the memory, and what it tells."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from doubles import FakeLoader, Jobs, threaded
from workbench.backends.base import Session
from workbench.errors import WorkbenchError
from workbench.model import Footprint, ModelId
from workbench.stop import CancellationToken

A = ModelId("a", 1)


class Watch:
    """Measures 25 bytes of each load, 30 at its peak."""

    def __init__(self) -> None:
        self.expected: list[int] = []

    @contextmanager
    def load(self, _: ModelId) -> Iterator[Any]:
        change = SimpleNamespace(booked_nbytes=0, peak_nbytes=None)
        yield change
        self.expected.append(change.booked_nbytes)
        change.booked_nbytes, change.peak_nbytes = 25, 30

    @contextmanager
    def close(self, _: ModelId, held_nbytes: int) -> Iterator[None]:
        self.expected.append(-held_nbytes)
        yield


@pytest.mark.parametrize(
    ("mapped_nbytes", "holds", "seen"), [(0, 25, [40, -25]), (30, 40, [10, -10])]
)
def test_what_the_system_does_not_show(mapped_nbytes: int, holds: int, seen: list[int]) -> None:
    """It is not expected of the system, and the books are not corrected by what that shows."""
    watch: Any = Watch()
    footprint = Footprint(weights_nbytes=40, mapped_nbytes=mapped_nbytes)
    jobs, loaded = Jobs(), list[Session | WorkbenchError]()
    work = threaded(FakeLoader({"a": 40}, footprints={"a": footprint}), jobs.submit, watch)
    work.load(A, CancellationToken(), lambda session, _: loaded.append(session))
    jobs.run_all()
    session: Any = loaded[0]
    assert session.footprint.nbytes == holds
    work.close(A, session, session.footprint.nbytes, list)
    jobs.run_all()
    assert watch.expected == seen
