"""Heads that differ in their lengths only."""

from __future__ import annotations

import pytest

from workbench.host.known_head import KnownHead, head_pieces

HEAD = (
    b"POST /a HTTP/1.1\r\nInference-Header-Content-Length: %b\r\n"
    b"Host: localhost\r\nContent-Length: %b\r\n\r\n"
)


def test_both_lengths() -> None:
    """Heads that differ in both lengths have the same pieces, and are found by them."""
    pieces = head_pieces(HEAD % (b"7", b"123") + b"body\r\n\r\n")
    assert pieces == head_pieces(HEAD % (b"17", b"5"))
    assert pieces is not None
    known = KnownHead(pieces)
    match = known.match(HEAD % (b"99", b"1") + b"...")
    assert match is not None
    assert (match[known.json], match[known.body]) == (b"99", b"1")
    assert match.end() == len(HEAD % (b"99", b"1"))


def test_one_length() -> None:
    """Most heads have only the length of the body."""
    pieces = head_pieces(b"POST /a HTTP/1.1\r\ncontent-length:\t5 \r\nHost: localhost\r\n\r\n")
    assert pieces is not None
    known = KnownHead(pieces)
    assert known.json == 0
    match = known.match(b"POST /a HTTP/1.1\r\ncontent-length:\t66 \r\nHost: localhost\r\n\r\n")
    assert match is not None
    assert match[known.body] == b"66"


@pytest.mark.parametrize(
    "head",
    [
        b"POST /a HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /a HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"POST /a HTTP/1.1\r\nContent-Length: 1, 1\r\n\r\n",
        b"POST /a HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
        b"POST /a HTTP/1.1\r\nInference-Header-Content-Length: 1\r\n\r\n",
        b"POST /a HTTP/1.1\nContent-Length: 1\r\n\r\n",
        b"POST /a HTTP/1.1\r\nContent-Length: 1\r\n",
    ],
)
def test_heads_that_are_not_known(head: bytes) -> None:
    """What has not just these lengths, or is no whole head, is left to the parser."""
    assert head_pieces(head) is None


@pytest.mark.parametrize("lengths", [(b"", b"1"), (b"1", b"-1"), (b"1", b"1" * 19), (b"1 ", b"1")])
def test_lengths_that_are_none(lengths: tuple[bytes, bytes]) -> None:
    """A head with anything but digits for a length is not found."""
    pieces = head_pieces(HEAD % (b"7", b"123"))
    assert pieces is not None
    assert KnownHead(pieces).match(HEAD % lengths) is None
