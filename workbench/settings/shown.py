"""The settings for people: how two differ, and how Python's help shows them."""

from __future__ import annotations

import inspect
from textwrap import TextWrapper

from workbench.nbytes import show_nbytes
from workbench.settings.settings import Settings, declared


def differing(now: Settings, wanted: Settings) -> tuple[str, ...]:
    """The names of the settings in which *now* differs from *wanted*."""
    names = ("repository", *(option.name for option in declared()))
    return tuple(name for name in names if now[name] != wanted[name])


def difference(now: Settings, wanted: Settings) -> str:
    """The settings in which *now* differs: ``"budget is 64.0 MiB, not 32.0 MiB"``."""
    return ", ".join(
        f"{name} is {_shown(now, name)}, not {_shown(wanted, name)}"
        for name in differing(now, wanted)
    )


def kept(now: Settings, fresh: Settings) -> str:
    """The settings of *now* that *fresh* ones would not have: ``"budget 40.0 MiB, evict lfu"``."""
    return ", ".join(f"{name} {_shown(now, name)}" for name in differing(now, fresh))


def _shown(settings: Settings, name: str) -> object:
    value = settings[name]
    if name == "repository":
        return ", ".join(map(str, value)) or None
    if value and any(option.name == name for option in declared() if option.secret):
        return "..."
    is_nbytes = name in ("budget", "max_request") and isinstance(value, int)
    return show_nbytes(value) if is_nbytes else value


def help_of_settings() -> str:
    """A paragraph for each setting, for a docstring."""
    wrapper = TextWrapper(92, " " * 4, " " * 8, break_on_hyphens=False)
    return "\n".join(wrapper.fill(f"{option.name}: {option.help}") for option in declared())


def signature_of_settings() -> inspect.Signature:
    """A *repository*, and each other setting by keyword."""
    parameter = inspect.Parameter
    first = parameter("repository", parameter.POSITIONAL_OR_KEYWORD, default=None)
    settings = [
        parameter(option.name, parameter.KEYWORD_ONLY, default=option.default)
        for option in declared()
    ]
    return inspect.Signature([first, *settings])
