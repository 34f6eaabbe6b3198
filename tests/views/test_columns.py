"""Columns of tables: one unit each, aligned, and none without words."""

from workbench.views.columns import TableColumn, count_column, nbytes_column, said, seconds_column

MIB = 2**20


def test_a_column_has_one_unit() -> None:
    """That of the largest number, or the next if the smallest needs it, with digits for that."""
    assert nbytes_column("memory", [3 * MIB, 0, MIB // 10]) == TableColumn(
        "memory, MiB", ("3.0", "", "0.1"), numbers=True
    )
    assert nbytes_column("memory", [512, 7]).cells == ("512", "7")
    assert seconds_column("p99", [2.0, 0.03]) == TableColumn(
        "p99, s", ("2.00", "0.03"), numbers=True
    )
    assert seconds_column("p99", [2.0, 2e-4]) == TableColumn(
        "p99, ms", ("2000.0", "0.2"), numbers=True
    )
    assert seconds_column("p99", [2e3, 2e-7]).cells == ("2000.000", "~0")


def test_empty_columns_are_left_out() -> None:
    """A column whose numbers are all nothing is not shown."""
    columns = (TableColumn("model", ("a", "b")), count_column("in flight", [0, 0]))
    assert said(columns) == [columns[0]]
