"""Loaded models as those who run them see them: the leases are held by others."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from workbench.backends.base import Runnable, Session
from workbench.model import ModelId


class Held(Protocol):
    """A loaded model, on which somebody else has a lease for as long as it is used here."""

    @property
    def model(self) -> ModelId: ...

    @property
    def session(self) -> Session: ...


class Borrowed(Protocol):
    """As ``Held``, of a model that is run by its session."""

    @property
    def model(self) -> ModelId: ...

    @property
    def session(self) -> Runnable: ...


class Part(NamedTuple):
    """One of several models that are leased together."""

    model: ModelId
    session: Session
