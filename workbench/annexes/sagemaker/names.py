"""Converts between the platform's names of models, which may be any text, and the core's."""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

from workbench.errors import InvalidRequest
from workbench.model import PLATFORM_PREFIX

_RESERVED = re.compile("[%/\\\\\0-\x1f\x7f-\x9f\u2028\u2029]|^[.]+$")


def core_name(model_name: str) -> str:
    """The core's name of the model that the platform calls *model_name*.

    Raises ``InvalidRequest`` for what no request could name.
    """
    if not model_name:
        raise InvalidRequest("Parameter model_name is required.")
    try:
        model_name.encode()
    except UnicodeEncodeError:
        raise InvalidRequest("model_name has half of a surrogate pair") from None
    return PLATFORM_PREFIX + _RESERVED.sub(_quoted, model_name)


def _quoted(match: re.Match[str]) -> str:
    return quote(match[0], safe="").replace(".", "%2E")


def platform_name(name: str) -> str | None:
    """The platform's name of the core's model *name*; ``None`` if it has none."""
    if not name.startswith(PLATFORM_PREFIX) or name.count("/") > 1:
        return None
    return unquote(name.removeprefix(PLATFORM_PREFIX))
