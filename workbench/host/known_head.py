"""Recognises request heads that came before: equal to the byte, except for their lengths.

A client sends the same head with every request. Only two lengths differ: that of the body and, from
tritonclient, that of the JSON in it. So the head is matched by the text around the lengths instead
of being parsed, or found whole if the same lengths came before. What this saves:
``benchmarks/without.py known_head``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

_LENGTHS = re.compile(
    rb"\r\n(inference-header-)?content-length:[ \t]*([0-9]{1,18})(?=[ \t]*\r\n)", re.IGNORECASE
)
_END = b"\r\n\r\n"
_KEPT_HEADS_NBYTES = 2**15  # of whole heads, for each connection

Found = tuple[Any, int, int]
"""A head, where it ends, and the length of the body that follows."""


class HeadPieces(NamedTuple):
    """The text *around* the lengths of a head, and which lengths are *of_json*."""

    around: tuple[bytes, ...]
    of_json: tuple[bool, ...]


def head_pieces(text: bytes) -> HeadPieces | None:
    """The pieces of the head at the start of *text*; ``None`` if it has unusual lines."""
    head = text[: text.find(_END) + len(_END)]
    lengths = list(_LENGTHS.finditer(head))
    of_json = tuple(bool(length[1]) for length in lengths)
    if head.count(b"\n") != head.count(b"\r\n") or sorted(of_json) not in ([False], [False, True]):
        return None
    begins = [0, *(length.end(2) for length in lengths)]
    ends = [*(length.start(2) for length in lengths), len(head)]
    around = tuple(head[begin:end] for begin, end in zip(begins, ends, strict=True))
    return HeadPieces(around, of_json)


class KnownHead:
    """Finds the *head* that has these *pieces*; *with_json_of* gives it another length of JSON."""

    def __init__(
        self, pieces: HeadPieces, head: Any, with_json_of: Callable[[Any, int], Any]
    ) -> None:
        pattern = rb"([0-9]{1,18})".join(map(re.escape, pieces.around))
        self._match = re.compile(pattern).match
        self._body = 1 + pieces.of_json.index(False)
        self._json = 1 + pieces.of_json.index(True) if True in pieces.of_json else 0
        self._head = head
        self._with_json_of = with_json_of
        self._end = 0  # of the last one
        self._whole: dict[bytes, Found] = {}

    def find(self, data: bytes) -> Found | None:
        """The head at the start of *data*; ``None`` if it is another head, or not yet whole."""
        found = self._whole.get(data[: self._end])
        return self._read(data) if found is None else found

    def _read(self, data: bytes) -> Found | None:
        match = self._match(data)
        if match is None:
            return None
        if self._json:
            self._head = self._with_json_of(self._head, int(match[self._json]))
        self._end = end = match.end()
        if len(self._whole) * end >= _KEPT_HEADS_NBYTES:
            self._whole.clear()
        found = self._whole[match[0]] = self._head, end, int(match[self._body])
        return found
