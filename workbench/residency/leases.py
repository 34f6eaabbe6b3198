"""Leases, and functions for futures of leases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Self

from msgspec import Struct

from workbench.backends.base import Session
from workbench.model import ModelId
from workbench.residency.state import Resident


class Loan(Struct, frozen=True):
    """A loaded *model* and its *session*, lent for a run that begins and ends in one call.

    It is the same value each time, so that lending takes less than a ``Lease`` does. It is given
    back with ``Residency.end``.
    """

    model: ModelId
    session: Session
    resident: Resident


class Lease:
    """Borrowed use of loaded models: until it is released, none of them is unloaded.

    *model* and *session* belong to the first model; *loans* are all models, empty after the
    release, which gives them to *take_back*. *counts*: whether the release counts as a use of the
    models. A context manager; releasing twice does nothing.
    """

    def __init__(
        self,
        loans: Sequence[Loan],
        take_back: Callable[[Sequence[Loan], bool], object],
        *,
        counts: bool = False,
    ) -> None:
        self.loans = loans
        self._take_back = take_back
        self.counts = counts
        self.model = loans[0].model
        self.session = loans[0].session

    @property
    def sessions(self) -> dict[ModelId, Session]:
        """The sessions of all models, by their ids without editions."""
        return {loan.model.plain: loan.session for loan in self.loans}

    def release(self) -> None:
        loans = self.loans
        if loans:
            self.loans = ()
            self._take_back(loans, self.counts)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def abandon(future: Future[Lease]) -> None:
    """Give up waiting: if the lease is granted later, it is released at once."""
    if not future.cancel():
        give_back(future)


def give_back(future: Future[Lease]) -> None:
    """Release the lease as soon as it is granted: it was wanted only to load the model."""
    future.add_done_callback(
        lambda done: None if done.cancelled() or done.exception() else done.result().release()
    )
