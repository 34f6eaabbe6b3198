"""Triton's extension for system shared memory: tensors that clients do not send."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from workbench.annex import Annex, Option

if TYPE_CHECKING:
    from workbench.core import ServerCore


def annex() -> Annex:
    """The parts of this annex, for the house."""
    return Annex(
        name="shared_memory",
        options=_options,
        groups=("shared-memory",),
        part=_part,
        routes=_routes,
        methods=_methods,
        provides={"regions": _regions},
    )


def _options() -> Iterable[Option]:
    from workbench.settings import parsers

    return (
        Option(
            "shared_memory",
            False,
            "whether clients on this machine may pass tensors in shared memory (default: off)",
            parsers.switch,
        ),
    )


def _part(_: ServerCore) -> Any:
    from workbench.annexes.shared_memory.regions import SharedRegions

    return SharedRegions()


def _regions(core: ServerCore) -> Any:
    return core.parts["shared_memory"] if core.settings["shared_memory"] else None


def _routes() -> Iterable[Any]:
    from workbench.annexes.shared_memory.http import SHARED_MEMORY

    return (SHARED_MEMORY,)


def _methods(core: ServerCore) -> Mapping[str, Any]:
    from workbench.annexes.shared_memory.grpc import handlers

    return handlers(core)
