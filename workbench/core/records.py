"""What outlives a core, since people go on looking at it: what happened, and what was counted."""

from __future__ import annotations

from dataclasses import dataclass, field

from workbench.core.learned import ModelRecord
from workbench.core.trace import RequestTrace
from workbench.events import EventLog
from workbench.residency import Telemetry


@dataclass(frozen=True, slots=True)
class Records:
    """The *events*, the last requests, and what was counted of each model, whatever its edition."""

    events: EventLog = field(default_factory=EventLog)
    trace: RequestTrace = field(default_factory=RequestTrace)
    models: dict[tuple[str, int], ModelRecord] = field(default_factory=dict)
    """By name and version."""
    telemetry: Telemetry = field(init=False)
    """What happened to each model."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "telemetry", Telemetry(self.events))

    def forget(self, name: str) -> None:
        """Drop what was counted of the models of that name, which are served no longer."""
        for key in [each for each in list(self.models) if each[0] == name]:
            self.models.pop(key, None)
        self.telemetry.forget(name)
