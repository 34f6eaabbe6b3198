"""Prometheus's text format, version 0.0.4: families of samples become lines.

Written here because ``prometheus_client`` cannot: it appends ``_total`` to the name of every
counter, and Triton's names do not have it. It also registers collectors with the whole process when
it is imported.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"

COUNTER = "counter"
GAUGE = "gauge"
HISTOGRAM = "histogram"

_IN_HELP = str.maketrans({"\\": r"\\", "\n": r"\n"})
_IN_LABELS = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class Sample(NamedTuple):
    """A finite *value* under *labels* (see ``label_text``); *suffix* is a histogram's."""

    labels: str
    value: float
    suffix: str = ""


class Family(NamedTuple):
    """The samples of one *name*, of a *kind*, with a *help_text* line for people.

    The samples may be made as they are written. If all of a thousand models were there at once,
    Python would look through the whole process for garbage, with all other threads waiting.
    """

    name: str
    kind: str
    help_text: str
    samples: Iterable[Sample]


def label_text(**labels: str) -> str:
    """The *labels* as they are written between the braces."""
    return ",".join(f'{name}="{value.translate(_IN_LABELS)}"' for name, value in labels.items())


def write(families: Iterable[Family]) -> bytes:
    """The lines of all *families* that have samples."""
    return b"".join(map(_lines, families))


def _lines(family: Family) -> bytes:
    name = family.name
    lines = "".join(
        [
            f"{name}{suffix}{{{labels}}} {value!r}\n" if labels else f"{name}{suffix} {value!r}\n"
            for labels, value, suffix in family.samples
        ]
    )
    if not lines:
        return b""
    told = family.help_text.translate(_IN_HELP)
    return f"# HELP {name} {told}\n# TYPE {name} {family.kind}\n{lines}".encode()
