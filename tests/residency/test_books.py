"""What the books of a load cost: counted in calls of functions, which no busy machine changes."""

import sys
from types import FrameType

import pytest

from doubles import FakeLoader, Jobs, threaded
from workbench.events import EventLog
from workbench.memory.eviction import POLICIES
from workbench.model import ModelId
from workbench.residency import OnDevice, Residency, Telemetry


class Rig:
    """A residency with *count* models of 10 bytes, and room for one more or for none."""

    def __init__(self, count: int, policy: str, *, full: bool) -> None:
        self.jobs = Jobs()
        loader = FakeLoader({f"m{number}": 10 for number in range(count + 1)})
        nbytes = 10 * count if full else 10 * (count + 1)
        device = OnDevice(nbytes, threaded(loader, self.jobs.submit))
        self.residency = Residency([device], POLICIES[policy], Telemetry(EventLog()))
        self.calls = 0
        for number in range(count):
            self.load(number)

    def load(self, number: int) -> None:
        """Load a model, with its lease and release."""
        asked = self.residency.acquire(ModelId(f"m{number}", 1))
        self.jobs.run_all()
        asked.result(0).release()
        self.jobs.run_all()

    def calls_of_load(self, number: int) -> int:
        """How many functions of the residency are called by that load."""

        def count(frame: FrameType, event: str, _: object) -> None:
            of_ours = frame.f_globals.get("__name__", "").startswith("workbench.residency.")
            self.calls += event == "call" and of_ours

        before = sys.getprofile()
        sys.setprofile(count)
        try:
            self.load(number)
        finally:
            sys.setprofile(before)
        return self.calls


@pytest.mark.parametrize("count", [20, 500])
@pytest.mark.parametrize("policy", ["lru", "lfu", "largest", "cost"])
@pytest.mark.parametrize(("full", "most"), [(False, 140), (True, 220)], ids=["room", "eviction"])
def test_calls_of_a_load(policy: str, count: int, full: bool, most: int) -> None:
    """Whether it finds room or evicts: few, and no more with many models than with few."""
    assert Rig(count, policy, full=full).calls_of_load(count) <= most
