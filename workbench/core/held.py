"""Leased models, for code that runs them but does not own the lease."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from workbench.backends.base import Runnable, Session
from workbench.model import ModelId


class Held(Protocol):
    """A loaded model; the caller holds a lease on it."""

    @property
    def model(self) -> ModelId: ...

    @property
    def session(self) -> Session: ...


class Borrowed(Held, Protocol):
    """As ``Held``, for a model whose session can be run: no ensemble."""

    @property
    def session(self) -> Runnable: ...


class Part(NamedTuple):
    """One of several models of one lease."""

    model: ModelId
    session: Session
