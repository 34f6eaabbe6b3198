"""How fast a model is: ``wb.bench`` and ``workbench bench``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from workbench.annex import Annex, Magic


def annex() -> Annex:
    """The parts of this annex, for the house."""
    return Annex(name="bench", verbs=_verbs, commands=_commands, magics={"bench": _BENCH})


def _verbs() -> Mapping[str, Any]:
    from workbench.annexes.bench.verbs import bench

    return {"bench": bench}


def _commands() -> Iterable[Any]:
    from workbench.annexes.bench.command import bench

    return (bench,)


_BENCH = Magic(
    "MODEL [OPTIONS]",
    "how fast it is: --clients 1,8 --batches 1,8 --seconds 1.5",
    lambda wb, **given: wb.bench(**given),
    {"model": {}, "--clients": {}, "--batches": {}, "--seconds": {}},
)
