"""What a path under ``/v2/models/`` or ``/v2/repository/`` names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from workbench.errors import ModelNotFound, NotSupported, RegionNotFound, VersionNotFound
from workbench.model import HIGHEST_VERSION

_SHOWN = 100  # characters of a number that nobody reads to its end

MODELS = b"/v2/models"

_VERBS = (
    "infer",
    "ready",
    "config",
    "stats",
    "generate",
    "generate_stream",
    "trace/setting",
    "docs",
    "docs/dataplane.json",
)
_MODEL_PATH = re.compile(
    rb"/v2/models/(?P<name>.+?)(?:/versions/(?P<version>[^/]+))?(?:/(?P<verb>"
    + "|".join(map(re.escape, _VERBS)).encode()
    + rb"))?/?"
)

# As in Triton the name of a repository has no slash; one called "models" cannot be named.
_REPOSITORY_PATH = re.compile(
    rb"/v2/repository(?:/(?P<repository>(?!models/)[^/]+))?"
    rb"/(?:index|models/(?P<name>.+)/(?P<verb>load|unload))/?"
)


_REGION_PATH = re.compile(
    rb"/v2/(?P<kind>system|cuda)sharedmemory(?:/region/(?P<name>.+))?"
    rb"/(?P<verb>status|register|unregister)/?"
)


@dataclass(frozen=True, slots=True)
class Target:
    """A model, its *version* (``None``: the default one), and the *verb* that follows, or ""."""

    name: str
    version: int | None
    verb: str


def parse_path(raw_path: bytes) -> Target:
    """The target of *raw_path*, decoded once. Raises ``ModelNotFound``, ``VersionNotFound``."""
    match = _MODEL_PATH.fullmatch(raw_path)
    if match is None:
        raise ModelNotFound("the path names no model")
    name = _name(match["name"])
    verb = (match["verb"] or b"").decode("ascii")
    return Target(name, _version(name, match["version"]), verb)


def parse_repository_path(raw_path: bytes) -> Target | None:
    """The target of *raw_path*, whose verb is index, load or unload; ``None`` if it has none.

    An index is of no model, "". Raises ``NotSupported`` where a repository is
    named, but for the index, which Triton gives of all of them anyway.
    """
    match = _REPOSITORY_PATH.fullmatch(raw_path)
    if match is None:
        return None
    if match["name"] is None:
        return Target("", None, "index")
    if match["repository"] is not None:
        raise NotSupported("no repository can be named: ask /v2/repository/models/...")
    return Target(_name(match["name"]), None, match["verb"].decode("ascii"))


def parse_region_path(raw_path: bytes) -> Target | None:
    """The target of *raw_path*, whose verb is such as system/status; ``None`` if it has none.

    Its name is the region's, "" for all of them.
    """
    match = _REGION_PATH.fullmatch(raw_path)
    if match is None or (match["name"] is None and match["verb"] == b"register"):
        return None
    try:
        name = unquote_to_bytes(match["name"] or b"").decode()
    except UnicodeDecodeError:
        raise RegionNotFound("the name of the region in the path is not UTF-8") from None
    return Target(name, None, f"{match['kind'].decode()}/{match['verb'].decode()}")


def _name(quoted: bytes) -> str:
    try:
        return unquote_to_bytes(quoted).decode()
    except UnicodeDecodeError:
        raise ModelNotFound("the name of the model in the path is not UTF-8") from None


def _version(name: str, text: bytes | None) -> int | None:
    if text is None:
        return None
    if not text.isdigit() or text.startswith(b"0"):
        shown = text.decode("ascii", "backslashreplace")
        raise VersionNotFound(
            f"model {name!r} has no version {shown!r}: versions are numbers from 1"
        )
    if len(text) > len(str(HIGHEST_VERSION)) or int(text) > HIGHEST_VERSION:
        shown = text[:_SHOWN].decode("ascii")
        raise VersionNotFound(
            f"model {name!r} has no version {shown!r}: the highest that can be is {HIGHEST_VERSION}"
        )
    return int(text)
