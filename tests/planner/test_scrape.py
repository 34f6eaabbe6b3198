"""The text of ``/metrics``, read line by line."""

import pytest

from workbench.planner.scrape import samples


@pytest.mark.parametrize(
    ("line", "labels"),
    [
        ("up 1", {}),
        (" \tup\t 1 \t", {}),
        ("up 1 1395066363000", {}),
        ("up 1 -5", {}),
        ('up{a="b"} 1', {"a": "b"}),
        ('  up { a = "b c" , } 1', {"a": "b c"}),
        (r'up{a="b} 2 \" \\ \n",c="{d}"} 1', {"a": 'b} 2 " \\ \n', "c": "{d}"}),
    ],
)
def test_a_sample(line: str, labels: dict[str, str]) -> None:
    """Blanks may stand around the parts of a line, and a time after its value."""
    assert list(samples(f"# HELP up 1\n{line}\n\nlast 2\n")) == [
        ("up", labels, 1.0),
        ("last", {}, 2.0),
    ]


def test_a_name_with_colons() -> None:
    """The names that recording rules give are read as they are."""
    assert list(samples("job:up:sum 1")) == [("job:up:sum", {}, 1.0)]


@pytest.mark.parametrize("text", ["up", "up one", "up\n1", "# up 1", "", '{a="b"} 1'])
def test_no_sample(text: str) -> None:
    """Lines that are no samples are left out; no sample goes over two lines."""
    assert list(samples(text)) == []
