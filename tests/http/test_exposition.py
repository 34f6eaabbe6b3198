"""Prometheus's text format, as its own parser reads it."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from workbench.http.exposition import COUNTER, GAUGE, Family, Sample, label_text, write


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.text(st.characters(exclude_categories=["Cs"])))
@example('qu"ote')
@example("back\\slash and \\n")
@example("line\nend")
@example("a,b=}{")
def test_labels_come_through(value: str) -> None:
    """Whatever a label's value holds, a reader gets it back, beside its neighbour."""
    labels = label_text(model=value, version="1")
    ((family),) = read(Family("f", GAUGE, "told", (Sample(labels, 1),)))
    assert family.samples[0].labels == {"model": value, "version": "1"}


@pytest.mark.parametrize("value", [0, 3, 2**60 + 1, 0.1, 1e-9, 1e300])
def test_values_come_through(value: float) -> None:
    """Numbers are written to their last digit."""
    text = write([Family("f", GAUGE, "told", (Sample("", value),))]).decode()
    assert type(value)(text.splitlines()[-1].removeprefix("f ")) == value


def test_counters_keep_their_names() -> None:
    """No end is put to a counter's name, neither in its samples nor where it is declared."""
    text = write([Family("n", COUNTER, "It\\s\nhelp", (Sample('a="b"', 3),))])
    assert text == b'# HELP n It\\\\s\\nhelp\n# TYPE n counter\nn{a="b"} 3\n'


def test_what_has_no_samples_is_left_out() -> None:
    """A family without samples has no lines."""
    assert write([Family("n", COUNTER, "told", ())]) == b""


def read(family: Family) -> list:
    return list(text_string_to_metric_families(write([family]).decode()))
