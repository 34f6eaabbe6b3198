"""Writes fields of protobuf: their number and kind, then a value, or a length and its bytes."""

from __future__ import annotations


def varint(value: int) -> bytes:
    """Encode *value* >= 0, seven bits to a byte, lowest first."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def number(field_number: int, value: int) -> bytes:
    """A field with *value* >= 0."""
    return varint(field_number << 3) + varint(value)


def field_head(field_number: int, nbytes: int) -> bytes:
    """The beginning of a field, which *nbytes* follow."""
    return varint(field_number << 3 | 2) + varint(nbytes)


def field(field_number: int, *parts: bytes | str) -> bytes:
    """A field with *parts*, one after the other."""
    body = b"".join(part.encode() if isinstance(part, str) else part for part in parts)
    return field_head(field_number, len(body)) + body
