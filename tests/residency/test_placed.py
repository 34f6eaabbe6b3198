"""Models that another program places: it makes room for them as they are once loaded."""

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.memory.eviction import POLICIES
from workbench.model import Footprint, ModelId
from workbench.residency import events
from workbench.residency.effects import Close, Effect, Load, Refuse
from workbench.residency.machine import Machine

CAPACITY, BUFFER = 100, 30
A, B, C = (ModelId(name, 1) for name in "abc")


class Rig:
    """A machine, what its models take, and what was refused."""

    def __init__(self) -> None:
        self.machine = Machine([CAPACITY + BUFFER], POLICIES["never"], placed=True)
        self.needs: dict[ModelId, tuple[int, int]] = {}  # once loaded, and more while loading
        self.loading: list[ModelId] = []
        self.loaded: list[ModelId] = []
        self.closing: list[ModelId] = []
        self.refused: list[Refuse] = []
        self.number = 0

    def apply(self, event: events.MachineEvent) -> list[Effect]:
        effects = self.machine.apply(event, 0.0)
        self.loading += [effect.model for effect in effects if isinstance(effect, Load)]
        self.closing += [effect.model for effect in effects if isinstance(effect, Close)]
        self.refused += [effect for effect in effects if isinstance(effect, Refuse)]
        return effects

    def ask(self, model: ModelId, kept: int, peak: int) -> None:
        self.number += 1
        self.needs[model] = kept, peak
        self.apply(events.Requested(self.number, (model,), purpose=events.LOAD))
        self.apply(events.Estimated(self.number, {model: kept + peak}, (), {model: peak}))

    def came(self, model: ModelId) -> None:
        self.loading.remove(model)
        self.loaded.append(model)
        self.apply(events.Loaded(model, Footprint(other_nbytes=self.needs[model][0]), False, 1.0))
        self.apply(events.Released((model,)))

    def unload(self, model: ModelId) -> None:
        self.loaded.remove(model)
        self.apply(events.Unload(model, "as asked"))

    def closed(self, model: ModelId) -> None:
        self.closing.remove(model)
        del self.needs[model]
        self.apply(events.Closed(model))

    @property
    def taken(self) -> int:
        peaks = sum(sum(self.needs[model]) for model in self.loading)
        return peaks + sum(self.needs[model][0] for model in (*self.loaded, *self.closing))


def test_a_peak_above_the_buffer_goes_alone() -> None:
    """It begins with the room that there is once nothing else loads, and the next one waits."""
    rig = Rig()
    rig.ask(A, 50, 30)
    rig.ask(B, 30, 80)
    assert rig.loading == [A]
    rig.came(A)
    assert rig.loading == [B]
    rig.ask(C, 20, 0)
    assert rig.loading == [B]
    rig.came(B)
    assert (rig.loading, rig.refused) == ([C], [])


def test_what_does_not_fit_once_loaded() -> None:
    """It is refused, at once if no empty device could hold it."""
    rig = Rig()
    rig.ask(A, 100, 0)
    rig.came(A)
    for model, kept in ((B, 31), (C, 131)):
        rig.ask(model, kept, 10)
        assert len(rig.refused) == 1
        rig.refused.clear()


@settings(derandomize=True, deadline=None)
@given(st.data())
def test_no_load_is_refused(data: st.DataObject) -> None:
    """While loads fit once loaded all begin; whose peaks the buffer holds take no more than is."""
    rig = Rig()
    for number in range(30):
        doing: list[Callable[[], None]] = [lambda: None]
        free = CAPACITY - sum(kept for kept, _ in rig.needs.values())
        kept, peak = data.draw(st.tuples(st.integers(0, 60), st.integers(0, BUFFER)))
        if kept <= free:
            model = ModelId(f"m{number}", 1)
            doing.append(lambda model=model, kept=kept, peak=peak: rig.ask(model, kept, peak))
        doing += [lambda model=model: rig.came(model) for model in rig.loading]
        doing += [lambda model=model: rig.unload(model) for model in rig.loaded]
        doing += [lambda model=model: rig.closed(model) for model in rig.closing]
        data.draw(st.sampled_from(doing))()
        assert rig.taken <= CAPACITY + BUFFER
    while rig.loading or rig.closing:
        for model in tuple(rig.loading):
            rig.came(model)
        for model in tuple(rig.closing):
            rig.closed(model)
    assert not rig.refused
    assert set(rig.loaded) == set(rig.needs)
