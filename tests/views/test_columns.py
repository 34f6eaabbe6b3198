"""Columns of tables: one unit each, aligned, and none without words."""

from __future__ import annotations

from workbench.views.columns import Column, count_column, nbytes_column, said, seconds_column

MIB = 2**20


def test_a_column_has_one_unit() -> None:
    """It is that of the largest number, with the digits that the smallest needs."""
    assert nbytes_column("memory", [3 * MIB, 0, MIB // 10]) == Column(
        "memory, MiB", ("3.0", "", "0.1"), numbers=True
    )
    assert nbytes_column("memory", [512, 7]).cells == ("512", "7")
    assert seconds_column("p99", [2.0, 0.03]) == Column("p99, s", ("2.00", "0.03"), numbers=True)


def test_empty_columns_are_left_out() -> None:
    """A column whose numbers are all nothing is not shown."""
    columns = (Column("model", ("a", "b")), count_column("in use", [0, 0]))
    assert said(columns) == [columns[0]]
