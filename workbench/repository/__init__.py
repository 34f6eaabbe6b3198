"""The sources of models: folders of files, and Python callables, as ``ModelSource``."""

from workbench.repository.folder import (
    MLFLOW_CURE,
    FolderModel,
    hidden_files,
    is_mlflows,
)
from workbench.repository.one_model import taken_as, too_deep
from workbench.repository.overrides import Override
from workbench.repository.repository import NO_PARTS, ModelRepository

__all__ = [
    "MLFLOW_CURE",
    "NO_PARTS",
    "FolderModel",
    "ModelRepository",
    "Override",
    "hidden_files",
    "is_mlflows",
    "taken_as",
    "too_deep",
]
