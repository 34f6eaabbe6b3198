"""Where models come from: folders of files, and Python callables, as ``ModelSource``."""

from workbench.repository.folder import FolderModel, hidden_files, too_deep
from workbench.repository.overrides import Override
from workbench.repository.repository import NO_PARTS, ModelRepository

__all__ = ["NO_PARTS", "FolderModel", "ModelRepository", "Override", "hidden_files", "too_deep"]
