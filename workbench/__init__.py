"""A model server inside your notebook: real serving contracts under a real memory budget.

Importing this starts nothing, looks for no GPU and imports no engine.
"""

from __future__ import annotations

import sys

from workbench import errors
from workbench.removed import no_more
from workbench.version import __version__

TYPE_CHECKING = False  # as in typing, which would take most of the time of this import
if TYPE_CHECKING:
    from typing import Any

    from IPython.core.interactiveshell import InteractiveShell

    from workbench.api.workbench import Workbench
    from workbench.objects.hints import (
        BFloat16,
        Bool,
        Float16,
        Float32,
        Float64,
        Int8,
        Int16,
        Int32,
        Int64,
        Text,
        UInt8,
        UInt16,
        UInt32,
        UInt64,
    )

__all__ = [
    "BFloat16",
    "Bool",
    "Float16",
    "Float32",
    "Float64",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "Text",
    "UInt8",
    "UInt16",
    "UInt32",
    "UInt64",
    "Workbench",
    "__version__",
    "load_ipython_extension",
    "unload_ipython_extension",
]
_ERRORS = {name: value for name, value in vars(errors).items() if isinstance(value, type)}


def __getattr__(name: str) -> Any:
    if name == "Workbench":
        from workbench.api.workbench import Workbench

        return Workbench
    if name in __all__:
        from workbench.objects import hints

        return getattr(hints, name)
    if name in _ERRORS:
        return _ERRORS[name]
    if not name.startswith("_") and (module := _names_of_annexes().get(name)):
        from importlib import import_module

        return getattr(import_module(module), name)
    is_from = sys._getframe(1).f_code.co_name == "_handle_fromlist"  # noqa: SLF001
    if gone := no_more(f"error {name}", f"error {name}"):
        raise (ImportError if is_from else AttributeError)(gone)  # else "from" would not say it
    hint = ""
    if not is_from and not name.startswith("_"):  # "from" asks so for each of our modules
        from workbench.spelling import meant

        hint = meant(name, __dir__())
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_ERRORS, *_names_of_annexes()])


def _names_of_annexes() -> dict[str, str]:
    from workbench.annex import annexes

    return {name: module for annex in annexes() for name, module in annex.names.items()}


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register the magics; ``%load_ext workbench`` starts no server."""
    from workbench.notebook.magics import load

    load(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Take the magics away; a running server goes on and is found again."""
    from workbench.notebook.magics import unload

    unload(shell)
