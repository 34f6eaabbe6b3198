"""Reads what ``/metrics`` of a server tells, in Prometheus' text format."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

Labels = Mapping[str, str]

# Prometheus's text format lets blanks and tabs stand between any two parts of a line and around
# it, and a time in milliseconds after the value.
_LINE = re.compile(
    r"^[ \t]*([\w:]+)[ \t]*(?:\{(.*)\})?[ \t]+(\S+)(?:[ \t]+-?\d+)?[ \t]*$", re.MULTILINE
)
_LABEL = re.compile(r'(\w+)[ \t]*=[ \t]*"((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")


def samples(text: str) -> Iterator[tuple[str, Labels, float]]:
    """The name, the labels and the value of each sample; lines that are none are left out."""
    for name, labels, value in _LINE.findall(text):
        try:
            yield name, _labels(labels), float(value)
        except ValueError:
            continue


def _labels(text: str) -> Labels:
    return {name: _ESCAPED.sub(_unescaped, value) for name, value in _LABEL.findall(text)}


def _unescaped(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]
