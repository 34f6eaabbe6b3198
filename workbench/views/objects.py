"""The things that the workbench hands out, as they show themselves in text and HTML."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Self

from workbench.core.status.snapshot import ModelStatus, Snapshot
from workbench.events import Entry
from workbench.views.html import events_html, models_html, status_html
from workbench.views.text import events_text, models_text, status_text


@dataclass(frozen=True, slots=True, repr=False)
class Status(Snapshot):
    """A server, as it was when it was asked about."""

    @classmethod
    def of(cls, snapshot: Snapshot) -> Self:
        """The same values, with a face."""
        return cls(*(getattr(snapshot, field.name) for field in fields(snapshot)))

    def __repr__(self) -> str:
        return status_text(self)

    def _repr_html_(self) -> str:
        return status_html(self)


@dataclass(frozen=True, slots=True, repr=False)
class Model(ModelStatus):
    """One model, as it was when it was asked about."""

    @classmethod
    def of(cls, status: ModelStatus) -> Self:
        """The same values, with a face."""
        return cls(*(getattr(status, field.name) for field in fields(status)))

    def __repr__(self) -> str:
        return models_text([self])

    def _repr_html_(self) -> str:
        return models_html([self])


class ModelList(tuple[Model, ...]):
    """Models, as they were when they were asked about."""

    __slots__ = ()

    def __repr__(self) -> str:
        return models_text(self)

    def _repr_html_(self) -> str:
        return models_html(self)


class EventList(tuple[Entry, ...]):
    """Events with their numbers and times, oldest first."""

    __slots__ = ()

    def __repr__(self) -> str:
        return events_text(self)

    def _repr_html_(self) -> str:
        return events_html(self)
