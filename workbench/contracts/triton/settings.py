"""The "Logging Extension" and the "Trace Extension": settings by Triton's names.

The server does not trace. Its trace settings read as those of a Triton that has tracing off; a
change that would have no effect is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from workbench.codecs import v2_json
from workbench.core import LogSettings, ServerCore
from workbench.errors import InvalidRequest, NotSupported, VersionNotFound

_TRACE_LEVELS = ("OFF", "TIMESTAMPS", "TENSORS")
_WHOLE = re.compile(r"-?[0-9]{1,10}")


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


def _is_format(value: object) -> bool:
    return value in ("default", "ISO8601")


_LOG = {
    "log_info": _LogSetting("info", _is_flag, "true or false"),
    "log_warning": _LogSetting("warning", _is_flag, "true or false"),
    "log_error": _LogSetting("error", _is_flag, "true or false"),
    "log_verbose_level": _LogSetting(
        "verbose_level", _is_level, "a whole number of 32 bits from 0"
    ),
    "log_format": _LogSetting("format", _is_format, '"default" or "ISO8601"'),
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


@dataclass(frozen=True, slots=True)
class _TraceSetting:
    """The constant *value* of a setting, what *fits* it in Triton, and that in words."""

    value: str | list[str]
    fits: Callable[[Any], bool]
    expected: str


def _are_levels(value: Any) -> bool:
    if not isinstance(value, list) or not all(level in _TRACE_LEVELS for level in value):
        return False
    return "OFF" not in value or len(value) == 1


def _whole(low: int, high: int) -> Callable[[Any], bool]:
    def fits(value: Any) -> bool:
        if not isinstance(value, str) or not _WHOLE.fullmatch(value):
            return False
        return low <= int(value) <= high

    return fits


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_mode(value: Any) -> bool:
    return value in ("triton", "opentelemetry")


_TRACE = {
    "trace_level": _TraceSetting(
        ["OFF"], _are_levels, '["OFF"], or a list of "TIMESTAMPS" and "TENSORS"'
    ),
    "trace_rate": _TraceSetting(
        "1000", _whole(0, 2**32 - 1), 'a whole number from 0, as a string such as "1000"'
    ),
    "trace_count": _TraceSetting(
        "-1", _whole(-1, 2**31 - 1), 'a whole number from -1, as a string such as "100"'
    ),
    "log_frequency": _TraceSetting(
        "0", _whole(0, 2**32 - 1), 'a whole number from 0, as a string such as "50"'
    ),
    "trace_file": _TraceSetting("", _is_text, "a string"),
    "trace_mode": _TraceSetting("triton", _is_mode, '"triton" or "opentelemetry"'),
}


def trace_settings() -> dict[str, str | list[str]]:
    """The trace settings of the server and of every model; strings all of them, as in Triton."""
    return {key: setting.value for key, setting in _TRACE.items()}


def change_trace_settings(changes: Mapping[str, object]) -> dict[str, str | list[str]]:
    """The trace settings, if *changes* leave them as they are; ``None``, a reset, does.

    Raises ``InvalidRequest``, and ``NotSupported`` for a change that Triton would make.
    """
    for key, value in changes.items():
        _check_trace(key, value)
    return trace_settings()


def _check_trace(key: str, value: Any) -> None:
    setting = _TRACE.get(key)
    if setting is None:
        known = ", ".join(_TRACE)
        raise InvalidRequest(f"there is no trace setting {key!r}; available: {known}")
    if value is None or value == setting.value or (key == "trace_level" and value == []):
        return
    if not setting.fits(value):
        raise InvalidRequest(f"{key!r} must be {setting.expected}, not {v2_json.shown(value)}")
    stays = v2_json.write(setting.value).decode()
    raise NotSupported(f"this server does not trace: {key!r} stays {stays}")


def check_traced(core: ServerCore, name: str, version: int | None = None) -> None:
    """Raise ``ModelNotFound``, or ``VersionNotFound``, if there are no trace settings of it."""
    if version is not None:
        raise VersionNotFound("trace settings are of a model, not of one of its versions")
    core.resolve(name)
