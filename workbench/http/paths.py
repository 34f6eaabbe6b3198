"""The model and the version that the path of a request names."""

from __future__ import annotations

from typing import NamedTuple

from workbench.errors import VersionNotFound
from workbench.model import HIGHEST_VERSION

_SHOWN_CHARS = 100  # characters of a number that is shown in a message


class Target(NamedTuple):
    """A model and its *version* (``None``: the default one)."""

    name: str
    version: int | None


def read_version(name: str, text: str) -> int:
    """The version of the model *name* that *text* gives: a path's bytes as Latin-1.

    Raises ``VersionNotFound``.
    """
    shown = text.encode("latin-1").decode("ascii", "backslashreplace")
    if not (text.isascii() and text.isdigit()) or text.startswith("0"):
        raise VersionNotFound(
            f"model {name!r} has no version {shown!r}: versions are numbers from 1"
        )
    if len(text) > len(str(HIGHEST_VERSION)) or int(text) > HIGHEST_VERSION:
        raise VersionNotFound(
            f"model {name!r} has no version {shown[:_SHOWN_CHARS]!r}: "
            f"the highest that can be is {HIGHEST_VERSION}"
        )
    return int(text)
