"""Settings of the annex, and SageMaker's variables for a container."""

import re
from pathlib import Path
from warnings import catch_warnings, simplefilter

import pytest

from workbench import Workbench
from workbench.annexes.sagemaker.settings import (
    default_accept,
    script_name,
    serves,
    single_artifacts,
)
from workbench.errors import LoadFailed, ModelNotFound, SettingError
from workbench.settings import Settings, variable_name

PORT = {"SAGEMAKER_BIND_TO_PORT": "8080"}
SEVERAL = {"SAGEMAKER_MULTI_MODEL": "true"}


@pytest.mark.parametrize(("environ", "is_on"), [({}, False), (PORT, True), (SEVERAL, True)])
def test_whether_it_is_an_endpoints_container(environ: dict[str, str], is_on: bool) -> None:
    """By the port that the platform chose, or by the kind of the endpoint."""
    assert serves({"artifacts": "/a"}, environ) == ({"artifacts": "/a"} if is_on else None)


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


def test_sagemakers_variables_change_defaults() -> None:
    """On a multi-model endpoint nobody is evicted, unless somebody said so."""
    for value, evict in (("true", "never"), ("True", "never"), ("false", "lru"), ("", "lru")):
        assert Settings.of(environ={"SAGEMAKER_MULTI_MODEL": value}).evict == evict
    environ = {"SAGEMAKER_MULTI_MODEL": "true", "WORKBENCH_EVICT": "lfu"}
    assert Settings.of(environ=environ).evict == "lfu"
    assert Settings.of(environ=environ, evict="cost").evict == "cost"


@pytest.mark.parametrize(
    ("variable", "text", "name", "value"),
    [
        ("SAGEMAKER_BIND_TO_PORT", "8123", "port", 8123),
        ("SAGEMAKER_MAX_REQUEST_SIZE", "6553500", "max_request", 6553500),
        ("SAGEMAKER_MAX_PAYLOAD_IN_MB", "7", "max_request", 7 * 2**20),
        ("SAGEMAKER_MODEL_JOB_QUEUE_SIZE", "5", "max_waiting", 5),
        ("SAGEMAKER_MODEL_SERVER_TIMEOUT", "30", "wait", 30.0),
        ("SAGEMAKER_MODEL_SERVER_TIMEOUT_SECONDS", "31", "wait", 31.0),
    ],
)
def test_sagemakers_variables(variable: str, text: str, name: str, value: object) -> None:
    """SageMaker's variables are defaults, which our own variables win over; errors name them."""
    assert getattr(Settings.of(environ={variable: text}), name) == value
    default = getattr(Settings.of(environ={}), name)
    assert getattr(Settings.of(environ={variable: ""}), name) == default
    for wrong in ("no media type nor number", "-1"):
        with pytest.raises(SettingError, match=f"{variable}: "):
            Settings.of(environ={variable: wrong})
    own = {"port": 1, "wait": 1, "max_request": 1, "max_waiting": 1}
    environ = {variable: text, variable_name(name): str(own[name])}
    assert getattr(Settings.of(environ=environ), name) == own[name]


def test_other_ports_are_in_the_platforms_range() -> None:
    """On SageMaker the port of gRPC is in the range that the platform leaves to a container."""
    environ = {"SAGEMAKER_SAFE_PORT_RANGE": "9000-9999"}
    assert Settings.of(environ=environ).grpc_port is None
    assert Settings.of(environ=environ, grpc_port=9000).grpc_port == 9000
    for port in (0, 8999, 10000):
        with pytest.raises(SettingError, match="SAGEMAKER_SAFE_PORT_RANGE, 9000-9999"):
            Settings.of(environ=environ, grpc_port=port)
    with pytest.raises(SettingError, match="is not a range of ports"):
        Settings.of(environ={"SAGEMAKER_SAFE_PORT_RANGE": "all"}, grpc_port=9000)


@pytest.mark.parametrize("value", ["", 7, b"x"])
def test_artifacts_are_a_folder(value: object) -> None:
    """The folder of the artifacts is a path, from / on."""
    assert Settings.of(environ={}, artifacts="a")["artifacts"] == Path.cwd() / "a"
    with pytest.raises(SettingError, match="is not a folder"):
        Settings.of(environ={}, artifacts=value)


@pytest.mark.parametrize("value", ["a/b.py", "..", ".py", "a b"])
def test_a_script_is_a_file_name(value: str) -> None:
    """SAGEMAKER_PROGRAM is the name of a Python file, in no other folder; its suffix may lack."""
    assert script_name({}) == script_name({"SAGEMAKER_PROGRAM": ""}) == "inference.py"
    assert script_name({"SAGEMAKER_PROGRAM": "serve-it"}) == "serve-it.py"
    with pytest.raises(SettingError, match="SAGEMAKER_PROGRAM: "):
        script_name({"SAGEMAKER_PROGRAM": value})


def test_the_default_accept_is_a_media_type() -> None:
    """SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT is one media type, or nothing."""
    name = "SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT"
    assert [default_accept(given) for given in ({}, {name: " a/b "})] == ["", "a/b"]
    with pytest.raises(SettingError, match=f"{name}: "):
        default_accept({name: "no media type"})


def test_artifacts_that_do_not_exist(sample_models: Path, tmp_path: Path) -> None:
    """A start or restart warns of a misspelt folder of artifacts, with the one that was meant."""
    (tmp_path / "artifacts").mkdir()
    told = re.escape(
        f"the folder of the artifacts '{tmp_path / 'artefacts'}' does not exist; did you mean "
        f"'{tmp_path / 'artifacts'}'?"
    )
    with (
        pytest.warns(UserWarning, match=f"^{told}$"),
        Workbench(sample_models, device="cpu", artifacts=tmp_path / "artefacts"),
    ):
        pass
    with Workbench(sample_models, device="cpu") as wb:
        with pytest.warns(UserWarning, match=f"^{told}$") as caught:
            wb.restart(artifacts=tmp_path / "artefacts")
        assert [each.filename for each in caught] == [__file__]
        with catch_warnings():
            simplefilter("error")
            wb.restart(budget="64MiB")  # of what was odd before, nothing more is said
