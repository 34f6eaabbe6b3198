"""The events of SageMaker's endpoint and container."""

from __future__ import annotations

from workbench.events import Event
from workbench.model import ModelId
from workbench.nbytes import show_nbytes


class EndpointMeasured(Event, frozen=True):
    """A *metric* of an endpoint, by CloudWatch's name: *seconds* for *nbytes*, or a *count*."""

    kind = "endpoint"
    metric: str
    target_model: str
    seconds: float | None = None
    count: int | None = None
    nbytes: int = 0

    def __str__(self) -> str:
        if self.seconds is None:
            return f"{self.target_model}: {self.metric} {self.count}"
        size = show_nbytes(self.nbytes)
        return f"{self.target_model}: {self.metric} {self.seconds * 1e3:.1f} ms, {size}"


class TargetNamed(Event, frozen=True):
    """The artifact *target_model* is about to be loaded, as the *model* that the platform names."""

    kind = "target"
    says = "{model} is {target_model!r}"
    model: ModelId
    target_model: str


class EndpointWarned(Event, frozen=True):
    """Something is wrong with the artifact of *target_model*; *reason* says what."""

    kind = "warning"
    says = "{target_model}: {reason}"
    target_model: str
    reason: str
