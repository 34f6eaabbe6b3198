"""The messages of a workbench about attributes that it does not have."""

from __future__ import annotations

from collections.abc import Iterable

from workbench.removed import no_more, no_more_verb
from workbench.settings import declared
from workbench.spelling import meant

# Names that others have for an attribute of the workbench
_ELSEWHERE = {
    "host": "url",
    "memory": "budget",
    "metrics": "models",
    "port": "url",
    "predict": "infer",
    "show": "dashboard",
    "status": "models",
}


def unsettable(name: str, known: Iterable[str]) -> str:
    """Why the attribute *name* is not set, of *known* ones."""
    hint = meant(name, known)
    if any(option.name == name for option in declared()):
        hint = f": wb.restart({name}=...) changes it"
    if gone := no_more(f"setting {name!r}", name):
        hint = f": {gone}"
    return f"a workbench has no attribute {name!r} to set{hint}"


def missing(name: str, known: Iterable[str], models: Iterable[str]) -> str:
    """Why there is no attribute *name*, of *known* ones and of the names of *models*."""
    if name in models:
        cure = f": write wb[{name!r}]"
    elif gone := no_more_verb(f"wb.{name}", name):
        cure = f": {gone}"
    elif name in _ELSEWHERE:
        cure = f"; did you mean {_ELSEWHERE[name]!r}?"
    else:
        cure = meant(name, known)
    return f"a workbench has no attribute {name!r}{cure}"
