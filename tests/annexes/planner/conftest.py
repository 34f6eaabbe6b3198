"""What the tests of replays look at beside their outcomes."""

from typing import NamedTuple

import pytest

from workbench.events import ModelEvicted, ModelExpired
from workbench.model import ModelId
from workbench.residency import events
from workbench.residency.effects import Effect, Tell
from workbench.residency.machine import Machine


class Left(NamedTuple):
    """*model* left *at_s*: because it *expired*, or to make room."""

    at_s: float
    model: ModelId
    expired: bool


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> list[Left]:
    """The models that leave in the replays of a test, in order."""
    gone: list[Left] = []
    apply = Machine.apply

    def watched(machine: Machine, event: events.MachineEvent, now_s: float) -> list[Effect]:
        effects = apply(machine, event, now_s)
        gone.extend(
            Left(now_s, each.facts[0], each.kind is ModelExpired)
            for each in effects
            if isinstance(each, Tell) and each.kind in (ModelEvicted, ModelExpired)
        )
        return effects

    monkeypatch.setattr(Machine, "apply", watched)
    return gone
