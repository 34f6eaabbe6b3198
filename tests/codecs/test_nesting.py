"""How deep JSON nests, before anything parses it; fuzz/test_fuzz_codecs.py tries any text."""

import memory_taken
import pytest

from workbench.codecs.nesting import check_nesting
from workbench.errors import InvalidRequest


def refuses(text: bytes, limit: int) -> bool:
    try:
        check_nesting(text, limit)
    except InvalidRequest:
        return True
    return False


def test_the_refusal() -> None:
    """A refusal says the limit."""
    with pytest.raises(InvalidRequest) as caught:
        check_nesting(b"[" * 8, 7)
    assert str(caught.value) == "the JSON nests more than 7 deep"


@pytest.mark.parametrize("limit", [1, 2, 99, 100, 101, 1000])
@pytest.mark.parametrize(
    ("opens", "closes"), [("[", "]"), ('{"a":', "}"), ('[{"a":', "}]"), (" [\n", "\t]")]
)
def test_the_limit_itself_is_allowed(limit: int, opens: str, closes: str) -> None:
    """As deep as the limit passes, one deeper does not, of arrays, objects or both."""
    per_copy = opens.count("[") + opens.count("{")
    for depth in (limit, limit + 1):
        copies, rest = divmod(depth, per_copy)
        text = "[" * rest + opens * copies + "1" + closes * copies + "]" * rest
        assert refuses(text.encode(), limit) == (depth > limit)


def test_many_brackets_side_by_side() -> None:
    """Any number of arrays next to each other are as deep as one."""
    text = b"[" + b"[1,[2]]," * 10_000 + b"[]]"
    assert not refuses(text, 3)
    assert refuses(text, 2)


@pytest.mark.parametrize(
    ("text", "depth"),
    [
        (rb'["\\",[[1]]]', 3),  # the backslash escapes a backslash: the string ends
        (rb'["\"",[[1]]]', 3),
        (rb'["\\\"[[[[",[1]]', 2),
        (rb'["\\\\",[[1]]]', 3),
        (rb'["\u005b\u007b[{",1]', 1),
        (b'["\\\n[[",1]', 1),  # no JSON, but still a string
        ('["ä[模{𝄞",[1]]'.encode(), 2),
        (b'["\xdb\xfb\xdd[",[1]]', 2),  # no UTF-8: bytes that differ from brackets by one bit
        (b"[\xdb\xdb\xdb1]", 1),
        (b"", 0),
        (b"1", 0),
        (b'""', 0),
    ],
)
def test_escapes(text: bytes, depth: int) -> None:
    """A string ends at the first quote that is not escaped, and no other byte is a bracket."""
    for limit in range(depth):
        assert refuses(text, limit)
    assert not refuses(text, depth)


def test_a_large_text_without_structure_costs_nothing() -> None:
    """A tensor of numbers is only searched: nothing is made of it."""
    text = b'{"inputs":[{"data":[' + b"0.25," * 200_000 + b"1]}]}"
    with memory_taken.less_than(len(text) / 10):
        check_nesting(text, 100)


def test_a_string_that_does_not_end() -> None:
    """A string full of escapes that never ends is searched once, not from each of its quotes."""
    check_nesting(b"[" * 101 + b"]" * 101 + b'"' + rb"\"" * 2**20, 101)
    with pytest.raises(InvalidRequest, match="more than 100 deep"):
        check_nesting(b"[" * 101 + b'"' + rb"\"" * 2**20, 100)
