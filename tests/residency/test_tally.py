"""What the residency counts: loads, unloads, evictions, refusals, and their seconds."""

import pytest
from residency_rig import Rig

from doubles import FakeLoader, FakeSession
from workbench.errors import LoadFailed, MemoryExhausted
from workbench.model import ModelId
from workbench.residency import AbsenceKind, LoadStatistics, abandon
from workbench.stop import CancellationToken

A, B, HUGE = (ModelId(name, 1) for name in ("a", "b", "huge"))


class Slow(FakeLoader):
    """Loading takes 2 seconds of the rig's clock, closing takes 3."""

    rig: Rig

    def load(self, model: ModelId, stop: CancellationToken) -> FakeSession:
        self.rig.now_s += 2.0
        session = super().load(model, stop)
        freed = session._on_close

        def close() -> None:
            self.rig.now_s += 3.0
            freed()

        session._on_close = close
        return session


@pytest.fixture
def rig() -> Rig:
    loader = Slow({"a": 60, "b": 60, "huge": 101})
    loader.rig = Rig(loader)
    return loader.rig


def counted(rig: Rig, model: ModelId) -> LoadStatistics | None:
    return rig.residency.snapshot().load_statistics.get(model)


def pending(rig: Rig) -> dict[ModelId, int]:
    return dict(rig.residency.snapshot().pending)


def test_loads_and_their_seconds(rig: Rig) -> None:
    """Each load counts, with its seconds; a lease on what is loaded does not."""
    rig.load(A)
    rig.load(A)
    statistics = rig.residency.snapshot().load_statistics
    assert statistics == {A: LoadStatistics(loads=1, load_s=2.0, number=1)}


def test_evictions_and_their_seconds(rig: Rig) -> None:
    """An eviction counts as one and as an unload, from the decision until it is gone.

    A model keeps its number when it is loaded again, and an evicted one says when that was.
    """
    rig.load(A)
    rig.load(B)
    rig.load(A)
    assert counted(rig, A) == LoadStatistics(
        loads=2, load_s=4.0, unloads=1, unload_s=3.0, evictions=1, eviction_s=3.0, number=1
    )
    second = counted(rig, B)
    assert second is not None
    assert second.number == 2
    absence = rig.residency.absence(B)
    assert absence is not None
    assert absence.kind is AbsenceKind.EVICTED
    evicted = [e for e in rig.log.since() if e.event.kind == "evict"]
    assert absence.at_s == evicted[-1].at_s


def test_unloads_are_no_evictions(rig: Rig) -> None:
    """An unload that was asked for counts as such; the requests it waited for take their time."""
    rig.load(A)
    lease = rig.lease(A)
    gone = rig.residency.unload(A)
    rig.now_s += 10.0
    rig.give_back(lease)
    gone.result(0)
    assert counted(rig, A) == LoadStatistics(
        loads=1, load_s=2.0, unloads=1, unload_s=13.0, number=1
    )


def test_failed_loads(rig: Rig) -> None:
    """A load that fails counts apart, also where the model's need cannot be told."""
    rig.loader.failures["a"] = LoadFailed("scripted")
    del rig.loader.sizes["b"]
    for model, number in ((A, 1), (B, 0)):  # the load of B never began
        with pytest.raises(LoadFailed):
            rig.load(model)
        assert counted(rig, model) == LoadStatistics(failed_loads=1, number=number)


def test_refusals(rig: Rig) -> None:
    """A request for which there is no room counts as a refusal, and as nothing else."""
    with pytest.raises(MemoryExhausted):
        rig.load(HUGE)
    assert counted(rig, HUGE) == LoadStatistics(refusals=1)


def test_who_waits_is_pending(rig: Rig) -> None:
    """A request is pending from when it is made until it is granted, refused or given up."""
    waiting = [rig.residency.acquire(A) for _ in range(3)]
    huge = rig.residency.acquire(HUGE)
    assert pending(rig) == {A: 3, HUGE: 1}
    abandon(waiting.pop())
    assert pending(rig) == {A: 2, HUGE: 1}
    rig.jobs.run_all()
    assert pending(rig) == {}
    assert isinstance(huge.exception(0), MemoryExhausted)
    for lease in waiting:
        lease.result(0).release()


def test_who_waits_for_room_is_pending(rig: Rig) -> None:
    """A request that waits for a model in use to leave is pending."""
    rig.load(A)
    lease = rig.lease(A)
    room = rig.acquire(B)
    assert pending(rig) == {B: 1}
    rig.give_back(lease)
    assert pending(rig) == {}
    room.result(0).release()


def test_how_long_a_model_is_in_use(rig: Rig) -> None:
    """Since the first of the leases that it has; one that waits for another model is none yet."""

    def busy_s() -> float | None:
        return rig.residency.snapshot().residents[A].busy_s

    rig.residency.resize(200)
    rig.load(A)
    both = rig.residency.acquire(A, B)
    assert busy_s() is None
    rig.now_s += 1.0
    first = rig.lease(A)
    rig.now_s += 5.0
    second = rig.lease(A)
    assert busy_s() == 5.0
    first.release()
    assert busy_s() == 5.0
    second.release()
    rig.jobs.run_all()
    assert busy_s() == 0.0
    rig.give_back(both.result(0))
    assert busy_s() is None
