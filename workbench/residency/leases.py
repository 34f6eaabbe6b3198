"""Leases, and the futures that they come by."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Self

from workbench.backends.base import Session
from workbench.model import ModelId
from workbench.residency.state import Resident

if TYPE_CHECKING:
    from workbench.residency.executor import Residency


class Lease:
    """Borrowed use of loaded models: until it is released, none of them is unloaded.

    *model* and *session* are those of the first one; *residents* are all of them, until then.
    A *tied* lease keeps its models from leaving for others. A context manager; releasing twice
    does nothing.
    """

    __slots__ = ("_all", "_lender", "_tied", "model", "residents", "session")

    def __init__(
        self,
        residents: Sequence[Resident],
        sessions: Sequence[Session],
        lender: Residency,
        *,
        tied: bool = False,
    ) -> None:
        self.residents = residents
        self._all = sessions
        self._lender = lender
        self._tied = tied
        self.model = residents[0].id
        self.session = sessions[0]

    @property
    def sessions(self) -> dict[ModelId, Session]:
        """The sessions of all leased models."""
        return {r.id: session for r, session in zip(self.residents, self._all, strict=False)}

    def share(self, model: ModelId) -> Lease:
        """Another lease, on *model* alone, which is one of these; it lasts by itself.

        Before this one is released; also where *model* is on its way out.
        """
        place = [resident.id for resident in self.residents].index(model)
        return self._lender.share(self.residents[place], self._all[place])

    def release(self) -> None:
        """Give the models back."""
        residents = self.residents
        if residents:
            self.residents = ()
            self._lender.take_back(residents, self._tied)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def wait_for(future: Future[Lease]) -> Lease:
    """The lease, waiting for it; an interrupted wait gives the lease back."""
    try:
        return future.result()
    except BaseException:
        abandon(future)
        raise


def abandon(future: Future[Lease]) -> None:
    """Nobody waits for this lease any more: whenever it comes, it goes back."""
    if not future.cancel():
        give_back(future)


def give_back(future: Future[Lease]) -> None:
    """The lease is wanted only so that the model is loaded: once it has come, it goes back."""
    future.add_done_callback(
        lambda done: None if done.cancelled() or done.exception() else done.result().release()
    )
