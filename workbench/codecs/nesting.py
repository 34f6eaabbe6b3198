"""How deep arrays and objects of a JSON text stand in each other, told before it is parsed."""

from __future__ import annotations

import re

import numpy as np

from workbench.errors import InvalidRequest
from workbench.tensor import Array

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)


def check_nesting(text: bytes, limit: int) -> None:
    """Raise ``InvalidRequest`` if *text* nests deeper than *limit*.

    A text with no more brackets than that, as most are, costs a few searches.
    """
    if _opens_more_than(text, limit) and _depth(text) > limit:
        raise InvalidRequest(f"the JSON is nested more than {limit} deep, the setting max_nesting")


def _opens_more_than(text: bytes, limit: int) -> bool:
    left = limit
    for bracket in (b"[", b"{"):
        found = text.find(bracket)
        while found >= 0:
            left -= 1
            if left < 0:
                return True
            found = text.find(bracket, found + 1)
    return False


def _depth(text: bytes) -> int:
    if b"\\" in text:  # then not every quote ends a string
        text = _STRING.sub(b'""', text)
    characters = np.frombuffer(text, np.uint8)
    quotes = np.flatnonzero(characters == ord('"'))
    folded = characters & 0xDF  # which makes { of [ and } of ]
    opens = _outside(quotes, np.flatnonzero(folded == ord("[")))
    closes = _outside(quotes, np.flatnonzero(folded == ord("]")))
    depths = np.arange(1, opens.size + 1) - np.searchsorted(closes, opens)
    return int(depths.max(initial=0))


def _outside(quotes: Array, places: Array) -> Array:
    """Those *places* that are in no string: an even number of quotes is before them."""
    outside: Array = places[np.searchsorted(quotes, places) % 2 == 0]
    return outside
