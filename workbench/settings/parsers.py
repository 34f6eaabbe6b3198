"""Parsers of settings: texts and objects of Python become values, or a ``SettingError``."""

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
_HOST = re.compile(r"[a-z0-9_.-]{1,253}|\*")
_ORIGIN = re.compile(
    r"[a-z][a-z0-9+.-]*://(?:[a-z0-9_.-]{1,253}|\[[0-9a-f:.]{2,45}\])(?::[0-9]{1,5})?"
)


def groups() -> tuple[str, ...]:
    """The groups of requests that the setting ``restrict`` may close."""
    return ("model-repository", *(g for annex in annexes() for g in annex.groups), "functions")


# ── kinds of settings ──


def one_of(*choices: str) -> Parse:
    """One of *choices*."""

    def parse(value: object) -> str:
        if value not in choices:
            raise SettingError(f"{value!r} is not one of {', '.join(choices)}")
        return str(value)

    parse.choices = choices  # type: ignore[attr-defined]
    return parse


def switch(value: object) -> bool:
    """True or False; in texts ``on`` or ``off``."""
    if isinstance(value, bool):
        return value
    if value not in ("on", "off"):
        raise SettingError(f"{value!r} is neither on nor off")
    return value == "on"


switch.choices = ("on", "off")  # type: ignore[attr-defined]


def text(pattern: str, told: str) -> Parse:
    """A text of this *pattern*; *told* of any other."""
    allowed = re.compile(pattern)

    def parse(value: object) -> str:
        if isinstance(value, str) and allowed.fullmatch(value):
            return value
        raise SettingError(f"{value!r} is {told}")

    return parse


def whole_number(low: int, high: int) -> Parse:
    """A whole number from *low* to *high*, also as text."""

    def parse(value: object) -> int:
        text = str(value).strip()
        if not _WHOLE_NUMBER.fullmatch(text):
            raise SettingError(f"{value!r} is not a whole number")
        if not low <= int(text) <= high:
            raise SettingError(f"{value} is not between {low} and {high}")
        return int(text)

    return parse


def or_off(parse: Parse, off: object, *also: object) -> Parse:
    """A parser that also takes ``off``, and the words *also*, for the value *off*."""

    def parse_or_off(value: object) -> object:
        if value in ("off", *also) and not isinstance(value, bool):
            return off
        try:
            return parse(value)
        except SettingError as error:
            raise SettingError(f"{error}, or off") from None

    return parse_or_off


def listed(what: str, each: Callable[[str], str] = str) -> Parse:
    """A list of texts, or one text with commas; called *what*. *each* makes a value of one."""

    def parse(value: object) -> tuple[str, ...]:
        parts = value.split(",") if isinstance(value, str) else value
        if not isinstance(parts, Iterable) or not all(isinstance(part, str) for part in parts):
            raise SettingError(f"{value!r} is not a list of {what}")
        return tuple(each(part) for part in dict.fromkeys(map(str.strip, parts)) if part)

    return parse


# ── the settings ──

span = parse_seconds
amount = parse_nbytes
port = whole_number(0, 65535)  # 0 takes a free one
span_or_off = or_off(span, None)
amount_or_off = or_off(amount, 0, "0", 0)
names = listed("names")
endpoint = or_off(text("|on|port:[0-9]{1,5}|unix:.+", "not port:NUMBER, unix:PATH, on"), "")
device = text(
    r"auto|cpu|cuda(:(0|[1-9][0-9]{0,3}))?|(GPU|MIG)-[0-9A-Za-z/-]{1,80}",
    "not one of auto, cpu, cuda, cuda:1, or the beginning of a GPU's UUID (GPU-..., MIG-...)",
)


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


def _host(text: str) -> str:
    host = text.strip("[]").lower().removesuffix(".")
    with suppress(ValueError):
        return str(ip_address(host))
    if _HOST.fullmatch(host):
        return host
    raise SettingError(f"{text!r} is not a host name without a port, such as lab.example.org")


def _origin(text: str) -> str:
    origin = text.lower().removesuffix("/")
    if not _ORIGIN.fullmatch(origin):
        raise SettingError(f"{text!r} is not an origin, such as https://lab.example.org:8888")
    default = {"http": ":80", "https": ":443"}.get(origin.partition(":")[0])
    return origin.removesuffix(default) if default else origin  # as browsers send it


def _group(text: str) -> str:
    group, given, _ = text.removesuffix("=off").partition("=")
    if group not in groups():
        raise SettingError(f"{group!r} is no group; there are {', '.join(groups())}")
    if given:
        raise SettingError(f"a group is open or closed, and has no token of its own: {group}")
    return group


hosts = listed("host names", _host)
origins = listed("origins", _origin)
_groups = listed("groups", _group)


def restrictions(value: object) -> tuple[str, ...]:
    """The names of groups that are closed; ``NAME=off`` is such a name too."""
    if value == "":  # of a variable that was to hold something
        raise SettingError("it is empty: leave it out, or say such as model-repository")
    if isinstance(value, Mapping):
        value = [f"{name}={state}" for name, state in value.items()]
    found: tuple[str, ...] = _groups(value)
    return found


_LEAST = 2**20  # bytes: a budget below it, without a unit, was meant in another unit
_SHARE = re.compile(r"([0-9]{1,3}(?:\.[0-9]+)?) ?%")


class BudgetShare(float):
    """A part of a device's memory, above 0.0 and at most 1.0."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"{self:.0%}"


def budget(value: object) -> int | BudgetShare:
    """A number of bytes, or a share of a device's memory, such as ``90%``.

    A small number without a unit is refused: nobody means bytes by it.
    """
    if isinstance(value, BudgetShare):
        return value
    text = str(value).strip()
    if match := _SHARE.fullmatch(text):
        share = float(match[1]) / 100
        if not 0 < share <= 1:
            raise SettingError(f"{value!r} is not a share of memory above 0% and up to 100%")
        return BudgetShare(share)
    nbytes = amount(value)
    if nbytes < _LEAST and _WHOLE_NUMBER.fullmatch(text):
        raise SettingError(f"{text} has no unit: write {text}MiB, {text}GiB, or {text}B for bytes")
    return nbytes


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
