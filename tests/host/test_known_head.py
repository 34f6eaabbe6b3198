"""A head that came before is found by its text, whatever its lengths."""

import pytest

from workbench.host.known_head import KnownHead, head_pieces


def text(nbytes: int, of_json: int = 1, more: str = "") -> bytes:
    """A head as tritonclient writes it."""
    return (
        f"POST /v2/models/a/infer HTTP/1.1\r\nHost: a\r\nContent-Length: {nbytes}\r\n"
        f"Inference-Header-Content-Length: {of_json}\r\nMore: {more}\r\n\r\n"
    ).encode()


def learned(text: bytes) -> KnownHead:
    """What finds the head *text*, which is but the length of its JSON."""
    pieces = head_pieces(text)
    assert pieces is not None
    return KnownHead(pieces, 1, lambda _, nbytes: nbytes)


def test_each_has_its_own_lengths() -> None:
    """A head is found with the lengths that are in it, at the first time and later."""
    known = learned(text(1))
    for nbytes, of_json in [(7, 5), (17, 5), (7, 5), (7, 6), (71, 50), (7, 5), (17, 50), (7, 50)]:
        head = text(nbytes, of_json)
        for body in (b"", b"1234567", head):
            assert known.find(head + body) == (of_json, len(head), nbytes)


def test_what_is_not_that_head() -> None:
    """A head that is not all there, or has other lines, is not found, even if it nearly was."""
    known, head = learned(text(1)), text(12)
    assert known.find(head) is not None
    for cut in range(len(head)):
        assert known.find(head[:cut]) is None
        assert known.find(head[:cut] + b"~" + head[cut + 1 :]) is None
    assert known.find(b"") is None


@pytest.mark.parametrize("nbytes", [0, 2_000, 30_000])
def test_the_memory_of_many_lengths(nbytes: int) -> None:
    """A client whose bodies all have other lengths takes little memory, however long its head."""
    more = "a" * nbytes
    known = learned(text(1, more=more))
    for length in range(2_000):
        assert known.find(text(length, more=more)) is not None
        assert sum(map(len, known._whole)) <= 2**15 + len(text(length, more=more))
    assert known._whole
