"""A server elsewhere as an object: ``workbench.connect``, and the commands that ask a server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from workbench.annex import Annex

if TYPE_CHECKING:
    from workbench.settings import Settings


def annex() -> Annex:
    """The parts of this annex, for the house."""
    return Annex(
        name="connect",
        names={"connect": "workbench.annexes.connect.connection"},
        commands=_commands,
        calls=_calls,
    )


def _commands() -> Iterable[Any]:
    from workbench.annexes.connect.commands import COMMANDS

    return COMMANDS


def _calls(
    _: Settings, url: str, model: str, request: Mapping[str, Any], token: bool
) -> Mapping[str, str]:
    from workbench.annexes.connect.calls import connect_call

    return {"Python": connect_call(url, model, request, token=token)}
