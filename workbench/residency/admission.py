"""Which of the promised loads may start: a pure function."""

from __future__ import annotations

from collections.abc import Iterable

from workbench.memory.ledger import MemoryLedger
from workbench.model import ModelState
from workbench.residency.records import Promise


def startable(promises: Iterable[Promise], ledger: MemoryLedger) -> list[Promise]:
    """Those whose room is really free, in their order, leaving earlier ones theirs."""
    chosen: list[Promise] = []
    taken = ledger.held_nbytes
    for promise in promises:
        need = sum(ledger.claimed_by(resident.id) for resident in promise.residents)
        if taken + need <= ledger.budget_nbytes:
            chosen.append(promise)
            taken += need
            continue
        leaving = [v for v in promise.victims if v.state is ModelState.UNLOADING]
        taken += max(0, need - sum(ledger.held_by(victim.id) for victim in leaving))
    return chosen
