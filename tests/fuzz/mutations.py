"""Bytes that are nearly right: edits for hypothesis, and what JSON may hold that few expect."""

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

import memory_taken
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from workbench.errors import WorkbenchError

Made = TypeVar("Made")
_TIMES = float(os.environ.get("FUZZ_TIMES", "0.4"))  # of the examples: make fuzz wants more
Edit = tuple[int, int, bytes]  # where, how many bytes go, what comes instead

PIECES = [
    b"", b"", b"\0", b"\x80", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", "é".encode(), b" ",
    b"\r\n\t ", b'"', b"\\", b"\\u0000", b"\\ud800", b"\\/", b"[", b"]", b"{", b"}", b",", b":",
    b"[[[", b"]]", b"0", b"-", b".", b"e", b"1", b"-0", b"-0.0", b"01", b"1e5", b"1e400", b"1e-400",
    b"NaN", b"Infinity", b"null", b"true", b'"NaN"', b"255", b"256", b"-129", b"65504", b"65520",
    b"9223372036854775807", b"9223372036854775808", b"18446744073709551615",
    b"18446744073709551616", b"1" * 400, b'"data"', b'"d\\u0061ta"', b'"data":[1]', b'"x"', b"\n",
]  # fmt: skip


def edits(pieces: Sequence[bytes] = PIECES) -> st.SearchStrategy[list[Edit]]:
    """A few edits of any bytes."""
    edit = st.tuples(st.integers(0, 2**16), st.integers(0, 6), st.sampled_from(pieces))
    return st.lists(edit, max_size=3)


def edited(data: bytes, changes: Sequence[Edit]) -> bytes:
    """*data* after all *changes*."""
    for at, gone, piece in changes:
        start = at % (len(data) + 1)
        data = data[:start] + piece + data[start + gone :]
    return data


def refused_or(made: Callable[[], Made]) -> Made | WorkbenchError:
    """What is *made*, or the error that says why not: one of ours, in one line."""
    try:
        return made()
    except WorkbenchError as error:
        text = str(error)
        assert text
        assert len(text.splitlines()) == 1
        return error


def deterministic(examples: int) -> settings:
    """The same *examples* in every run, fewer in a run of all tests."""
    return settings(
        derandomize=True,
        deadline=None,
        max_examples=int(_TIMES * examples),
        suppress_health_check=[HealthCheck.too_slow],
    )


def bounded(nbytes: int) -> AbstractContextManager[None]:
    """Nothing within takes much more memory than a text of *nbytes* may."""
    return memory_taken.less_than(100 * nbytes + 2**20)
