"""Prometheus's text format, version 0.0.4: families of samples become lines.

Written here because ``prometheus_client`` cannot: it appends ``_total`` to the name of every
counter, and Triton's names do not have it. It also registers collectors with the whole process when
it is imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Family:
    """The samples of one *name*, of a *kind*, with a *help_text* line for people."""

    name: str
    kind: str
    help_text: str
    samples: tuple[Sample, ...]


def label_text(**labels: str) -> str:
    """The *labels* as they are written between the braces."""
    return ",".join(f'{name}="{value.translate(_IN_LABELS)}"' for name, value in labels.items())


def write(families: Iterable[Family]) -> bytes:
    """The lines of all *families* that have samples."""
    lines = (line for family in families if family.samples for line in _lines(family))
    return "".join(lines).encode()


def _lines(family: Family) -> Iterator[str]:
    name = family.name
    yield f"# HELP {name} {family.help_text.translate(_IN_HELP)}\n"
    yield f"# TYPE {name} {family.kind}\n"
    for labels, value, suffix in family.samples:
        braced = f"{{{labels}}}" if labels else ""
        yield f"{name}{suffix}{braced} {value!r}\n"
