"""Which models hold the memory that somebody waits for, in one line."""

from __future__ import annotations

from workbench.model import ModelState
from workbench.nbytes import show_nbytes
from workbench.residency import Residency

_FEW = 3


def holders(residency: Residency) -> str:
    """The largest models in use, and what they hold; empty if none is."""
    residents = residency.snapshot().residents.values()
    used = [r for r in residents if r.leases or r.state is not ModelState.READY]
    used.sort(key=lambda resident: -resident.nbytes)
    told = [
        f"{each.id}: {show_nbytes(each.nbytes)}, {each.state.value}, leased {each.leases} times"
        for each in used[:_FEW]
    ]
    return "; ".join(told)
