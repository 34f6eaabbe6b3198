"""JSON text -> values: by simdjson, or by Python's own parser where simdjson is not installed.

simdjson gives views of the text, whose arrays of numbers become numpy arrays without a Python
object for each element. It has no wheels for Python 3.14 and later; conda-forge has it for 3.14.
Python's parser gives the same values; it takes five to nine times as long for an image's numbers,
and no other thread runs meanwhile.
"""

from __future__ import annotations

import json
import threading
from codecs import BOM_UTF8
from collections.abc import Iterable
from typing import Any

import orjson

try:
    import simdjson
except ImportError:
    HAS_SIMDJSON = False
    ARRAYS: Any = (list,)
    VIEWS_OF_OBJECTS: Any = ()
else:
    HAS_SIMDJSON = True
    ARRAYS = (simdjson.Array, list)
    VIEWS_OF_OBJECTS = (simdjson.Object,)

Json = Any

# A parser reserves many times the body's size in memory, and uses a few times; asking the
# system for it each time would take longer than half of the parsing.
_KEPT_BODY_NBYTES = 2**21


class Members(dict[str, Json]):
    """The members of an object, and the first name that occurs twice in it, if one does."""

    repeated: str | None = None


def first_of_each(pairs: Iterable[tuple[str, Json]]) -> Members:
    """The members; if a name occurs twice the first counts, as in simdjson."""
    members = Members()
    for key, value in pairs:
        if key not in members:
            members[key] = value
        elif members.repeated is None:
            members.repeated = key
    return members


def parse_to_objects(body: bytes | str) -> Json:
    """The value of *body* as Python's objects, NaN and infinities as literals included.

    Bytes may be UTF-16 or UTF-32, too. Raises as ``json.loads``, and ``RecursionError``.
    """
    return json.loads(body, object_pairs_hook=first_of_each)


class _ThreadParser(threading.local):
    """For each thread, a parser that keeps its memory."""

    def __init__(self) -> None:
        self.kept = simdjson.Parser()


_parser = _ThreadParser() if HAS_SIMDJSON else None


def parse_numbers(text: bytes) -> Json:
    """As ``parse_strictly``, for a text that is to be an array of numbers.

    Without simdjson by orjson, which takes a third to a half of the time of Python's parser. It
    refuses the literals and infinities that this one takes, and reads integers of more than 64
    bits as floats.
    """
    return parse_strictly(text) if _parser is not None else orjson.loads(text)


def parse_strictly(body: bytes) -> Json:
    """The value of *body*: views of it, or Python's objects.

    Raises ``ValueError``, also for what is not UTF-8 or begins with a byte order mark.
    """
    if _parser is None:
        try:
            return parse_to_objects(body.decode())
        except RecursionError as error:
            raise ValueError(str(error)) from None
    if body.startswith(BOM_UTF8):
        raise ValueError("a byte order mark is no JSON")
    parser = _parser.kept if len(body) <= _KEPT_BODY_NBYTES else simdjson.Parser()
    try:
        return parser.parse(body)
    except RuntimeError:  # an earlier value of it is still in use, or a number is too large
        parser = simdjson.Parser()
    if len(body) <= _KEPT_BODY_NBYTES:
        _parser.kept = parser
    try:
        return parser.parse(body)
    except RuntimeError as error:
        raise ValueError(str(error)) from None
