"""SageMaker's variables for a container."""

from pathlib import Path

import pytest

from workbench.contracts.sagemaker.platform import on_sagemaker, single_artifacts
from workbench.errors import LoadFailed, ModelNotFound

PORT = {"SAGEMAKER_BIND_TO_PORT": "8080"}
SEVERAL = {"SAGEMAKER_MULTI_MODEL": "true"}


@pytest.mark.parametrize(("environ", "is_on"), [({}, False), (PORT, True), (SEVERAL, True)])
def test_whether_it_is_an_endpoints_container(environ: dict[str, str], is_on: bool) -> None:
    """By the port that the platform chose, or by the kind of the endpoint."""
    assert on_sagemaker(environ) == is_on


def test_the_model_of_an_endpoint(tmp_path: Path) -> None:
    """It is in the platform's folder; without one the container does not start."""
    environ = {"SAGEMAKER_BASE_DIR": str(tmp_path)}
    with pytest.raises(ModelNotFound):
        single_artifacts(environ)
    (tmp_path / "model" / "code").mkdir(parents=True)
    with pytest.raises(LoadFailed):
        single_artifacts(environ)
    (tmp_path / "model" / "code" / "own.py").touch()
    assert single_artifacts(environ | {"SAGEMAKER_PROGRAM": "own.py"}) == str(tmp_path)
    (tmp_path / "model" / "model.onnx").touch()
    assert single_artifacts(environ) == str(tmp_path)


@pytest.mark.parametrize("more", [SEVERAL, {"WORKBENCH_ARTIFACTS": "/elsewhere"}])
def test_endpoints_whose_models_are_elsewhere(more: dict[str, str], tmp_path: Path) -> None:
    """They need none in the platform's folder."""
    assert single_artifacts({"SAGEMAKER_BASE_DIR": str(tmp_path), **more}) is None
