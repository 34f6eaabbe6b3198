"""The "Logging Extension": settings by Triton's names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from workbench.codecs import v2_json
from workbench.core import LogSettings, ServerCore
from workbench.errors import InvalidRequest, NotSupported


@dataclass(frozen=True, slots=True)
class _LogSetting:
    """The *field* of ``LogSettings`` behind a name, what *fits* it, and that in words."""

    field: str
    fits: Callable[[object], bool]
    expected: str


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_level(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**32


_LOG = {
    "log_info": _LogSetting("info", _is_flag, "true or false"),
    "log_warning": _LogSetting("warning", _is_flag, "true or false"),
    "log_error": _LogSetting("error", _is_flag, "true or false"),
    "log_verbose_level": _LogSetting(
        "verbose_level", _is_level, "a whole number of 32 bits from 0"
    ),
    "log_format": _LogSetting(
        "format", lambda value: value in ("default", "ISO8601"), '"default" or "ISO8601"'
    ),
}


def log_settings(core: ServerCore) -> dict[str, str | bool | int]:
    """The log settings. There is no log file: the log is kept in memory."""
    settings = core.log_settings
    return {"log_file": "", **{key: getattr(settings, each.field) for key, each in _LOG.items()}}


def change_log_settings(
    core: ServerCore, changes: Mapping[str, object]
) -> dict[str, str | bool | int]:
    """Make all *changes* or none, and give the settings; ``None`` changes nothing.

    To be called by one thread at a time. Raises ``InvalidRequest``, ``NotSupported``.
    """
    core.log_settings = _changed(core.log_settings, changes)
    return log_settings(core)


def _changed(settings: LogSettings, changes: Mapping[str, object]) -> LogSettings:
    fields: dict[str, Any] = {}
    for key, value in changes.items():
        if key == "log_file":
            _check_file(value)
            continue
        setting = _LOG.get(key)
        if setting is None:
            known = ", ".join(("log_file", *_LOG))
            raise InvalidRequest(f"there is no log setting {key!r}; available: {known}")
        if value is None:
            continue
        if not setting.fits(value):
            shown = v2_json.shown(value)
            raise InvalidRequest(f"{key!r} must be {setting.expected}, not {shown}")
        fields[setting.field] = value
    return replace(settings, **fields)


def _check_file(value: object) -> None:
    if value in (None, ""):
        return
    if not isinstance(value, str):
        raise InvalidRequest(f"'log_file' must be a string, not {v2_json.shown(value)}")
    raise NotSupported("the log is kept in memory: 'log_file' cannot be set")
