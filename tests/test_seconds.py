"""Spans of time: what is read, what is refused, and what people are shown."""

import pytest

from workbench.errors import SettingError
from workbench.seconds import parse_seconds, show_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("300", 300.0), (0.5, 0.5), (5, 5.0), ("30s", 30.0), ("5min", 300.0), (" 1.5 H ", 5400.0),
     ("250ms", 0.25), ("2d", 172800.0)],
)  # fmt: skip
def test_reads_a_number_and_a_unit(text: str | float, seconds: float) -> None:
    """A number is seconds, unless a unit says otherwise."""
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "0", "0s", "-1", "5 minutes", "1e3", "nan", "inf", "s", "400d", "9" * 30, "٣"]
)
def test_refuses(text: str) -> None:
    """What is no span, none at all, or more than a year, is refused with an example."""
    with pytest.raises(SettingError, match="such as 30s, 5min or 2h"):
        parse_seconds(text)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(300.0, "5 min"), (90.0, "1.5 min"), (45.0, "45 s"), (0.25, "250 ms"), (5400.0, "1.5 h"),
     (172800.0, "2 d"), (100.0, "100 s"), (12.34, "12.34 s")],
)  # fmt: skip
def test_shows(seconds: float, shown: str) -> None:
    """The largest unit is shown that needs at most one digit behind the point."""
    assert show_duration(seconds) == shown
