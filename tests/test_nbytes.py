"""Amounts of memory: what is read, what is refused, and what people are shown."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.errors import SettingError
from workbench.nbytes import budget_of, parse_nbytes, show_nbytes

deterministic = settings(derandomize=True, deadline=None, max_examples=60)

FACTORS = {
    "": 1, "B": 1, "k": 10**3, "KB": 10**3, "MB": 10**6, "g": 10**9, "TB": 10**12,
    "KiB": 2**10, "mib": 2**20, "Gi": 2**30, "TiB": 2**40,
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("1", 1),
        (1, 1),
        (4096, 4096),
        ("512 B", 512),
        ("512b", 512),
        ("64MiB", 64 * 2**20),
        (" 64 mib ", 64 * 2**20),
        ("64m", 64 * 10**6),
        ("1.5 GB", 1_500_000_000),
        ("1.5GiB", 3 * 2**29),
        ("500k", 500_000),
        ("2Ki", 2048),
        ("1T", 10**12),
        ("0.5KiB", 512),
        ("1.9", 1),
    ],
)
def test_reads_a_number_and_a_unit(text: str | int, nbytes: int) -> None:
    """A number is read with a decimal or a binary unit, in any case, with or without a space."""
    assert parse_nbytes(text) == nbytes


@pytest.mark.parametrize(
    "text",
    ["", " ", "0", "0.4", "0 GiB", "-1", "-64MiB", "+5", "1e6", "1_000", "1,000", "5 5", "MiB",
     "5 k b", "5 bytes", "0x10", "nan", "inf", "5.", ".5", "1.2.3", "9" * 400, "9" * 5000,
     str(2**63), "9999999999 TiB", "five"],
)  # fmt: skip
def test_refuses_what_is_no_amount(text: str) -> None:
    """What is not a number and a unit, less than a byte, or absurdly much is a SettingError."""
    with pytest.raises(SettingError, match="is not an amount of memory: write a number and a unit"):
        parse_nbytes(text)


def test_the_most() -> None:
    """The largest amount is the largest signed 64-bit number, to the byte."""
    assert parse_nbytes(str(2**63 - 1)) == 2**63 - 1


@deterministic
@given(
    thousandths=st.integers(1, 10**7),
    unit=st.sampled_from(sorted(FACTORS)),
    space=st.sampled_from(["", " "]),
)
def test_decimals_are_exact(thousandths: int, unit: str, space: str) -> None:
    """A decimal fraction of a unit is that many bytes, rounded down and never by way of a float."""
    exact = Fraction(thousandths, 1000) * FACTORS[unit]
    text = f"{thousandths // 1000}.{thousandths % 1000:03}{space}{unit}"
    if exact < 1:
        with pytest.raises(SettingError):
            parse_nbytes(text)
    else:
        assert parse_nbytes(text) == int(exact)


@deterministic
@given(st.text(max_size=12) | st.integers())
def test_anything_else_is_a_setting_error(text: str | int) -> None:
    """Whatever the text, the answer is an amount in range or a SettingError."""
    try:
        nbytes = parse_nbytes(text)
    except SettingError:
        return
    assert 1 <= nbytes < 2**63


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (92 * 2**20, "92.0 MiB"),
        (3 * 2**29, "1.5 GiB"),
        (2**40, "1.0 TiB"),
        (5000 * 2**40, "5000.0 TiB"),
        (-5, "-5 B"),
        (-3 * 2**19, "-1.5 MiB"),
        (2 * 10**9, "2.0 GB"),
        (1500 * 10**6, "1.5 GB"),
        (10**6, "1.0 MB"),
        (10**6 + 1, "976.6 KiB"),
    ],
)
def test_shows_the_fitting_unit(nbytes: int, text: str) -> None:
    """The unit is the largest that leaves one of it; of whole megabytes it is a decimal one."""
    assert show_nbytes(nbytes) == text


@deterministic
@given(st.integers(1, 2**60))
def test_what_is_shown_can_be_read(nbytes: int) -> None:
    """What is shown can be written as a setting, and is right to the digit that is shown."""
    assert abs(parse_nbytes(show_nbytes(nbytes)) - nbytes) <= nbytes * 0.05


@pytest.mark.parametrize(
    ("nbytes", "setting"),
    [
        (1, "1B"), (1023, "1023B"), (2**10, "1KiB"), (29 * 2**20 + 2**19, "30MiB"),
        (2**30 + 2**28, "1.3GiB"), (5 * 2**40, "5TiB"), (1023 * 2**20 + 1, "1024MiB"),
    ],
)  # fmt: skip
def test_a_budget_that_would_do(nbytes: int, setting: str) -> None:
    """It is a round amount, which a setting takes, and not less."""
    assert budget_of(nbytes) == setting
    assert parse_nbytes(setting) >= nbytes
