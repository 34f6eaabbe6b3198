"""Content codings of bodies: gzip, and deflate, which is zlib's format (RFC 9110, 8.4.1)."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import TypeVar

from workbench.errors import InvalidRequest, RequestTooLarge, UnknownMediaType
from workbench.nbytes import show_nbytes

T = TypeVar("T", bytes, bytes | memoryview)

_WBITS = {b"gzip": 31, b"deflate": 15}
CODINGS = tuple(_WBITS)
_OTHER_NAMES = {b"x-gzip": b"gzip"}
_LEVEL = 1  # higher levels take several times as long to save a tenth


class UnknownCoding(UnknownMediaType):
    """A body is in a coding that is not read here."""


SETTING = "the setting max_request"


def inflate(body: T, coding: bytes, limit_nbytes: int, limited_by: str = SETTING) -> T | bytes:
    """The decoded *body*, which is in *coding*; unchanged if that is identity or empty.

    Raises ``UnknownCoding`` for another one, ``RequestTooLarge`` as soon as the result is over
    *limit_nbytes*, with the reason *limited_by*; ``InvalidRequest`` if the body is not in *coding*.
    """
    coding = _named(coding)
    if coding in {b"", b"identity"}:
        return body
    if coding not in _WBITS:
        shown = coding.decode("latin-1")
        raise UnknownCoding(f"content-encoding {shown!r} is not supported; gzip and deflate are")
    inflated, rest = bytearray(), memoryview(body)
    while True:
        rest = _inflate_file(rest, coding, limit_nbytes, limited_by, inflated)
        if not rest:
            return bytes(inflated)
        if coding != b"gzip":  # whose files may be several in a row
            raise InvalidRequest(f"{len(rest)} bytes follow the body's deflate data")


def _named(coding: bytes) -> bytes:
    coding = coding.strip().lower()
    return _OTHER_NAMES.get(coding, coding)


def _inflate_file(
    rest: memoryview, coding: bytes, limit_nbytes: int, limited_by: str, inflated: bytearray
) -> memoryview:
    """Append the decoded first file in *rest* to *inflated*. Returns the bytes after that file."""
    stream = zlib.decompressobj(_WBITS[coding])
    step = 256  # small pieces at first: zlib copies the input that it has not used
    while not stream.eof:
        if not rest:
            raise InvalidRequest(f"the body ends within its {coding.decode()} data")
        piece = rest[:step]
        try:
            inflated += stream.decompress(piece, limit_nbytes - len(inflated) + 1)
        except zlib.error as error:
            raise InvalidRequest(f"the body is not in {coding.decode()}: {error}") from None
        if len(inflated) > limit_nbytes:
            raise RequestTooLarge(
                f"the decompressed body has more than {limit_nbytes} bytes "
                f"({show_nbytes(limit_nbytes)}, {limited_by})"
            )
        rest = rest[len(piece) - len(stream.unused_data) - len(stream.unconsumed_tail) :]
        step = min(2 * step, 2**20)
    return rest


def deflate(parts: Sequence[bytes | memoryview], coding: bytes) -> bytes:
    """The joined *parts*, compressed with *coding*."""
    stream = zlib.compressobj(_LEVEL, wbits=_WBITS[coding])
    return b"".join([*map(stream.compress, parts), stream.flush()])


def choose(accepted: bytes) -> bytes:
    """The coding that an Accept-Encoding header likes best; empty for none of ours.

    Of equally liked ones the first named, as Triton has it; ``*`` chooses none.
    """
    best, best_weight, plain_weight = b"", 0.0, 0.0
    for item in accepted.lower().split(b","):
        name, _, parameter = item.partition(b";")
        coding, weight = _named(name), _weight(parameter.strip())
        if coding == b"identity":
            plain_weight = weight
        elif coding in _WBITS and weight > best_weight:
            best, best_weight = coding, weight
    return best if best_weight >= plain_weight else b""


def _weight(parameter: bytes) -> float:
    if not parameter:
        return 1.0
    name, _, value = parameter.partition(b"=")
    try:
        return float(value) if name.strip() == b"q" else 1.0
    except ValueError:
        return 0.0
