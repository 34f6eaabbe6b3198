"""Tables as HTML."""

import re

from workbench.views.table import table_html


def test_a_number_is_not_parted_from_its_unit() -> None:
    """Numbers are on the right, and do not wrap, nor do the names of rows; heads and texts may."""
    row, heads = ("a long name", "4.4 ms", "a long text"), ("what", "waited in all", "why")
    html = table_html([row], {1}, heads)
    styles = {text: style for style, text in re.findall(r'style="([^"]*)">([^<]+)</t[dh]>', html)}
    assert [t for t, style in styles.items() if "nowrap" in style] == ["a long name", "4.4 ms"]
    assert [t for t, style in styles.items() if "align:right" in style] == [
        "waited in all",
        "4.4 ms",
    ]
    assert table_html([row], {1}).count("nowrap") == 1
