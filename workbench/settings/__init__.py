"""The options of a server: their declaration, and how given values are read."""

from workbench.settings.parsers import BudgetShare, Folders
from workbench.settings.settings import Settings, declared, variable_name
from workbench.settings.shown import (
    difference,
    differing,
    help_of_settings,
    kept,
    signature_of_settings,
)

__all__ = [
    "BudgetShare",
    "Folders",
    "Settings",
    "declared",
    "difference",
    "differing",
    "help_of_settings",
    "kept",
    "signature_of_settings",
    "variable_name",
]
