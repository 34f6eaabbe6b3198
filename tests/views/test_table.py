"""Tables as HTML."""

import re

from workbench.views.table import table_html


def test_a_number_is_not_parted_from_its_unit() -> None:
    """The numbers of a table are on the right, and do not wrap; its heads and texts may."""
    html = table_html([("a long text", "4.4 ms")], {1}, ("what", "waited in all"))
    styles = {text: style for style, text in re.findall(r'style="([^"]*)">([^<]+)</t[dh]>', html)}
    assert [text for text, style in styles.items() if "nowrap" in style] == ["4.4 ms"]
    assert [text for text, style in styles.items() if "align:right" in style] == [
        "waited in all",
        "4.4 ms",
    ]
