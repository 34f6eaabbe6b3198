"""Triton's "Logging Extension" over HTTP: what the server keeps of its log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from workbench.codecs import v2_json
from workbench.core import LogSettings, ServerCore
from workbench.errors import InvalidRequest, NotSupported
from workbench.http.calls import Call
from workbench.http.reply import Reply, json_reply


@dataclass(frozen=True, slots=True)
class _Setting:
    """The *field* of ``LogSettings`` behind a key, what *fits* it, and that in words."""

    field: str
    fits: Callable[[object], bool]
    expected: str


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_level(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**32


def _is_format(value: object) -> bool:
    return value in ("default", "ISO8601")


_SETTINGS = {
    "log_info": _Setting("info", _is_flag, "true or false"),
    "log_warning": _Setting("warning", _is_flag, "true or false"),
    "log_error": _Setting("error", _is_flag, "true or false"),
    "log_verbose_level": _Setting("verbose_level", _is_level, "a whole number of 32 bits from 0"),
    "log_format": _Setting("format", _is_format, '"default" or "ISO8601"'),
}


def show(core: ServerCore, call: Call) -> Reply:
    """The settings, by Triton's names. There is no log file: the log is kept in memory."""
    settings = core.log_settings
    told = {key: getattr(settings, setting.field) for key, setting in _SETTINGS.items()}
    return json_reply(v2_json.write({"log_file": "", **told}))


def change(core: ServerCore, call: Call) -> Reply:
    """Change those that the body has and that are not null, all or none; then as ``show``."""
    core.log_settings = _changed(core.log_settings, call.message())
    return show(core, call)


def _changed(settings: LogSettings, message: dict[str, Any]) -> LogSettings:
    changes: dict[str, Any] = {}
    for key, value in message.items():
        if key == "log_file":
            _check_file(value)
            continue
        setting = _SETTINGS.get(key)
        if setting is None:
            known = ", ".join(("log_file", *_SETTINGS))
            raise InvalidRequest(f"there is no log setting {key!r}; there are {known}")
        if value is None:
            continue
        if not setting.fits(value):
            told = v2_json.shown(value)
            raise InvalidRequest(f"{key!r} is to be {setting.expected}, not {told}")
        changes[setting.field] = value
    return replace(settings, **changes)


def _check_file(value: object) -> None:
    if value in (None, ""):
        return
    if not isinstance(value, str):
        raise InvalidRequest(f"'log_file' is to be a string, not {v2_json.shown(value)}")
    raise NotSupported("the log is kept in memory: 'log_file' cannot be set")
