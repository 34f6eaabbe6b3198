"""Where models come from: folders of files, and Python callables, as ``ModelSource``."""

from workbench.repository.overrides import Override
from workbench.repository.repository import ModelRepository

__all__ = ["ModelRepository", "Override"]
