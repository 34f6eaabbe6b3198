"""Media types: what Content-Type and Accept say (RFC 9110)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from workbench.errors import NotAcceptable, UnknownMediaType

JSON = "application/json"
CSV = "text/csv"
NPY = "application/x-npy"
NPZ = "application/x-npz"
JSON_LINES = "application/jsonlines"
TRITON = "application/vnd.sagemaker-triton.binary+json"

PLAIN = (JSON, CSV, NPY, NPZ, JSON_LINES)
"""The media types of arrays alone."""
LIBSVM = "text/libsvm"
WRITTEN = (*PLAIN, TRITON)
"""The media types of answers."""
KNOWN = (*WRITTEN, LIBSVM)
"""The media types of requests."""

ALIASES = {
    "application/x-jsonlines": JSON_LINES,
    "application/jsonl": JSON_LINES,
    "application/x-ndjson": JSON_LINES,
    "text/x-libsvm": LIBSVM,
}
_GONE = {
    "application/octet-stream": f"send {NPY}, or {TRITON};json-header-size=0",
}


@dataclass(frozen=True, slots=True)
class MediaType:
    """A media type by its usual name, in lower case, and its *parameters*."""

    name: str
    parameters: Mapping[str, str] = field(default_factory=dict)


@lru_cache(maxsize=256)  # a client sends the same one all the time
def parse_media_type(text: str) -> MediaType:
    """The media type that *text* is, whatever it is."""
    name, *rest = (part.strip() for part in text.split(";"))
    name = name.lower()
    pairs = (part.partition("=") for part in rest)
    parameters = {key.strip().lower(): value.strip().strip('"') for key, _, value in pairs}
    return MediaType(ALIASES.get(name, name), parameters)


def not_read(name: str) -> UnknownMediaType:
    """The refusal of a body of the media type *name*."""
    cure = _GONE.get(name) or f"these are: {', '.join(KNOWN)}"
    return UnknownMediaType(f"a body of media type {name!r} is not read; {cure}")


@lru_cache(maxsize=256)
def choose(accept: str, offers: tuple[str, ...]) -> str:
    """The first of *offers* among those that an Accept header likes best.

    Raises ``NotAcceptable`` if it allows none.
    """
    if not accept.strip():
        return offers[0]
    ranges = list(_ranges(accept))
    quality = {offer: _quality(offer, ranges) for offer in offers}
    best = max(offers, key=lambda offer: quality[offer])  # the first of equals
    if quality[best] > (0.0, 0):
        return best
    raise NotAcceptable(f"the answer cannot be {accept[:200]!r}: it can be {', '.join(offers)}")


def preferred(accept: str) -> str:
    """The media type that an Accept header likes best; JSON if any will do."""
    ranges = sorted(_ranges(accept), key=lambda each: -each[1])
    return next((name for name, quality in ranges if quality and "*" not in name), JSON)


def _ranges(accept: str) -> Iterator[tuple[str, float]]:
    """Each media range of an Accept header, and its weight from 0 to 1."""
    for part in accept.split(","):
        if part.strip():
            media_type = parse_media_type(part)
            try:
                weight = float(media_type.parameters.get("q", "1"))
            except ValueError:
                weight = 1.0
            yield media_type.name, min(max(weight, 0.0), 1.0)


def _quality(offer: str, ranges: Sequence[tuple[str, float]]) -> tuple[float, int]:
    """The weight of the most specific range that covers *offer*, and how early it stands.

    Of ranges of one weight the first is liked best, as clients mean it.
    """
    kind = offer.partition("/")[0]
    for covering in (offer, f"{kind}/*", "*/*"):
        for index, (name, weight) in enumerate(ranges):
            if name == covering:
                return weight, -index
    return 0.0, -len(ranges)
