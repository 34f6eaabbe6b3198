"""The options of a server: their declaration, and how given values are read."""

from workbench.settings.difference import difference
from workbench.settings.parsers import Folders, Share
from workbench.settings.sagemaker import is_multi_model
from workbench.settings.settings import Settings, declared, variable_name

__all__ = [
    "Folders",
    "Settings",
    "Share",
    "declared",
    "difference",
    "is_multi_model",
    "variable_name",
]
