"""The values that the workbench returns, with their text and HTML for notebooks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Self, SupportsIndex, TypeVar, overload

from workbench.core.status.snapshot import ModelStatus, Snapshot
from workbench.errors import AttributeUnknown, ModelNotFound
from workbench.events import Entry
from workbench.model import ModelId, Signature, TensorSpec
from workbench.spelling import available, meant
from workbench.views.columns import frame, tensors_text
from workbench.views.html import events_html, models_html, status_html
from workbench.views.text import events_text, models_text, status_text

T = TypeVar("T")

_FRAMES = ("DataFrame", "dataframe", "frame", "head", "tail", "to_df", "to_frame", "to_pandas")

_DESCRIBED = 200  # models; to look up what a model takes needs about a millisecond


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


SignatureOf = Callable[[ModelId], Signature | None]
"""Looks up what a model takes and gives; ``None`` if its files do not say."""


@dataclass(frozen=True, slots=True, repr=False)
class Model(ModelStatus):
    """The state of one model at one moment."""

    describe: SignatureOf | None = field(default=None, compare=False)

    @classmethod
    def of(cls, status: ModelStatus, describe: SignatureOf | None = None) -> Self:
        """The same values, to be shown in a notebook; *describe* finds its inputs and outputs."""
        values = {field.name: getattr(status, field.name) for field in fields(ModelStatus)}
        return cls(**values, describe=describe)

    @property
    def name(self) -> str:
        """The name of the model."""
        return self.id.name

    @property
    def version(self) -> int:
        """The model's version."""
        return self.id.version

    @property
    def inputs(self) -> dict[str, TensorSpec]:
        """The inputs by name, as the model's files or server declare them now; else none."""
        signature = self._signature()
        return {} if signature is None else dict(signature.inputs)

    @property
    def outputs(self) -> dict[str, TensorSpec]:
        """The outputs by name, read as ``inputs`` are."""
        signature = self._signature()
        return {} if signature is None else dict(signature.outputs)

    def _signature(self) -> Signature | None:
        return self.describe(self.id) if self.describe else None

    def __repr__(self) -> str:
        return models_text([self], _signatures([self]))

    def _repr_html_(self) -> str:
        return models_html([self], _signatures([self]))


class _Shown(tuple[T, ...]):
    """A tuple whose parts are shown as it is."""

    __slots__ = ()
    _WHAT = ""  # in the words of an error

    if not TYPE_CHECKING:  # else every attribute would exist

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):  # as Python and IPython look for
                raise AttributeError(name)
            raise AttributeUnknown(f"{self._WHAT} has no attribute {name!r}{self._cure(name)}")

    def _cure(self, name: str) -> str:
        """The hint for a missing attribute *name*: the words to write in its place."""
        return ": df() is a table of it" if name in _FRAMES else meant(name, dir(type(self)))

    @overload
    def __getitem__(self, at: SupportsIndex) -> T: ...

    @overload
    def __getitem__(self, at: slice) -> Self: ...

    def __getitem__(self, at: SupportsIndex | slice) -> T | Self:
        found: Any = super().__getitem__(at)
        return type(self)(found) if isinstance(at, slice) else found


class ModelList(_Shown[Model]):
    """The state of several models at one moment; ``models["wine"]`` is that of one of them."""

    __slots__ = ()
    _WHAT = "a list of models"

    @overload
    def __getitem__(self, at: SupportsIndex | str) -> Model: ...

    @overload
    def __getitem__(self, at: slice) -> Self: ...

    def __getitem__(self, at: SupportsIndex | str | slice) -> Model | Self:
        """The model at an index, or a name's last version. Raises ``ModelNotFound``."""
        if not isinstance(at, str):
            return super().__getitem__(at)
        found = [model for model in self if model.name == at]
        if not found:
            names = list(dict.fromkeys(model.name for model in self))
            raise ModelNotFound(
                f"there is no model {at!r}{meant(at, names) or f'; {available(names)}'}"
            )
        return max(found, key=lambda model: model.version)

    def __contains__(self, model: object) -> bool:
        """True if the list has *model*, or a model of that name."""
        if isinstance(model, str):
            return any(each.name == model for each in self)
        return super().__contains__(model)

    def _cure(self, name: str) -> str:
        is_there = any(model.name == name for model in self)
        return f": write [{name!r}]" if is_there else super()._cure(name)

    def df(self) -> Any:
        """A table of pandas with a row for each model. Raises ``UsageError`` without pandas."""
        return frame([_values(model) for model in self])

    def __repr__(self) -> str:
        return models_text(self, _signatures(self))

    def _repr_html_(self) -> str:
        return models_html(self, _signatures(self))


def _signatures(models: Sequence[Model]) -> list[Signature | None]:
    """The signatures of *models*; none if there are so many that reading them takes seconds."""
    if len(models) > _DESCRIBED:
        return []
    return [model.describe(model.id) if model.describe else None for model in models]


def _values(model: Model) -> dict[str, object]:
    """The cells of a model in a table."""
    requests = model.requests
    return {
        "name": model.id.name,
        "version": model.id.version,
        "state": model.state.value,
        "pinned": model.pinned,
        "device": str(model.device or ""),
        "nbytes": model.nbytes,
        "run_nbytes": model.run_nbytes,
        "requests": requests.succeeded,
        "failed": requests.failed,
        "p50_s": requests.p50_s,
        "p99_s": requests.p99_s,
        "loads": model.load_statistics.loads,
        "evictions": model.load_statistics.evictions,
        "inputs": tensors_text(model.inputs.values()),
        "outputs": tensors_text(model.outputs.values()),
        "reason": model.reason,
    }


class EventList(_Shown[Entry]):
    """Events with their numbers and times, oldest first; shown with the newest first."""

    __slots__ = ()
    _WHAT = "a list of events"

    def df(self) -> Any:
        """A table of pandas with a row for each event. Raises ``UsageError`` without pandas."""
        rows = ((entry, getattr(entry.event, "model", None)) for entry in self)
        return frame(
            [
                {
                    "number": entry.number,
                    "at_s": entry.at_s,
                    "kind": entry.event.kind,
                    "model": "" if model is None else str(model),
                    "text": str(entry.event),
                }
                for entry, model in rows
            ]
        )

    def __repr__(self) -> str:
        return events_text(self)

    def _repr_html_(self) -> str:
        return events_html(self)
