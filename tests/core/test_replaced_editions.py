"""Leases on editions that are replaced while they are asked for."""

import pytest
from residency_rig import Rig

from doubles import FakeLoader
from workbench.core.leases import Leases
from workbench.events import ModelLoaded
from workbench.model import ModelId

OLD, NEW, B = ModelId("a", 1), ModelId("a", 1, 1), ModelId("b", 1)


@pytest.mark.parametrize("old_is_ready", [False, True])
def test_an_edition_that_is_replaced_while_it_is_asked_for(
    old_is_ready: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not loaded, or leaves if it is; the new edition is leased with the other models."""
    rig = Rig(FakeLoader({"a": 20, "b": 20}))
    found = iter([(OLD, B), (NEW, B), (NEW, B), (NEW, B)])
    if old_is_ready:
        rig.load(OLD, B)
        monkeypatch.setattr(rig.residency, "lease_now", lambda *_, **__: None)  # it comes just now
    asked = Leases(rig.residency, None).acquire(lambda: next(found))  # type: ignore[arg-type]
    rig.jobs.run_all()
    assert rig.loaded() == {NEW, B}
    asked.result(0).release()
    assert rig.leases() == 0
    loads = [event.model for event in rig.told(ModelLoaded) if isinstance(event, ModelLoaded)]
    assert (OLD in loads) == old_is_ready
