"""Settings: the one place where an option is declared.

A keyword argument, a variable ``WORKBENCH_<NAME>``, a command-line flag and an
argument of the magic are all made from the fields below, and from the options of
annexes. A given value wins over the environment, which wins over the default.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from workbench.annex import Option, annexes
from workbench.errors import SettingError
from workbench.removed import no_more
from workbench.settings import parsers
from workbench.settings.parsers import BudgetShare, Folders, Parse
from workbench.spelling import meant
from workbench.tokens import parse_token

_PREFIX = "WORKBENCH_"  # of environment variables
_NEAR = 0.75  # how like a setting a name is that was meant for it


GROUPS = parsers.groups()


def _option(default: object, help_text: str, parse: Parse, *, secret: bool = False) -> Any:
    metadata = {"help": help_text, "parse": parse, "secret": secret}
    return field(default=default, repr=not secret, metadata=metadata)


def _defaults_of_annexes() -> dict[str, Any]:
    return {each.name: each.default for annex in annexes() for each in annex.options()}


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of one server; make one with ``Settings.of``."""

    repository: tuple[Path, ...] = ()
    """The folders that hold the models; a server may have none."""

    budget: int | BudgetShare | None = _option(  # noqa: RUF009  # as all others are made
        None,
        "memory that models may take of each device, such as 64MiB or 90% "
        "(default: 80 % of a GPU's memory, or half of the host's)",
        parsers.budget,
    )
    evict: str = _option(
        "lru",
        "which model is unloaded when room is needed: the least recently used (lru), the least "
        "often used (lfu), the largest, the one that takes the least time to load again for "
        "its memory (cost), or none (never) (default: lru)",
        parsers.one_of("lru", "lfu", "largest", "cost", "never"),
    )
    keep_alive: float | None = _option(
        None,
        "how long a model stays loaded after its last request, such as 5min, or off (default: "
        "until its memory is needed)",
        parsers.span_or_off,
    )
    load: str = _option(
        "on-demand",
        "when models are loaded: at their first request (on-demand), only when asked for "
        "(explicit), or at the start (all); watch is like all, and also follows changes in the "
        "repository (default: on-demand)",
        parsers.one_of("on-demand", "explicit", "all", "watch"),
    )
    follow_links: bool = _option(
        False, "whether links in the repository may lead out of it (default: off)", parsers.switch
    )
    name: str | None = _option(
        None,
        "the name of the model, where the repository is the folder of one model: model.onnx, "
        "1/model.onnx, config.pbtxt or onnx/model.onnx (default: it is a folder of models)",
        parsers.model_name,
    )
    device: str = _option(
        "auto",
        "where models run: auto (GPUs if there are any), cpu, cuda, cuda:1 (the second GPU), "
        "or the beginning of a GPU's UUID (GPU-..., MIG-...) (default: auto)",
        parsers.device,
    )
    host: str = _option(
        "127.0.0.1",
        "the address to listen on, or unix:PATH for a socket in the file system "
        "(default: 127.0.0.1)",
        parsers.address,
    )
    port: int = _option(
        0,
        "the port to listen on; 0 takes a free one (default: 0; 8000 for workbench serve and "
        "workbench endpoint)",
        parsers.port,
    )
    grpc_port: int | str | None = _option(
        None,
        "the port for gRPC, on the same address; 0 takes a free one, and unix:PATH is a socket in "
        "the file system, which only this user can open (default: there is no gRPC)",
        parsers.port_or_socket,
    )
    grpc_ping: float | None = _option(
        None,
        "the least time between keepalive pings of a gRPC client, such as 10s; a connection with "
        "more of them is closed (default: any on this machine, 5min for other machines)",
        parsers.span,
    )
    token: str | None = _option(
        None,
        "the token that each request must carry: a text of 16 characters or more, off for "
        "none, or auto, which makes one if other people use this machine or other machines can "
        "reach the server (default: auto; if other machines can reach the server, it must be "
        "set)",
        parse_token,
        secret=True,
    )
    allow_hosts: tuple[str, ...] = _option(
        (),
        "other host names that requests may be sent to, such as lab.example.org; * allows any "
        "(default: none)",
        parsers.hosts,
    )
    allow_origins: tuple[str, ...] = _option(
        (),
        "web sites whose pages may send requests, such as https://lab.example.org (default: none)",
        parsers.origins,
    )
    restrict: tuple[str, ...] = _option(
        (),
        f"groups of requests that are closed, such as {GROUPS[0]},{GROUPS[-1]}; the groups are "
        f"{', '.join(GROUPS)} (default: none)",
        parsers.restrictions,
        secret=True,  # so that a variable which is empty is a mistake
    )
    threads: int = _option(
        1, "threads that one model's run may use (default: 1)", parsers.whole_number(1, 1024)
    )
    cache: int = _option(
        5 * 2**30,
        "disk space for prepared models, which load faster, such as 5GiB (never more than a "
        "tenth of the free disk), or off (default: 5GiB)",
        parsers.amount_or_off,
    )
    wait: float = _option(
        60.0,
        "how long a request may wait for a load, a thread or its turn, such as 30s; after that "
        "the client is told to try again (default: 60s)",
        parsers.span,
    )
    exit_timeout: float = _option(
        0.4,
        "how long running requests may take to finish when the server stops, such as 30s "
        "(default: 0.4 s; 25 s for workbench serve and workbench endpoint)",
        parsers.span,
    )
    max_waiting: int = _option(
        1024,
        "how many requests may wait at the same time; more are refused (default: 1024)",
        parsers.whole_number(1, 10**6),
    )
    max_request: int = _option(
        64 * 2**20,
        "the largest request body, before and after decompression, such as 16MiB (default: 64MiB)",
        parsers.amount,
    )

    more: Mapping[str, Any] = field(default_factory=_defaults_of_annexes, hash=False)
    """The values of the annexes' options."""

    placed: bool = False
    """Whether somebody else, such as ModelMesh, says which models are loaded."""

    def __getitem__(self, name: str) -> Any:
        """The option *name*, of the house or of an annex."""
        return self.more[name] if name in self.more else getattr(self, name)

    if not TYPE_CHECKING:  # else every attribute would exist

        def __getattr__(self, name: str) -> Any:
            if name in ("more", "repository") or name not in self.more:  # it is being made
                raise AttributeError(f"there is no setting {name!r}")
            return self.more[name]

    @classmethod
    def of(
        cls,
        repository: Folders = None,
        *,
        environ: Mapping[str, str] = os.environ,
        **given: object,
    ) -> Settings:
        """Settings from keyword arguments and, for those left out or ``None``, *environ*.

        Variables of a platform change defaults, such as the port. A secret that is empty is an
        error: where one was meant to be, there is to be one.

        Raises ``SettingError`` for an unknown name or a value that does not parse.
        """
        options = {option.name: option for option in declared()}
        for name in given:
            if name not in options:
                if gone := no_more(f"setting {name!r}", name):
                    raise SettingError(gone)
                cure = meant(name, options, _NEAR) or f"; available: {', '.join(options)}"
                raise SettingError(f"there is no setting {name!r}{cure}")
        values: dict[str, Any] = {}
        platform = {
            name: _parsed(options[name], value, variable)
            for annex in annexes()
            for name, value, variable in annex.variables(environ)
        }
        for name, option in options.items():
            variable = variable_name(name)
            if given.get(name) is not None:
                values[name] = _parsed(option, given[name], name)
            elif environ.get(variable) or (option.secret and variable in environ):
                values[name] = _parsed(option, environ[variable], variable)
            else:
                values[name] = platform.get(name, option.default)
        _check_spelling(environ)
        for annex in annexes():
            annex.check(environ, values)
        more = {name: values.pop(name) for name in options if name not in _HOUSE}
        return cls(repository=parsers.folders(repository), more=more, **values)

    def changed(self, repository: Folders = None, **given: object) -> Self:
        """The same, but for what is given and not ``None``. Raises ``SettingError``."""
        given = {name: value for name, value in given.items() if value is not None}
        wanted = type(self).of(repository, environ={}, **given)
        more = {**self.more, **{name: wanted.more[name] for name in given if name in self.more}}
        names = [each for each in given if each not in self.more]
        names += ["repository"] if repository is not None else []
        return replace(self, more=more, **{name: getattr(wanted, name) for name in names})


@cache
def declared() -> tuple[Option, ...]:
    """The options, those of annexes last."""
    return (*_HOUSE.values(), *(option for annex in annexes() for option in annex.options()))


_HOUSE = {
    each.name: Option(each.name, each.default, **each.metadata)
    for each in fields(Settings)
    if each.metadata
}


def variable_name(setting: str) -> str:
    """The environment variable of a *setting*."""
    return f"{_PREFIX}{setting.upper()}"


def _check_spelling(environ: Mapping[str, str]) -> None:
    """Refuse a variable that was one of ours, or nearly is; all others may be anybody's."""
    known = {variable_name(option.name) for option in declared()}
    for name in environ:
        if not name.startswith(_PREFIX) or name in known:
            continue
        gone = no_more(f"variable {name}", name.removeprefix(_PREFIX).lower())
        if gone and environ[name]:
            raise SettingError(gone)
        ours = [each.removeprefix(_PREFIX) for each in known]
        near = get_close_matches(name.removeprefix(_PREFIX).upper(), ours, 1, _NEAR)
        if near:
            raise SettingError(f"{name} is no setting; did you mean {_PREFIX}{near[0]}?")


def _parsed(option: Option, value: object, source: str) -> object:
    try:
        return option.parse(value)
    except SettingError as error:
        raise SettingError(f"{source}: {error}") from None
