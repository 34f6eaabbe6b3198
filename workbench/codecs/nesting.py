"""The depth of nested arrays and objects in a JSON text, checked before it is parsed."""

from __future__ import annotations

import numpy as np

from workbench.errors import InvalidRequest
from workbench.tensor import Array

MAX_NESTING = 100
_BACKSLASH = ord("\\")
_BLOCK_NBYTES = 2**20  # bytes that are checked together, which takes a few times as much memory


def check_nesting(text: bytes, limit: int = MAX_NESTING) -> None:
    """Raise ``InvalidRequest`` if *text* nests deeper than *limit*.

    A text with no more brackets than *limit*, as most have, costs a few searches.
    """
    if _opens_more_than(text, limit) and _nests_deeper(text, limit):
        raise InvalidRequest(f"the JSON nests more than {limit} deep")


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


def _nests_deeper(text: bytes, limit: int) -> bool:
    depth = quotes_before = slashes_before = 0
    for start in range(0, len(text), _BLOCK_NBYTES):
        nbytes = min(_BLOCK_NBYTES, len(text) - start)
        characters = np.frombuffer(text, np.uint8, nbytes, start)
        quotes = np.flatnonzero(characters == ord('"'))
        if slashes_before or (characters == _BACKSLASH).any():  # then some quotes are escaped
            quotes, slashes_before = _unescaped(characters, quotes, slashes_before)
        folded = characters & 0xDF  # so that [ becomes { and ] becomes }
        places = np.flatnonzero((folded == ord("[")) | (folded == ord("]")))
        # outside of strings: after an even number of quotes
        places = places[(np.searchsorted(quotes, places) + quotes_before) % 2 == 0]
        depths = depth + np.cumsum(np.where(folded[places] == ord("["), 1, -1))
        if depths.max(initial=0) > limit:
            return True
        depth = int(depths[-1]) if depths.size else depth
        quotes_before += quotes.size
    return False


def _unescaped(characters: Array, quotes: Array, slashes_before: int) -> tuple[Array, int]:
    """The *quotes* after an even number of backslashes, and how many of these end *characters*.

    *slashes_before* is how many stand right before the first character.
    """
    others = np.append(-1 - slashes_before, np.flatnonzero(characters != _BACKSLASH))
    nearest = others[np.searchsorted(others, quotes) - 1]
    return quotes[(quotes - nearest) % 2 == 1], int(characters.size - 1 - others[-1])
