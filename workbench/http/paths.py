"""Reads paths: the name and the version of a model, and the path of an inference."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from workbench.errors import ModelNotFound, VersionNotFound
from workbench.model import HIGHEST_VERSION

_SHOWN = 100  # characters of a number that is shown in a message

_INFER_PATH = re.compile(
    rb"/v2/models/(?P<name>.+?)(?:/versions/(?P<version>[^/]+))?/(?P<verb>infer)/?"
)


@dataclass(frozen=True, slots=True)
class Target:
    """A model, its *version* (``None``: the default one), and the *verb* that follows."""

    name: str
    version: int | None
    verb: str = "infer"


def parse_path(raw_path: bytes) -> Target:
    """The model of an inference's path. Raises ``ModelNotFound``, ``VersionNotFound``.

    For the short cut, which comes before the routes.
    """
    match = _INFER_PATH.fullmatch(raw_path)
    if match is None:
        raise ModelNotFound("the path names no model")
    try:
        name = unquote_to_bytes(match["name"]).decode()
    except UnicodeDecodeError:
        raise ModelNotFound("the name of the model in the path is not UTF-8") from None
    version = match["version"]
    return Target(name, None if version is None else read_version(name, version.decode("latin-1")))


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
            f"model {name!r} has no version {shown[:_SHOWN]!r}: "
            f"the highest that can be is {HIGHEST_VERSION}"
        )
    return int(text)
