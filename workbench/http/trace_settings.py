"""Triton's "Trace Extension" over HTTP, of a server that does not trace.

The settings read as those of a Triton that has tracing off. Whatever leaves
them as they are is accepted; what would change them is refused, since it would
have no effect.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from workbench.codecs import v2_json
from workbench.core import ServerCore
from workbench.errors import InvalidRequest, NotSupported, VersionNotFound
from workbench.http.calls import Call
from workbench.http.reply import Reply, json_reply

_LEVELS = ("OFF", "TIMESTAMPS", "TENSORS")
_WHOLE = re.compile(r"-?[0-9]{1,10}")


@dataclass(frozen=True, slots=True)
class _Setting:
    """What a setting *is*, for good; what *fits* it in Triton, and that in words."""

    is_: str | list[str]
    fits: Callable[[Any], bool]
    expected: str


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


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_mode(value: Any) -> bool:
    return value in ("triton", "opentelemetry")


_SETTINGS = {
    "trace_level": _Setting(
        ["OFF"], _are_levels, '["OFF"], or a list of "TIMESTAMPS" and "TENSORS"'
    ),
    "trace_rate": _Setting(
        "1000", _whole(0, 2**32 - 1), 'a whole number from 0, as a string such as "1000"'
    ),
    "trace_count": _Setting(
        "-1", _whole(-1, 2**31 - 1), 'a whole number from -1, as a string such as "100"'
    ),
    "log_frequency": _Setting(
        "0", _whole(0, 2**32 - 1), 'a whole number from 0, as a string such as "50"'
    ),
    "trace_file": _Setting("", _is_text, "a string"),
    "trace_mode": _Setting("triton", _is_mode, '"triton" or "opentelemetry"'),
}


def show(core: ServerCore, call: Call) -> Reply:
    """The settings of the server; strings all of them, as in Triton."""
    return json_reply(v2_json.write({key: setting.is_ for key, setting in _SETTINGS.items()}))


def change(core: ServerCore, call: Call) -> Reply:
    """The settings, if the body changes none: null, as a reset, does not.

    Raises ``InvalidRequest``, and ``NotSupported`` for what makes sense in Triton.
    """
    for key, value in call.message().items():
        _check(key, value)
    return show(core, call)


def show_of_model(core: ServerCore, call: Call) -> Reply:
    """The settings of a model, which are the server's. Raises ``ModelNotFound``."""
    _check_model(core, call)
    return show(core, call)


def change_of_model(core: ServerCore, call: Call) -> Reply:
    """As ``change``, for a model. Raises ``ModelNotFound`` too."""
    _check_model(core, call)
    return change(core, call)


def _check_model(core: ServerCore, call: Call) -> None:
    if call.target.version is not None:
        raise VersionNotFound("trace settings are of a model, not of one of its versions")
    core.resolve(call.target.name)


def _check(key: str, value: Any) -> None:
    setting = _SETTINGS.get(key)
    if setting is None:
        known = ", ".join(_SETTINGS)
        raise InvalidRequest(f"there is no trace setting {key!r}; there are {known}")
    if value is None or value == setting.is_ or (key == "trace_level" and value == []):
        return
    if not setting.fits(value):
        raise InvalidRequest(f"{key!r} is to be {setting.expected}, not {v2_json.shown(value)}")
    stays = v2_json.write(setting.is_).decode()
    raise NotSupported(f"this server does not trace: {key!r} stays {stays}")
