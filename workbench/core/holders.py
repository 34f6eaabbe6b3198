"""One line that names the models that hold memory for which a request waited in vain."""

from __future__ import annotations

from workbench.model import ModelState
from workbench.nbytes import show_nbytes
from workbench.residency import Residency, ResidentSnapshot
from workbench.seconds import show_duration

_FEW = 3


def holders(residency: Residency) -> str:
    """The largest models that cannot be evicted now, and why; empty if there are none."""
    residents = residency.snapshot().residents.values()
    held = [resident for resident in residents if resident.nbytes]
    stay = [r for r in held if r.pinned or r.leases or r.state is not ModelState.READY]
    stay.sort(key=lambda resident: -resident.nbytes)
    more = ["..."] if len(stay) > _FEW else []
    return ", ".join([*map(_holding, stay[:_FEW]), *more])


def _holding(resident: ResidentSnapshot) -> str:
    held = f"{resident.id} holds {show_nbytes(resident.nbytes)}"
    if resident.busy_s is not None:
        return f"{held} in a run that has lasted {show_duration(round(resident.busy_s, 1))}"
    if resident.state is not ModelState.READY:
        return f"{held} and is {resident.state.words}"
    return f"{held} and waits for another model" if resident.leases else f"{held} and is pinned"
