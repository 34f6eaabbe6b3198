"""Triton's model configuration extension over HTTP, one test a rule, against live servers."""

import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest
from onnx_models import identity

from workbench import Workbench
from workbench.codecs.model_config import describe
from workbench.model import (
    EngineOptions,
    ModelConfig,
    ModelId,
    ModelSource,
    Signature,
    TensorSpec,
    VersionPolicy,
)

BATCHED = """
max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 format: FORMAT_NCHW dims: [ 3, -1, 8 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ 3, -1, 8 ] }
version_policy { specific { versions: [ 1, 2 ] } }
parameters { key: "image_order" value { string_value: "RGB" } }
"""


def make_model(folder: Path, config: str = "", filename: str = "model.onnx") -> None:
    """A model that copies its images, in versions 1 and 2."""
    for version in ("1", "2"):
        identity(folder / version / filename, dims=("N", 3, "H", 8))
    (folder / "config.pbtxt").write_text(config)


def config_of(workbench: Workbench, model: str) -> dict[str, Any]:
    response = httpx.get(f"{workbench.url}/v2/models/{model}/config")
    assert response.status_code == 200
    config = response.json()
    assert isinstance(config, dict)
    return config


def test_config_of_a_batched_model(tmp_path: Path) -> None:
    """Where max_batch_size is above 0 the dims lack the batch; what is configured is told."""
    make_model(tmp_path / "copy", BATCHED)
    with Workbench(tmp_path, device="cpu") as workbench:
        config = config_of(workbench, "copy")
        assert config == config_of(workbench, "copy/versions/1")
    assert config["max_batch_size"] == 8
    assert config["version_policy"] == {"specific": {"versions": [1, 2]}}
    assert config["parameters"] == {"image_order": {"string_value": "RGB"}}
    (taken,), (given,) = config["input"], config["output"]
    assert (taken["format"], taken["dims"], given["dims"]) == (
        "FORMAT_NCHW",
        [3, -1, 8],
        [3, -1, 8],
    )


def test_config_is_completed_from_the_file(tmp_path: Path) -> None:
    """What the configuration leaves out comes from the file, and its name from the folder."""
    config = 'version_policy { all {} } default_model_filename: "net.onnx"'
    make_model(tmp_path / "copy", config, "net.onnx")
    shutil.copy(tmp_path / "copy" / "1" / "net.onnx", tmp_path / "single.onnx")
    with Workbench(tmp_path, device="cpu") as workbench:
        copy, single = config_of(workbench, "copy"), config_of(workbench, "single")
    assert (copy["name"], copy["version_policy"]) == ("copy", {"all": {}})
    assert (copy["default_model_filename"], single["default_model_filename"]) == (
        "net.onnx",
        "single.onnx",
    )
    assert copy["input"] == single["input"]
    assert (copy["input"][0]["name"], copy["input"][0]["dims"]) == ("x", [-1, 3, -1, 8])


def test_config_of_a_function(server: Workbench) -> None:
    """A function is of the Python backend, without a file, an instance or a policy of versions."""
    config = config_of(server, "echo_bytes")
    assert (config["platform"], config["backend"]) == ("", "python")
    assert (config["default_model_filename"], config["instance_group"]) == ("", [])
    assert config["version_policy"] == {"all": {}}
    assert config["input"][0]["data_type"] == "TYPE_STRING"
    assert config_of(server, "scalar")["input"][0]["dims"] == []


@pytest.mark.parametrize(("gpu", "kind", "gpus"), [(None, "KIND_CPU", []), (3, "KIND_GPU", [3])])
def test_config_tells_the_device(gpu: int | None, kind: str, gpus: list[int]) -> None:
    """A model of a file has one instance, on the device that models run on."""
    source = ModelSource(ModelId("m", 1), ModelConfig("m"), Path("model.onnx"))
    (group,) = describe(source, Signature("onnxruntime_onnx", {}, {}), gpu)["instance_group"]  # type: ignore[misc]
    assert (group["name"], group["kind"], group["count"], group["gpus"]) == ("m", kind, 1, gpus)


def test_config_tells_the_options_of_cuda() -> None:
    """What is asked for of CUDA is told in Triton's words, before Triton's defaults."""
    options = {"cudnn_conv_use_max_workspace": "1"}
    asked = EngineOptions(cuda={**options, "gpu_mem_limit": "1"}, accelerator=options)
    source = ModelSource(ModelId("m", 1), ModelConfig("m", engine=asked), Path("model.onnx"))
    told: Any = describe(source, Signature("onnxruntime_onnx", {}, {}), None)["optimization"]
    accelerators = {"gpu_execution_accelerator": [{"name": "cuda", "parameters": options}]}
    assert next(iter(told.items())) == ("execution_accelerators", accelerators)


def test_config_of_several_latest_versions() -> None:
    """A policy of several versions, and an input that may be left out, are told."""
    taken = TensorSpec("x", "INT64", (-1, 2), optional=True)
    config = ModelConfig("m", version_policy=VersionPolicy(latest=3))
    source = ModelSource(ModelId("m", 1), config, Path("model.onnx"))
    told = describe(source, Signature("onnxruntime_onnx", {"x": taken}, {}, 4), None)
    assert told["version_policy"] == {"latest": {"num_versions": 3}}
    (described,) = told["input"]  # type: ignore[misc]
    assert (described["data_type"], described["dims"], described["optional"]) == (
        "TYPE_INT64",
        (2,),
        True,
    )


def test_config_loads_nothing(sample_models: Path) -> None:
    """The configuration of a model that is not loaded is read from its files."""
    with Workbench(sample_models, device="cpu") as workbench:
        assert config_of(workbench, "wine")["name"] == "wine"
        assert workbench.snapshot().models == ()
