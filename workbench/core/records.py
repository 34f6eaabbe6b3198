"""Events and statistics: they outlive a core, so that a restart does not lose them."""

from __future__ import annotations

from dataclasses import dataclass, field

from workbench.core.learned import ModelRecord
from workbench.core.trace import RequestTrace
from workbench.events import EventLog
from workbench.model import drop_name
from workbench.residency import Telemetry


@dataclass(frozen=True, slots=True)
class Records:
    """The events, the last requests, and the record of each model over all its editions."""

    events: EventLog = field(default_factory=EventLog)
    trace: RequestTrace = field(default_factory=RequestTrace)
    models: dict[tuple[str, int], ModelRecord] = field(default_factory=dict)
    """By name and version."""
    telemetry: Telemetry = field(init=False)
    """Statistics of loads and reasons of absence, by model."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "telemetry", Telemetry(self.events))

    def forget(self, name: str) -> None:
        """Drop the records of the models called *name*, which are no longer served."""
        drop_name(self.models, name)
        self.telemetry.forget(name)
