"""Settings: the one place where an option is declared.

A keyword argument, a variable ``WORKBENCH_<NAME>``, a command-line flag and an
argument of the magic are all made from the fields below. A given value wins
over the environment, which wins over the default.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

from workbench.errors import SettingError
from workbench.nbytes import parse_nbytes
from workbench.seconds import parse_seconds

Parse = Callable[[Any], Any]

_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,30}")
_DEVICE = re.compile(r"auto|cpu|cuda(:(0|[1-9][0-9]{0,3}))?|(GPU|MIG)-[0-9A-Za-z/-]{1,80}")


def _option(default: object, help_text: str, parse: Parse) -> Any:
    return field(default=default, metadata={"help": help_text, "parse": parse})


def _one_of(*choices: str) -> Parse:
    def parse(value: object) -> str:
        if value not in choices:
            raise SettingError(f"{value!r} is not one of {', '.join(choices)}")
        return str(value)

    parse.choices = choices  # type: ignore[attr-defined]
    return parse


def _whole_number(low: int, high: int) -> Parse:
    def parse(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise SettingError(f"{value!r} is not a whole number")
        if not _WHOLE_NUMBER.fullmatch(str(value).strip()):
            raise SettingError(f"{value!r} is not a whole number")
        if not low <= int(value) <= high:
            raise SettingError(f"{value} is not between {low} and {high}")
        return int(value)

    return parse


def _switch(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if value not in ("on", "off"):
        raise SettingError(f"{value!r} is neither on nor off")
    return value == "on"


_switch.choices = ("on", "off")  # type: ignore[attr-defined]


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise SettingError(f"{value!r} is not a name")
    return value


def _device(value: object) -> str:
    if not isinstance(value, str) or not _DEVICE.fullmatch(value):
        raise SettingError(
            f"{value!r} is not one of auto, cpu, cuda, cuda:1, "
            "or the beginning of a GPU's UUID (GPU-..., MIG-...)"
        )
    return value


def _amount_or_off(value: object) -> int:
    if value in ("off", "0") or (type(value) is int and value == 0):
        return 0
    try:
        return _amount(value)
    except SettingError:
        raise SettingError(
            f"{value!r} is neither an amount of disk, such as 20GiB, nor off"
        ) from None


def _span(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise SettingError(f"{value!r} is not a span of time, such as 5min")
    return parse_seconds(value)


def _amount(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise SettingError(f"{value!r} is not an amount of memory, such as 64MiB")
    return parse_nbytes(value)


Folders = str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None
"""One folder, several, or none."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of one server; make one with ``Settings.of``."""

    repository: tuple[Path, ...] = ()
    """The folders that hold the models; a server may have none."""

    budget: int | None = _option(
        None,
        "memory that models may take, such as 64MiB "
        "(default: 80 % of each GPU's, or half of the host's)",
        _amount,
    )
    evict: str = _option(
        "lru",
        "who leaves when room is needed: the least recently used, the least often used, "
        "the largest, the one that saves the least loading for its memory (cost), or nobody",
        _one_of("lru", "lfu", "largest", "cost", "never"),
    )
    keep_alive: float | None = _option(
        None,
        "how long a model that nobody uses stays, such as 5min (default: until its room is needed)",
        _span,
    )
    load: str = _option(
        "on-demand",
        "when models load: at their first request, only when asked for, or all at the start; watch "
        "does that too, and takes in what is new, changed or gone in the repository",
        _one_of("on-demand", "explicit", "all", "watch"),
    )
    watch_every: float = _option(
        2.0, "how often a repository that is watched is looked at, such as 10s", _span
    )
    reload: str = _option(
        "availability",
        "when a loaded model whose files changed is loaded again: the old one answers until then, "
        "or leaves first where there is no room for both (memory)",
        _one_of("availability", "memory"),
    )
    follow_links: bool = _option(
        False, "whether links in the repository may lead out of it", _switch
    )
    device: str = _option(
        "auto",
        "where models run: auto (GPUs if there are any), cpu, cuda, cuda:1 (the second GPU), "
        "or the beginning of a GPU's UUID (GPU-..., MIG-...)",
        _device,
    )
    host: str = _option("127.0.0.1", "the address to listen on", _text)
    port: int = _option(0, "the port to listen on; 0 takes a free one", _whole_number(0, 65535))
    threads: int = _option(1, "threads that one model's run may use", _whole_number(1, 1024))
    cache: int = _option(
        20 * 2**30,
        "disk for models that are prepared to load again fast, such as 20GiB, or off",
        _amount_or_off,
    )
    wait: float = _option(
        60.0,
        "how long a request may wait for a load, a thread or its turn, such as 30s; then it is "
        "told to try again",
        _span,
    )
    max_waiting: int = _option(
        1024, "how many requests may wait so at once; more are refused", _whole_number(1, 10**6)
    )
    max_request: int = _option(
        64 * 2**20, "the largest request body, also once decompressed, such as 64MiB", _amount
    )
    max_image: int = _option(
        256 * 2**20, "the memory that a request's images may take once decoded", _amount
    )
    max_nesting: int = _option(
        100, "how deep arrays and objects of a request's JSON may nest", _whole_number(1, 500)
    )
    max_elements: int = _option(
        2**59, "the most elements that one tensor of a request may have", _whole_number(1, 2**59)
    )
    strict_triton: bool = _option(
        False, "whether requests that cannot be read get Triton's own status, 500, not 400", _switch
    )
    shared_memory: bool = _option(
        False, "whether clients on this machine may pass tensors in shared memory", _switch
    )

    @classmethod
    def of(
        cls,
        repository: Folders = None,
        *,
        environ: Mapping[str, str] = os.environ,
        **given: object,
    ) -> Settings:
        """Settings from keyword arguments and, for those left out or ``None``, *environ*.

        Raises ``SettingError`` for an unknown name or a value that does not parse.
        """
        options = {option.name: option for option in declared()}
        for name in given:
            if name not in options:
                raise SettingError(f"there is no setting {name!r}; there are {', '.join(options)}")
        values: dict[str, Any] = {}
        for name, option in options.items():
            variable = variable_name(name)
            if given.get(name) is not None:
                values[name] = _parsed(option, given[name], name)
            elif environ.get(variable):
                values[name] = _parsed(option, environ[variable], variable)
        return cls(repository=_folders(repository), **values)

    def changed(self, repository: Folders = None, **given: object) -> Self:
        """The same, but for what is given and not ``None``. Raises ``SettingError``."""
        given = {name: value for name, value in given.items() if value is not None}
        wanted = type(self).of(repository, environ={}, **given)
        names = [*given, *(["repository"] if repository is not None else [])]
        return replace(self, **{name: getattr(wanted, name) for name in names})


def declared() -> tuple[Field[Any], ...]:
    """The options, in order; each field's metadata holds *help* and *parse*."""
    return tuple(option for option in fields(Settings) if option.metadata)


def variable_name(setting: str) -> str:
    """The environment variable of a *setting*."""
    return f"WORKBENCH_{setting.upper()}"


def _folders(repository: Folders) -> tuple[Path, ...]:
    if repository is None:
        return ()
    if isinstance(repository, str | os.PathLike):
        return (_folder(repository),)
    return tuple(map(_folder, repository))


def _folder(path: str | os.PathLike[str]) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError as error:  # there is no such user
        raise SettingError(f"repository: {str(path)!r}: {error}") from None


def _parsed(option: Field[Any], value: object, source: str) -> object:
    try:
        return option.metadata["parse"](value)
    except SettingError as error:
        raise SettingError(f"{source}: {error}") from None
