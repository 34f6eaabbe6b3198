"""Leases, and functions for futures of leases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Self

from workbench.backends.base import Session
from workbench.model import ModelId
from workbench.residency.state import Resident


@dataclass(frozen=True, slots=True)
class Loan:
    """A loaded *model* and its *session*, lent for a run that begins and ends in one call.

    It is the same value each time, so that lending takes less than a ``Lease`` does. It is given
    back with ``Residency.end``.
    """

    model: ModelId
    session: Session
    resident: Resident


class Lease:
    """Borrowed use of loaded models: until it is released, none of them is unloaded.

    *model* and *session* belong to the first model; *residents* are all models, empty after the
    release, which gives them to *take_back*. *counts*: whether the release counts as a use of the
    models. A context manager; releasing twice does nothing.
    """

    def __init__(
        self,
        residents: Sequence[Resident],
        sessions: Sequence[Session],
        take_back: Callable[[Sequence[Resident], bool], object],
        *,
        counts: bool = False,
    ) -> None:
        self.residents = residents
        self._all = sessions
        self._take_back = take_back
        self.counts = counts
        self.model = residents[0].id
        self.session = sessions[0]

    @property
    def sessions(self) -> dict[ModelId, Session]:
        return {r.id: session for r, session in zip(self.residents, self._all, strict=False)}

    def release(self) -> None:
        residents = self.residents
        if residents:
            self.residents = ()
            self._take_back(residents, self.counts)

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
