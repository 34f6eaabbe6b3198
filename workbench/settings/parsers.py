"""What a given setting becomes: texts and objects of Python to values, or ``SettingError``."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from workbench.annex import annexes
from workbench.errors import ModelNotFound, SettingError
from workbench.model import check_name
from workbench.nbytes import parse_nbytes
from workbench.seconds import parse_seconds
from workbench.tokens import UNIX

Parse = Callable[[Any], Any]
Folders = str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None
"""One folder, several, or none."""

_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,30}")
_DEVICE = re.compile(r"auto|cpu|cuda(:(0|[1-9][0-9]{0,3}))?|(GPU|MIG)-[0-9A-Za-z/-]{1,80}")


def groups() -> tuple[str, ...]:
    """The groups of requests that the setting ``restrict`` may close."""
    return ("model-repository", *(g for annex in annexes() for g in annex.groups), "functions")


_HOST = re.compile(r"[a-z0-9_.-]{1,253}|\*")
_ENDPOINT = re.compile(r"on|port:[0-9]{1,5}|unix:.+")
_ORIGIN = re.compile(
    r"[a-z][a-z0-9+.-]*://(?:[a-z0-9_.-]{1,253}|\[[0-9a-f:.]{2,45}\])(?::[0-9]{1,5})?"
)


def one_of(*choices: str) -> Parse:
    """One of *choices*."""

    def parse(value: object) -> str:
        if value not in choices:
            raise SettingError(f"{value!r} is not one of {', '.join(choices)}")
        return str(value)

    parse.choices = choices  # type: ignore[attr-defined]
    return parse


def whole_number(low: int, high: int) -> Parse:
    """A whole number from *low* to *high*, also as text."""

    def parse(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise SettingError(f"{value!r} is not a whole number")
        if not _WHOLE_NUMBER.fullmatch(str(value).strip()):
            raise SettingError(f"{value!r} is not a whole number")
        if not low <= int(value) <= high:
            raise SettingError(f"{value} is not between {low} and {high}")
        return int(value)

    return parse


port = whole_number(0, 65535)
"""A port; 0 takes a free one."""


def switch(value: object) -> bool:
    """True or False; in texts ``on`` or ``off``."""
    if isinstance(value, bool):
        return value
    if value not in ("on", "off"):
        raise SettingError(f"{value!r} is neither on nor off")
    return value == "on"


switch.choices = ("on", "off")  # type: ignore[attr-defined]


def span_or_off(value: object) -> float | None:
    """Seconds of a span of time; ``None`` for ``off``."""
    try:
        return None if value == "off" else span(value)
    except SettingError as error:
        raise SettingError(f"{error}, or off") from None


def address(value: object) -> str:
    """The address to listen on."""
    if not isinstance(value, str) or not value:
        raise SettingError(f"{value!r} is not a name")
    if value == "*":
        raise SettingError("'*' is not an address: 0.0.0.0 means all addresses of this machine")
    return value


def port_or_socket(value: object) -> int | str:
    """A port, or ``unix:`` and the path of a socket file."""
    if isinstance(value, str) and value.startswith(UNIX) and value != UNIX:
        return value
    found: int = port(value)
    return found


def endpoint(value: object) -> str:
    """``port:NUMBER``, ``unix:PATH`` or ``on``; empty for ``off``."""
    if value in ("", "off"):
        return ""
    if not isinstance(value, str) or not _ENDPOINT.fullmatch(value):
        raise SettingError(f"{value!r} is neither port:NUMBER, unix:PATH, on nor off")
    return value


def _listed(value: object, what: str) -> tuple[str, ...]:
    """The texts of a list, or of one text with commas."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, Iterable) or not all(isinstance(part, str) for part in parts):
        raise SettingError(f"{value!r} is not a list of {what}")
    return tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))


def hosts(value: object) -> tuple[str, ...]:
    """Host names and IP addresses, in lower case."""
    return tuple(map(_host_name, _listed(value, "host names")))


def _host_name(text: str) -> str:
    host = text.strip("[]").lower().removesuffix(".")
    try:
        return str(ip_address(host))
    except ValueError:
        if _HOST.fullmatch(host):
            return host
    raise SettingError(f"{text!r} is not a host name without a port, such as lab.example.org")


def origins(value: object) -> tuple[str, ...]:
    """Origins of web pages, spelled as browsers send them."""
    return tuple(map(_origin, _listed(value, "origins")))


def _origin(text: str) -> str:
    origin = text.lower().removesuffix("/")
    if not _ORIGIN.fullmatch(origin):
        raise SettingError(f"{text!r} is not an origin, such as https://lab.example.org:8888")
    default = {"http": ":80", "https": ":443"}.get(origin.partition(":")[0])
    return origin.removesuffix(default) if default else origin  # as browsers send it


def restrictions(value: object) -> tuple[str, ...]:
    """The names of groups that are closed; ``NAME=off`` is such a name too."""
    if isinstance(value, Mapping):
        value = [f"{name}={state}" for name, state in value.items()]
    if value == "":  # of a variable that was to hold something
        raise SettingError("it is empty: leave it out, or say such as model-repository")
    found = tuple(name.removesuffix("=off") for name in _listed(value, "groups"))
    for name in found:
        group, given, _ = name.partition("=")
        if given and group in groups():
            raise SettingError(f"a group is open or closed, and has no token of its own: {group}")
        if group not in groups():
            raise SettingError(f"{group!r} is no group; there are {', '.join(groups())}")
    return found


def device(value: object) -> str:
    """The name of a device, or the beginning of the UUID of a GPU."""
    if not isinstance(value, str) or not _DEVICE.fullmatch(value):
        raise SettingError(
            f"{value!r} is not one of auto, cpu, cuda, cuda:1, "
            "or the beginning of a GPU's UUID (GPU-..., MIG-...)"
        )
    return value


def amount_or_off(value: object) -> int:
    """A number of bytes; 0 for ``off``."""
    if value in ("off", "0") or (type(value) is int and value == 0):
        return 0
    try:
        return amount(value)
    except SettingError:
        raise SettingError(f"{value!r} is neither an amount, such as 5GiB, nor off") from None


def span(value: object) -> float:
    """Seconds, from a number or a text such as ``5min``."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise SettingError(f"{value!r} is not a span of time, such as 5min")
    return parse_seconds(value)


def amount(value: object) -> int:
    """A number of bytes, from a number or a text such as ``64MiB``."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise SettingError(f"{value!r} is not an amount of memory, such as 64MiB")
    return parse_nbytes(value)


_LEAST = 2**20  # bytes: a budget below it, without a unit, was meant in another unit
_SHARE = re.compile(r"([0-9]{1,3}(?:\.[0-9]+)?) ?%")


class Share(float):
    """A part of a device's memory, above 0.0 and at most 1.0."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"{self:.0%}"


def budget(value: object) -> int | Share:
    """A number of bytes, or a share of a device's memory, such as ``90%``.

    A small number without a unit is refused: nobody means bytes by it.
    """
    if isinstance(value, Share):
        return value
    if isinstance(value, str) and (match := _SHARE.fullmatch(value.strip())):
        share = Share(match[1]) / 100
        if not 0 < share <= 1:
            raise SettingError(f"{value!r} is not a share of memory above 0% and up to 100%")
        return Share(share)
    nbytes = amount(value)
    text = str(value).strip()
    if nbytes < _LEAST and _WHOLE_NUMBER.fullmatch(text):
        raise SettingError(f"{text} has no unit: write {text}MiB, {text}GiB, or {text}B for bytes")
    return nbytes


def names(value: object) -> tuple[str, ...]:
    """Names, each once."""
    return _listed(value, "names")


def model_name(value: object) -> str:
    """The name of a model."""
    with suppress(ModelNotFound):
        if isinstance(value, str) and "\\" not in value and not value.startswith((".", "__")):
            return check_name(value)
    raise SettingError(f"{value!r} cannot be the name of a model")


def path(value: object) -> Path:
    """A folder, as an absolute path."""
    if not isinstance(value, str | os.PathLike) or not str(value):
        raise SettingError(f"{value!r} is not a folder")
    return _folder(value).absolute()


def folders(repository: Folders) -> tuple[Path, ...]:
    """The folders of a repository."""
    if repository is None:
        return ()
    if isinstance(repository, str | os.PathLike):
        return (_folder(repository),)
    if not isinstance(repository, Iterable):
        raise SettingError(f"repository: {repository!r} is not a folder")
    return tuple(map(_folder, repository))


def _folder(path: str | os.PathLike[str]) -> Path:
    try:
        return Path(path).expanduser()
    except TypeError:
        raise SettingError(f"repository: {path!r} is not a folder") from None
    except RuntimeError as error:  # there is no such user
        raise SettingError(f"repository: {str(path)!r}: {error}") from None
