"""The settings as Python shows them: in the help of what takes them, and behind Tab."""

from __future__ import annotations

import inspect
from dataclasses import MISSING
from textwrap import TextWrapper

from workbench.settings.settings import declared


def help_of_settings() -> str:
    """A paragraph for each setting, for a docstring."""
    wrapper = TextWrapper(92, " " * 4, " " * 8, break_on_hyphens=False)
    return "\n".join(
        wrapper.fill(f"{option.name}: {option.metadata['help']}") for option in declared()
    )


def signature_of_settings() -> inspect.Signature:
    """A *repository*, and each other setting by keyword."""
    parameter = inspect.Parameter
    first = parameter("repository", parameter.POSITIONAL_OR_KEYWORD, default=None)
    settings = [
        parameter(
            option.name,
            parameter.KEYWORD_ONLY,
            default=None if option.default is MISSING else option.default,
        )
        for option in declared()
        if option.name != "repository"
    ]
    return inspect.Signature([first, *settings])
