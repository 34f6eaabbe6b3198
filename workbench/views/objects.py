"""The values that the workbench returns, with their text and HTML for notebooks."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Self

from workbench.core.status.snapshot import ModelStatus, Snapshot
from workbench.events import Entry
from workbench.views.html import events_html, models_html, status_html
from workbench.views.text import events_text, models_text, status_text


@dataclass(frozen=True, slots=True, repr=False)
class Status(Snapshot):
    """The state of a server at one moment."""

    @classmethod
    def of(cls, snapshot: Snapshot) -> Self:
        """The same values, to be shown in a notebook."""
        return cls(*(getattr(snapshot, field.name) for field in fields(snapshot)))

    def __repr__(self) -> str:
        return status_text(self)

    def _repr_html_(self) -> str:
        return status_html(self)


@dataclass(frozen=True, slots=True, repr=False)
class Model(ModelStatus):
    """The state of one model at one moment."""

    @classmethod
    def of(cls, status: ModelStatus) -> Self:
        """The same values, to be shown in a notebook."""
        return cls(*(getattr(status, field.name) for field in fields(status)))

    def __repr__(self) -> str:
        return models_text([self])

    def _repr_html_(self) -> str:
        return models_html([self])


class ModelList(tuple[Model, ...]):
    """The state of several models at one moment."""

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
