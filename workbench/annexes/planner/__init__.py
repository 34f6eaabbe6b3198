"""How much memory the recorded requests need: ``wb.trace`` and ``wb.plan``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.annex import Annex, Magic


def annex() -> Annex:
    """The parts of this annex, for the house."""
    return Annex(name="planner", verbs=_verbs, magics={"plan": _PLAN})


def _verbs() -> Mapping[str, Any]:
    from workbench.annexes.planner.verbs import plan, trace

    return {"trace": trace, "plan": plan}


_PLAN = Magic(
    "[FILE] [OPTIONS]",
    "how much memory the last requests need, or those of a FILE (a saved trace, or an "
    "access log as CSV): --warm 99%, --evict cost,lfu",
    lambda wb, **given: wb.plan(**given),
    {"trace": {"nargs": "?"}, "--warm": {}, "--evict": {}},
)
