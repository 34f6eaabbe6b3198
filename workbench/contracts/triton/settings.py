"""The "Logging Extension" and the "Trace Extension": settings by Triton's names.

Traces are of all models or of one, and only timestamps are traced. The file for them is a setting
of the server, which clients cannot change: nobody who reaches the server is to choose where it
writes. There is no file of the log, which is kept in memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from workbench.codecs import v2_json
from workbench.contracts.triton.words import writable
from workbench.core import ServerCore
from workbench.errors import InvalidRequest, ModelNotFound, NotSupported, VersionNotFound

_LEVELS = ("OFF", "TIMESTAMPS", "TENSORS")
_WHOLE = re.compile(r"-?[0-9]{1,10}")

LogSettings = dict[str, str | bool | int]
TraceSettings = dict[str, str | list[str]]


@dataclass(frozen=True, slots=True)
class _Setting:
    """What *fits* a setting in Triton, that in words, and the *option* of the core behind it."""

    fits: Callable[[Any], bool]
    expected: str
    option: str = ""


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_level(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**32


def _are_levels(value: Any) -> bool:
    if not isinstance(value, list) or not all(level in _LEVELS for level in value):
        return False
    return "OFF" not in value or len(value) == 1


def _whole(low: int, high: int) -> Callable[[Any], bool]:
    def fits(value: Any) -> bool:
        if not isinstance(value, str) or not _WHOLE.fullmatch(value):
            return False
        return low <= int(value) <= high

    return fits


_LOG = {
    "log_file": _Setting(_is_text, "a string"),
    "log_info": _Setting(_is_flag, "true or false", "info"),
    "log_warning": _Setting(_is_flag, "true or false", "warning"),
    "log_error": _Setting(_is_flag, "true or false", "error"),
    "log_verbose_level": _Setting(_is_level, "a whole number of 32 bits from 0", "verbose_level"),
    "log_format": _Setting(
        lambda value: value in ("default", "ISO8601"), '"default" or "ISO8601"', "format"
    ),
}
_TRACE = {
    "trace_level": _Setting(
        _are_levels, '["OFF"], or a list of "TIMESTAMPS" and "TENSORS"', "timestamps"
    ),
    "trace_rate": _Setting(
        _whole(0, 2**32 - 1), 'a whole number from 0, as a string such as "1000"', "rate"
    ),
    "trace_count": _Setting(
        _whole(-1, 2**31 - 1), 'a whole number from -1, as a string such as "100"', "most"
    ),
    "log_frequency": _Setting(
        _whole(0, 2**32 - 1), 'a whole number from 0, as a string such as "50"', "log_frequency"
    ),
    "trace_file": _Setting(_is_text, "a string"),
    "trace_mode": _Setting(
        lambda value: value in ("triton", "opentelemetry"), '"triton" or "opentelemetry"'
    ),
}
_REFUSALS = {
    "log_file": "the log is kept in memory: 'log_file' cannot be set",
    "trace_file": "trace file location can not be updated through network protocol: it is the "
    "setting trace_file of the server",
    "trace_mode": "this server writes traces to a file: 'trace_mode' stays \"triton\"",
}


def _checked(what: str, known: Mapping[str, _Setting], key: str, value: object) -> _Setting:
    """The setting *key*, one of the *known* ones of *what*, if *value* fits it or is ``None``."""
    setting = known.get(key)
    if setting is None:
        raise InvalidRequest(f"there is no {what} setting {key!r}; available: {', '.join(known)}")
    if value is not None and not setting.fits(value):
        raise InvalidRequest(f"{key!r} must be {setting.expected}, not {v2_json.shown(value)}")
    return setting


# ── the log ──


def log_settings(core: ServerCore) -> LogSettings:
    """The settings of the log."""
    settings = core.log_settings
    return {
        key: getattr(settings, each.option) if each.option else "" for key, each in _LOG.items()
    }


def change_log_settings(core: ServerCore, changes: Mapping[str, object]) -> LogSettings:
    """Make all *changes* or none, and give the settings; ``None`` changes nothing.

    To be called by one thread at a time. Raises ``InvalidRequest``, ``NotSupported``.
    """
    fields: dict[str, Any] = {}
    for key, value in changes.items():
        setting = _checked("log", _LOG, key, value)
        if setting.option and value is not None:
            fields[setting.option] = value
        elif value:
            raise NotSupported(_REFUSALS[key])
    core.log_settings = replace(core.log_settings, **fields)
    return log_settings(core)


# ── traces ──


def trace_settings(core: ServerCore, model: str = "") -> TraceSettings:
    """The trace settings of all models, or of *model*; strings all of them, as in Triton.

    "trace_count" is how many traces are left. Raises as ``check_traced``.
    """
    if model:
        check_traced(core, model)
    options = core.tracing.options(model)
    return {
        "trace_level": ["TIMESTAMPS" if options.timestamps else "OFF"],
        "trace_rate": str(options.rate),
        "trace_count": str(options.most),
        "log_frequency": str(options.log_frequency),
        "trace_file": writable(str(core.tracing.path or "")),
        "trace_mode": "triton",
    }


def change_trace_settings(
    core: ServerCore, changes: Mapping[str, object], model: str = ""
) -> TraceSettings:
    """Make all *changes*, of all models or of *model*, or none; the settings after that.

    ``None`` takes a setting back: then that of all models counts, or the usual one. Raises
    ``InvalidRequest``, ``NotSupported`` for what is traced by a Triton only, as ``check_traced``.
    """
    before = trace_settings(core, model)
    options: dict[str, object] = {}
    for key, value in changes.items():
        setting = _checked("trace", _TRACE, key, value)
        if setting.option and value != []:
            options[setting.option] = _option(key, value)
        elif value not in (None, [], before[key]):
            raise NotSupported(_REFUSALS[key])
    if options:
        core.tracing.change(options, model)
    return trace_settings(core, model)


def _option(key: str, value: Any) -> object:
    """The value of the option behind *key*, ``None`` to take it back."""
    if value is None:
        return None
    if key != "trace_level":
        return int(value)
    if "TENSORS" in value:
        raise NotSupported("this server traces timestamps only: 'trace_level' cannot have TENSORS")
    return "TIMESTAMPS" in value


def check_traced(core: ServerCore, name: str, version: int | None = None) -> None:
    """Raise ``ModelNotFound``, or ``VersionNotFound``, if there are no trace settings of it."""
    if version is not None:
        raise VersionNotFound("trace settings are of a model, not of one of its versions")
    try:
        core.resolve(name)
    except ModelNotFound as error:
        raise ModelNotFound(f"Request for unknown model : {name}: {error}") from None
