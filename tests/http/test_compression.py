"""Content codings: both ways, never beyond the bound, and which one a client likes best."""

import gzip
import zlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import memory_taken
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.errors import InvalidRequest, RequestTooLarge, UnknownMediaType
from workbench.http import compression
from workbench.http.compression import choose, deflate, inflate

deterministic = settings(derandomize=True, deadline=None, max_examples=60)
LIMIT = 2**20
TEXT = b'{"inputs": [1, 2, 3]}' * 50
CODINGS = [b"gzip", b"deflate"]


def packed(data: bytes, coding: bytes) -> bytes:
    """*data* as another program compresses it."""
    return gzip.compress(data) if coding.endswith(b"gzip") else zlib.compress(data)


def refusal(body: bytes, coding: bytes) -> str:
    with pytest.raises(InvalidRequest) as caught:
        inflate(body, coding, LIMIT)
    assert not isinstance(caught.value, RequestTooLarge)
    return str(caught.value)


# ── in ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("coding", [b"", b"identity", b"Identity", b" identity "])
def test_no_coding(coding: bytes) -> None:
    """A body in no coding is the body itself, not a copy, and not held against the bound again."""
    assert inflate(TEXT, coding, 1) is TEXT


@pytest.mark.parametrize(
    "coding", [b"gzip", b"deflate", b"GZIP", b" Deflate ", b"x-gzip", b"X-GZip"]
)
def test_what_others_compress(coding: bytes) -> None:
    """What gzip and zlib make is read, however the header is written."""
    body = packed(TEXT, coding.strip().lower())
    assert inflate(body, coding, LIMIT) == TEXT


def test_several_gzip_members() -> None:
    """Several gzip files in a row are one body (RFC 1952, 2.2), empty ones included."""
    body = gzip.compress(b"one ") + gzip.compress(b"") + gzip.compress(b"two") + gzip.compress(b"")
    assert inflate(body, b"gzip", LIMIT) == b"one two"


@pytest.mark.parametrize(
    "coding", [b"br", b"zstd", b"compress", b"gzip, gzip", b"x-deflate", b"\xff"]
)
def test_other_codings(coding: bytes) -> None:
    """Any other coding is not supported, and the refusal names it and those that are."""
    with pytest.raises(UnknownMediaType) as caught:
        inflate(TEXT, coding, LIMIT)
    shown = coding.decode("latin-1")
    assert str(caught.value) == (
        f"content-encoding {shown!r} is not supported; gzip and deflate are"
    )


def wrong(coding: bytes) -> Iterator[tuple[bytes, str]]:
    """Bodies that are not in *coding*, and why."""
    packed_, (other,) = packed(TEXT, coding), {*CODINGS} - {coding}
    damaged = bytearray(packed_)
    damaged[-5 if coding == b"gzip" else -1] ^= 1  # its checksum
    for body in (TEXT, b"\0" * 100, packed(TEXT, other), zlib.compress(TEXT)[2:], bytes(damaged)):
        yield body, f"the body is not in {coding.decode()}: "
    for end in range(len(packed_)):
        yield packed_[:end], f"the body ends within its {coding.decode()} data"
    for more in (b"xx", b"\0" * 100, TEXT, zlib.compress(TEXT)):
        told = f"{len(more)} bytes follow the body's deflate data"
        yield packed_ + more, told if coding == b"deflate" else "the body is not in gzip: "


@pytest.mark.parametrize("coding", CODINGS)
def test_what_is_not_in_the_coding(coding: bytes) -> None:
    """A body of something else, cut short, damaged, or followed by more is refused, and why."""
    for body, told in wrong(coding):
        assert refusal(body, coding).startswith(told), body


# ── bounds ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("nbytes", [1, 1000, 2**20])
def test_the_bound(coding: bytes, nbytes: int) -> None:
    """A body may be just as large as the bound, and not a byte more."""
    assert len(inflate(packed(bytes(nbytes), coding), coding, nbytes)) == nbytes
    with pytest.raises(
        RequestTooLarge, match=r"the decompressed body has more than .*, the setting max_request"
    ):
        inflate(packed(bytes(nbytes + 1), coding), coding, nbytes)


def test_the_bound_is_for_all_members() -> None:
    """Several gzip files together are held against the bound."""
    half = gzip.compress(bytes(600))
    assert len(inflate(half + half, b"gzip", 1200)) == 1200
    with pytest.raises(RequestTooLarge):
        inflate(half + half, b"gzip", 1199)
    with pytest.raises(RequestTooLarge):
        inflate(half + half + gzip.compress(b"x"), b"gzip", 1200)
    assert len(inflate(half + half + gzip.compress(b""), b"gzip", 1200)) == 1200


@pytest.mark.parametrize(("coding", "members"), [(b"gzip", 1), (b"gzip", 3), (b"deflate", 1)])
def test_a_bomb_is_never_inflated(coding: bytes, members: int) -> None:
    """A small body of a huge size is refused with room made for little more than the bound."""
    stream = zlib.compressobj(9, wbits=31 if coding == b"gzip" else 15)
    bomb = b"".join(stream.compress(bytes(2**20)) for _ in range(64)) + stream.flush()
    assert len(bomb) < 2**17
    with memory_taken.less_than(4 * LIMIT), pytest.raises(RequestTooLarge):
        inflate(bomb * members, coding, LIMIT)


def test_many_members_take_no_longer_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A body of very many tiny gzip files is read once, not again for each of them."""
    fed_nbytes = 0

    def counting(wbits: int) -> Any:
        stream = zlib.decompressobj(wbits)

        class Counting:
            def decompress(self, data: Any, max_length: int = 0) -> bytes:
                nonlocal fed_nbytes
                fed_nbytes += len(data)
                return stream.decompress(data, max_length)

            def __getattr__(self, name: str) -> Any:
                return getattr(stream, name)

        return Counting()

    monkeypatch.setattr(
        compression,
        "zlib",
        SimpleNamespace(decompressobj=counting, error=zlib.error, compressobj=zlib.compressobj),
    )
    body = gzip.compress(b"") * 4000 + gzip.compress(b"x")
    assert inflate(body, b"gzip", LIMIT) == b"x"
    assert fed_nbytes < 100 * len(body)


# ── out ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("coding", CODINGS)
def test_what_others_read(coding: bytes) -> None:
    """What is compressed here, other programs read: the parts, one after the other."""
    array = np.arange(1000, dtype=np.float32)
    parts = [b'{"outputs": []}', memoryview(array).cast("B"), b""]
    body = deflate(parts, coding)
    read = gzip.decompress(body) if coding == b"gzip" else zlib.decompress(body)
    assert read == b"".join(parts)
    assert deflate([b""], coding)


@deterministic
@given(st.lists(st.binary(max_size=200), max_size=4), st.sampled_from(CODINGS))
def test_round_trips(parts: list[bytes], coding: bytes) -> None:
    """What is compressed here is read here."""
    assert inflate(deflate(parts, coding), coding, LIMIT) == b"".join(parts)


# ── which ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("accepted", "chosen"),
    [
        (b"", b""),
        (b"gzip", b"gzip"),
        (b"deflate", b"deflate"),
        (b"GZip", b"gzip"),
        (b"  gzip  ", b"gzip"),
        (b"identity", b""),
        (b"*", b""),
        (b"*;q=1", b""),
        (b"br", b""),
        (b"zstd, br", b""),
        (b"x-gzip", b"gzip"),
        (b"x-gzip;q=0.5, deflate", b"deflate"),
        (b"x-deflate", b""),
        (b"gzipped", b""),
        (b"br, gzip", b"gzip"),
        (b"*, deflate;q=0.1", b"deflate"),
        # alike
        (b"gzip, deflate", b"gzip"),
        (b"deflate, gzip", b"deflate"),
        (b"gzip, deflate, br, zstd", b"gzip"),
        (b"deflate;q=1.0, gzip", b"deflate"),
        (b"gzip;q=0.5, deflate;q=0.5", b"gzip"),
        (b"deflate,gzip;q=1", b"deflate"),
        # by weight
        (b"gzip;q=0.5, deflate", b"deflate"),
        (b"gzip;q=0.5, deflate;q=0.8", b"deflate"),
        (b"gzip;q=0.501,deflate;q=0.5", b"gzip"),
        (b"gzip; q=0.2 ,  deflate ; Q=0.3", b"deflate"),
        (b"gzip;q=0", b""),
        (b"gzip;q=0.000", b""),
        (b"gzip;q=0, deflate;q=0.001", b"deflate"),
        (b"gzip;q=0, *", b""),
        (b"gzip;q=, deflate;q=0.1", b"deflate"),
        (b"gzip;q=x", b""),
        (b"gzip;q=nan", b""),
        (b"gzip;q=-1", b""),
        (b";q=1, ,gzip", b"gzip"),
        (b"\xff\xfe, gzip", b"gzip"),
    ],
)
def test_accepted_codings(accepted: bytes, chosen: bytes) -> None:
    """The one of gzip and deflate that has more weight, or comes first; at 0 or nonsense none."""
    assert choose(accepted) == chosen
