"""The order in which models leave, under policies that have a key."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
from hypothesis import Phase as Stage
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.memory.eviction import DECAY, POLICIES, EvictionPolicy, Usage
from workbench.model import Footprint, ModelId
from workbench.residency import events
from workbench.residency.admission import candidates
from workbench.residency.machine import Machine
from workbench.residency.state import Kind, Phase, Resident

KEYED = [policy for policy in POLICIES.values() if policy.key is not None]


class Rig:
    """Models on one device; each operation is about the model of a *number*."""

    def __init__(self, policy: EvictionPolicy) -> None:
        self.machine = Machine([10**9], policy)
        self.residents = self.machine.residents
        self.device = self.residents.devices[0]
        self.policy = policy

    def find(self, number: int) -> Resident | None:
        return self.residents.find(ModelId(f"m{number}", 1))

    def load(self, number: int, size: int) -> None:
        """Load it in *size* seconds, if it is not loaded; every third may call other models."""
        if self.find(number) is not None:
            return
        resident = self.residents.admit(ModelId(f"m{number}", 1), self.device, size)
        self.residents.load(resident)
        footprint = Footprint(other_nbytes=1 + size // 2)
        self.residents.ready(resident, footprint, float(size % 5), may_call=number % 3 == 0)

    def use(self, number: int, _: int) -> None:
        """Lease it; the lease lasts."""
        self.residents.lease((ModelId(f"m{number}", 1),), 0.0)

    def use_briefly(self, number: int, _: int) -> None:
        leased = self.residents.lease((ModelId(f"m{number}", 1),), 0.0)
        assert leased is None or self.machine.release(*leased, 0.0)

    def give_back(self, number: int, _: int) -> None:
        resident = self.find(number)
        if resident is not None and resident.leases:
            assert self.machine.release(resident, 0.0)

    def grow(self, number: int, size: int) -> None:
        """Its runs keep more memory than before, or less."""
        resident = self.find(number)
        if resident is not None:
            self.residents.grow(resident, max(size - 20, 1 - resident.claimed_nbytes))

    def pin(self, number: int, size: int) -> None:
        resident = self.find(number)
        if resident is not None:
            resident.pinned = size > 20
            self.device.recount(resident)

    def unload(self, number: int, _: int) -> None:
        resident = self.find(number)
        if resident is not None and not resident.leases:
            self.residents.begin_unload(resident, "")
            assert resident.phase is Phase.CLOSING
            self.residents.closed(resident)

    def follow(self, number: int, _: int) -> None:
        """Another policy, which may be that of use alone."""
        self.policy = (*KEYED, POLICIES["lru"])[number % 4]
        self.machine.apply(events.PolicyChanged(self.policy), 0.0)

    def found(self) -> Iterator[ModelId]:
        """The models that may leave, in the order in which they are offered."""
        return (resident.id for resident in candidates(self.device, ()))

    def expected(self) -> list[ModelId]:
        """All idle models, sorted by their keys as they are now."""
        use = self.residents.last_use
        idle = [r for r in self.device.residents if r.kind is Kind.NOW]
        key = self.policy.key
        if key is not None:
            now = {r: r.usage.then * DECAY ** (use - r.usage.last_use) for r in idle}
            idle.sort(key=lambda r: key(now[r], r.load_s, r.claimed_nbytes))
        return [resident.id for resident in idle]


OPERATIONS = [
    Rig.load, Rig.load, Rig.use, Rig.use_briefly, Rig.use_briefly, Rig.give_back, Rig.grow,
    Rig.pin, Rig.unload, Rig.follow,
]  # fmt: skip
STEP = st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 6), st.integers(1, 40))


@pytest.mark.parametrize("policy", KEYED, ids=lambda policy: policy.name)
@settings(derandomize=True, deadline=None, max_examples=60, phases=[Stage.generate])
@given(st.lists(STEP, min_size=80, max_size=80))
def test_the_order_is_that_of_a_sort(
    policy: EvictionPolicy, steps: list[tuple[object, int, int]]
) -> None:
    """Whatever happens between readings, and however far they go, as a sort of all models."""
    rig = Rig(policy)
    for operation, number, size in steps:
        operation(rig, number, size)  # type: ignore[operator]
        found = rig.found()
        if size % 3:
            count = size % 4
            assert list(islice(found, count)) == rig.expected()[:count]
        if size % 7 == 0:
            assert list(rig.found()) == rig.expected()


@pytest.mark.parametrize("policy", KEYED, ids=lambda policy: policy.name)
@pytest.mark.parametrize("count", [10, 1000])
def test_models_that_are_looked_at(
    policy: EvictionPolicy, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many models there are, the next to leave is found by looking at few of them."""
    rig = Rig(policy)
    for number in range(count):
        rig.load(number, 10)
        rig.use_briefly(number, 0)
    next(rig.found())
    rig.use_briefly(1, 0)
    looked: list[Usage] = []
    lasting_key = EvictionPolicy.lasting_key

    def look(policy: EvictionPolicy, usage: Usage, *facts: Any) -> float:
        looked.append(usage)
        return lasting_key(policy, usage, *facts)

    monkeypatch.setattr(EvictionPolicy, "lasting_key", look)
    next(rig.found())
    assert len(looked) <= 4


def test_void_entries_do_not_pile_up() -> None:
    """A model that grows again and again, and is never evicted, takes no more room for that."""
    rig = Rig(POLICIES["largest"])
    rig.load(1, 10)
    for _ in range(1000):
        rig.grow(1, 21)
    assert rig.device.order is not None
    assert len(rig.device.order._heap) < 50


def test_leases_add_no_entries() -> None:
    """A model that may leave and may not, in turns, keeps the entry that it has."""
    rig = Rig(POLICIES["lfu"])
    rig.load(3, 10)  # it may call others: while it runs, it may not leave
    assert rig.device.order is not None
    before = list(rig.device.order._heap)
    rig.use_briefly(3, 0)
    assert rig.device.order._heap == before
