"""Amounts of memory, as people write them."""

from __future__ import annotations

import re
from decimal import Decimal

from workbench.errors import SettingError

_FACTORS = {
    "": 1,
    "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12,
    "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40,
}  # fmt: skip
_DECIMAL = ("kB", "MB", "GB", "TB")
_BINARY = ("KiB", "MiB", "GiB", "TiB")
_INT64_MAX = 2**63 - 1
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?", re.IGNORECASE)


def parse_nbytes(text: object) -> int:
    """The bytes in ``"64MiB"``, ``"1.5 GB"``, ``"500k"`` or a whole number, from 1 to 2**63 - 1.

    Raises ``SettingError`` for anything else.
    """
    match = None if isinstance(text, float) else _AMOUNT.fullmatch(str(text).strip())
    amount = Decimal(match[1]) * _FACTORS[(match[2] or "").lower()] if match else 0
    if not 1 <= amount <= _INT64_MAX:
        raise SettingError(
            f"{text!r} is not an amount of memory: write a number and a unit, such as 64MiB or 2GB"
        )
    return int(amount)


def budget_of(nbytes: int) -> str:
    """The next round amount of at least *nbytes*, as a setting takes it, such as ``"30MiB"``."""
    for unit, size in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if nbytes >= size:
            tenths = 1 if nbytes >= 10 * size else 10
            return f"{-(-nbytes * tenths // size) / tenths:g}{unit}"
    return f"{nbytes}B"


def show_nbytes(nbytes: int) -> str:
    """Bytes as people read them: ``"1.5 GiB"``, ``"92.0 MiB"``, ``"512 B"``.

    Whole megabytes are what somebody wrote in decimal units: ``"2.0 GB"``.
    """
    is_decimal = nbytes % 10**6 == 0 and nbytes % 2**20 != 0
    step, units = (1000, _DECIMAL) if is_decimal else (1024, _BINARY)
    amount = float(nbytes)
    if abs(nbytes) < step:
        return f"{nbytes} B"
    for unit in units[:-1]:
        amount /= step
        if abs(amount) < step:
            return f"{amount:.1f} {unit}"
    return f"{amount / step:.1f} {units[-1]}"
