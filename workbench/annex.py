"""The border between the house and its annexes: what an annex may bring, and which there are.

The house imports no annex: it asks here. ``workbench/annexes/__init__.py`` names the annexes, and
each is a package beside it with a function ``annex``, which returns an ``Annex``. To remove one,
delete its folder and its line there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple


class Option(NamedTuple):
    """A setting: its name, its *default*, a *help* text, and what makes a value of a given one.

    A variable that holds a *secret* may not be empty, and messages do not show it.
    """

    name: str
    default: object
    help: str
    parse: Callable[[Any], Any]
    secret: bool = False


class Magic(NamedTuple):
    """A verb of ``%workbench``: what *follows* it, what it *does*, and its arguments for argparse.

    *act* is called with the ``Workbench`` and the given arguments. *needs_server*: only where a
    server runs.
    """

    follows: str
    does: str
    act: Callable[..., object]
    arguments: Mapping[str, dict[str, Any]] = {}
    needs_server: bool = True


def _nothing(*_: object) -> tuple[Any, ...]:
    return ()


def _no_names(*_: object) -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Annex:
    """The parts that the annex *name* brings; its modules are imported only when a part is used.

    Settings:

    - *options* are settings of its own, *groups* names of requests that ``restrict`` may close;
    - *variables* gives defaults that variables of a platform say: name, value, variable;
    - *check* is called with the environment and the values, and raises ``SettingError``;
    - *warns* says what is odd in the settings of a server that starts;
    - *adapt* changes the settings of a server before it starts;
    - *serves* is what ``workbench serve`` is given where it is given no folder, or ``None``.

    Servers:

    - *part* makes what lives as long as the server's core, a ``core.parts.Part``;
    - *routes* are groups of HTTP, *lane* answers the POSTs of some paths at once;
    - *methods* are further ones of V2 over gRPC, *services* further services by address.

    People:

    - *verbs* are attributes of ``Workbench``, *names* of the package: name to module;
    - *commands* are click's, *magics* verbs of ``%workbench``;
    - *panel* is HTML on the dashboard, of a ``Workbench``;
    - *calls* are ways to send a request, by the client's name: see ``views.calls``.

    *provides* are single functions that the house asks for by name: see ``provided``.
    """

    name: str
    options: Callable[[], Iterable[Option]] = _nothing
    groups: tuple[str, ...] = ()
    variables: Callable[[Mapping[str, str]], Iterable[tuple[str, object, str]]] = _nothing
    check: Callable[[Mapping[str, str], Mapping[str, Any]], object] = _nothing
    warns: Callable[[Any], str] | None = None
    adapt: Callable[[Any], Any] | None = None
    serves: Callable[[Mapping[str, Any], Mapping[str, str]], Mapping[str, Any] | None] | None = None
    part: Callable[[Any], Any] | None = None
    routes: Callable[[], Iterable[Any]] = _nothing
    lane: Callable[[Any], Any] | None = None
    methods: Callable[[Any], Mapping[str, Any]] = _no_names
    services: Callable[[Any], Mapping[str, Any]] = _no_names
    verbs: Callable[[], Mapping[str, Any]] = _no_names
    names: Mapping[str, str] = field(default_factory=dict)
    commands: Callable[[], Iterable[Any]] = _nothing
    magics: Mapping[str, Magic] = field(default_factory=dict)
    panel: Callable[[Any], str] | None = None
    calls: Callable[[Any, str, str, Mapping[str, Any], bool], Mapping[str, str]] = _no_names
    provides: Mapping[str, Callable[..., Any]] = field(default_factory=dict)


@cache
def annexes() -> tuple[Annex, ...]:
    """All annexes, in the order of their list."""
    names = import_module("workbench.annexes").ANNEXES
    return tuple(import_module(f"workbench.annexes.{name}").annex() for name in names)


def provided(what: str) -> Callable[..., Any] | None:
    """The function called *what* that an annex provides, if there is one.

    The house asks for ``convert`` (a served object to ONNX), ``decode_images`` (encoded images to
    tensors) and ``regions`` (memory that a core shares with its clients).
    """
    return next((each.provides[what] for each in annexes() if what in each.provides), None)
