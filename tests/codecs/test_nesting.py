"""How deep JSON nests: exactly, whatever is in its strings, and before anything parses it."""

import json
from typing import Any

import memory_taken
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.codecs.nesting import check_nesting
from workbench.errors import InvalidRequest

deterministic = settings(derandomize=True, deadline=None, max_examples=200)

# Strings that look like structure: brackets, quotes, backslashes before either.
TEXT = st.text(st.sampled_from('[]{}"\\,:ü模 \n'), max_size=12)
JSON = st.recursive(
    st.none() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


def refuses(text: bytes, limit: int) -> bool:
    try:
        check_nesting(text, limit)
    except InvalidRequest:
        return True
    return False


def depth_of(text: str) -> int:
    """The depth, a character at a time."""
    depth = deepest = 0
    inside = escaped = False
    for character in text:
        if inside:
            if escaped:
                escaped = False
            elif character == "\\":
                escaped = True
            elif character == '"':
                inside = False
        elif character == '"':
            inside = True
        elif character in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "]}":
            depth -= 1
    return deepest


def depth_of_value(value: Any) -> int:
    """The depth of what a parser made of it."""
    if isinstance(value, dict):
        return 1 + max(map(depth_of_value, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth_of_value, value), default=0)
    return 0


@deterministic
@given(JSON, st.integers(0, 8), st.booleans(), st.sampled_from([None, 1]))
def test_the_depth_is_exact(value: Any, limit: int, ascii_only: bool, indent: int | None) -> None:
    """A text is refused if it is deeper than the limit, and only then."""
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    depth = depth_of_value(value)
    assert depth == depth_of(text)
    assert refuses(text.encode(), limit) == (depth > limit)


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
    per_copy = depth_of(opens)
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
