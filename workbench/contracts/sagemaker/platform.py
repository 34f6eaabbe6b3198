"""SageMaker's variables for a container, apart from those that are defaults of settings."""

from __future__ import annotations

from collections.abc import Mapping

from workbench.contracts.sagemaker.layouts import find_artifact
from workbench.settings import variable_name
from workbench.settings.sagemaker import is_multi_model, script_name

BIND_TO_PORT = "SAGEMAKER_BIND_TO_PORT"
_BASE_FOLDER = "/opt/ml"


def on_sagemaker(environ: Mapping[str, str]) -> bool:
    """Whether a process with *environ* was started as the container of an endpoint."""
    return bool(environ.get(BIND_TO_PORT)) or is_multi_model(environ)


def single_artifacts(environ: Mapping[str, str]) -> str | None:
    """The folder in which the platform puts the folder ``model`` of an endpoint of one model.

    ``None`` on multi-model endpoints, or if the variable of the setting names another folder.
    Raises as ``find_artifact`` does if there is no model, so that the endpoint does not start;
    ``SettingError``.
    """
    if is_multi_model(environ) or environ.get(variable_name("artifacts")):
        return None
    folder = environ.get("SAGEMAKER_BASE_DIR") or _BASE_FOLDER
    find_artifact(f"{folder}/model", script_name(environ))
    return folder
