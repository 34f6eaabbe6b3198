"""Spans of time, as people write them."""

from __future__ import annotations

import re

from workbench.errors import SettingError

_FACTORS = {"": 1.0, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_LONGEST_S = 366 * 86400.0
_SPAN = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)\s*(ms|s|min|h|d)?", re.IGNORECASE | re.ASCII)


def parse_seconds(text: object, called: str = "") -> float:
    """The seconds in ``"5min"``, ``"1.5 h"``, ``"300"`` or a number, above 0 up to a year.

    Raises ``SettingError`` for anything else, which names the option that it is *called* by.
    """
    match = _SPAN.fullmatch(str(text).strip())
    seconds = float(match[1]) * _FACTORS[(match[2] or "").lower()] if match else 0.0
    if not 0.0 < seconds <= _LONGEST_S:
        option = f"{called}: " if called else ""
        raise SettingError(
            f"{option}{text!r} is not a span of time above 0 and up to 366 days: "
            "write a number and a unit, such as 30s, 5min or 2h"
        )
    return seconds


def show_duration(seconds: float) -> str:
    """Seconds as people read them: ``"90 s"``, ``"5 min"``, ``"250 ms"``."""
    for unit in ("d", "h", "min", "s"):
        count = seconds / _FACTORS[unit]
        if count >= 1 and count == round(count, 1):
            return f"{count:g} {unit}"
    return f"{seconds:g} s" if seconds >= 1 else f"{seconds * 1e3:g} ms"
