"""The list of models by pages: a token is the last name of the page before.

So pages stay right while models are loaded and unloaded: none is listed twice, and none that stays
is missing.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from heapq import nsmallest

from workbench.errors import InvalidRequest

PAGE = 100  # models, unless the platform asks for fewer


@dataclass(frozen=True, slots=True)
class Page:
    """Some *models*, urls by name, and the token of the next page; ``None`` after the last."""

    models: Mapping[str, str]
    next_token: str | None = None


def page_of(models: Mapping[str, str], token: str | None, limit: int) -> Page:
    """The *limit* models, by name, that follow *token*. Raises ``InvalidRequest``."""
    after = "" if token is None else _read(token)
    names = nsmallest(limit + 1, (name for name in models if name > after))
    shown, next_token = names[:limit], None
    if len(names) > limit:
        next_token = base64.urlsafe_b64encode(shown[-1].encode()).decode().rstrip("=")
    return Page({name: models[name] for name in shown}, next_token)


def _read(token: str) -> str:
    try:
        name = base64.b64decode(token + "=" * (-len(token) % 4), b"-_", validate=True).decode()
    except ValueError:
        name = ""
    if not name:
        raise InvalidRequest("next_page_token is not a token of this list")
    return name
