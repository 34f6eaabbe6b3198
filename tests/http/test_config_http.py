"""Triton's model configuration extension over HTTP, one test a rule, against live servers."""

import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest
from onnx_models import identity
from tritonclient.http import InferenceServerClient

from workbench import Workbench
from workbench.codecs.model_config import describe
from workbench.model import (
    Batching,
    EngineOptions,
    ModelConfig,
    ModelId,
    ModelSource,
    QueuePolicy,
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


# What a Triton prints of a model that asks for nothing.
OPTIMIZATION = {
    "priority": "PRIORITY_DEFAULT",
    "input_pinned_memory": {"enable": True},
    "output_pinned_memory": {"enable": True},
    "gather_kernel_buffer_threshold": 0,
    "eager_batching": False,
}


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


@pytest.mark.parametrize("version", ["", "1"])
def test_config_as_tritonclient_reads_it(server: Workbench, version: str) -> None:
    """Tritonclient gets every key, by Triton's names and in its order, defaults included."""
    with InferenceServerClient(server.url.removeprefix("http://")) as triton:
        config = triton.get_model_config("diabetes", version)
    assert list(config.items()) == [
        ("name", "diabetes"),
        ("platform", "onnxruntime_onnx"),
        ("backend", "onnxruntime"),
        ("runtime", ""),
        ("version_policy", {"latest": {"num_versions": 1}}),
        ("max_batch_size", 0),
        ("input", config["input"]),
        ("output", config["output"]),
        ("batch_input", []),
        ("batch_output", []),
        ("optimization", OPTIMIZATION),
        ("instance_group", config["instance_group"]),
        ("default_model_filename", "model.onnx"),
        ("cc_model_filenames", {}),
        ("metric_tags", {}),
        ("parameters", {}),
        ("model_warmup", []),
        ("model_transaction_policy", {"decoupled": False}),
    ]
    assert [list(tensor.items()) for tensor in config["input"]] == [
        [
            ("name", "features"),
            ("data_type", "TYPE_FP32"),
            ("format", "FORMAT_NONE"),
            ("dims", [-1, 10]),
            ("is_shape_tensor", False),
            ("allow_ragged_batch", False),
            ("optional", False),
            ("is_non_linear_format_io", False),
        ]
    ]
    assert [list(tensor.items()) for tensor in config["output"]] == [
        [
            ("name", "progression"),
            ("data_type", "TYPE_FP32"),
            ("dims", [-1, 1]),
            ("label_filename", ""),
            ("is_shape_tensor", False),
            ("is_non_linear_format_io", False),
        ]
    ]


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


CUDA = {"cudnn_conv_use_max_workspace": "1"}


@pytest.mark.parametrize(
    ("engine", "told"),
    [
        ({}, {}),
        ({"optimization": "none"}, {"graph": {"level": 2}}),
        (
            {"cuda": {**CUDA, "gpu_mem_limit": "1"}, "accelerator": CUDA},
            {
                "execution_accelerators": {
                    "gpu_execution_accelerator": [{"name": "cuda", "parameters": CUDA}]
                }
            },
        ),
    ],
)
def test_config_tells_what_is_optimized(engine: dict[str, Any], told: dict[str, Any]) -> None:
    """What is asked for is told in Triton's words, before Triton's defaults."""
    asked = EngineOptions(**engine)
    config = ModelConfig("m", parameters={"tier": "plain"}, engine=asked)
    source = ModelSource(ModelId("m", 1), config, Path("model.onnx"))
    described = describe(source, Signature("onnxruntime_onnx", {}, {}), None)
    assert described["optimization"] == told | OPTIMIZATION
    assert described["parameters"] == {"tier": {"string_value": "plain"}}


def test_config_tells_batching() -> None:
    """How requests run together is told as it was configured; without it there is no such part."""
    policy = QueuePolicy(9, 0.002, may_override=True, delays=True)
    batching = Batching((2, 4), 0.0015, True, 2, 1, policy, {2: QueuePolicy(1)})
    config = ModelConfig("m", 4, batching=batching)
    source = ModelSource(ModelId("m", 1), config, Path("model.onnx"))
    told: Any = describe(source, Signature("onnxruntime_onnx", {}, {}, 4), None, 3)
    assert told["instance_group"][0]["count"] == 3
    other: dict[str, object] = {"timeout_action": "REJECT", "default_timeout_microseconds": 0}
    assert told["dynamic_batching"] == {
        "preferred_batch_size": (2, 4),
        "max_queue_delay_microseconds": 1500,
        "preserve_ordering": True,
        "priority_levels": 2,
        "default_priority_level": 1,
        "priority_queue_policy": {
            "2": other | {"allow_timeout_override": False, "max_queue_size": 1}
        },
        "default_queue_policy": {
            "timeout_action": "DELAY",
            "default_timeout_microseconds": 2000,
            "allow_timeout_override": True,
            "max_queue_size": 9,
        },
    }
    plain = ModelSource(ModelId("m", 1), ModelConfig("m"), Path("model.onnx"))
    assert "dynamic_batching" not in describe(plain, Signature("onnxruntime_onnx", {}, {}), None)


def test_config_tells_the_defaults_of_batching() -> None:
    """The largest batch is the preferred one by default, and a delay is told to the microsecond."""
    brief = ModelConfig("m", 4, batching=Batching(delay_s=29 / 1e6))
    source = ModelSource(ModelId("m", 1), brief, Path("model.onnx"))
    told = describe(source, Signature("onnxruntime_onnx", {}, {}, 4), None)
    assert told["dynamic_batching"] == {
        "preferred_batch_size": (4,),
        "max_queue_delay_microseconds": 29,
        "preserve_ordering": False,
        "priority_levels": 0,
        "default_priority_level": 0,
        "priority_queue_policy": {},
    }


def test_config_tells_reshapes() -> None:
    """A tensor that has another shape in the model has both, less the batch; others have none."""
    specs = {
        "x": TensorSpec("x", "FP32", (-1, 12), reshape=(-1, 3, 4)),
        "y": TensorSpec("y", "FP32", (-1, 2)),
    }
    source = ModelSource(ModelId("m", 1), ModelConfig("m", 4), Path("model.onnx"))
    told: Any = describe(source, Signature("onnxruntime_onnx", specs, specs, 4), None)
    for what in ("input", "output"):
        x, y = told[what]
        assert (x["dims"], x["reshape"]) == ((12,), {"shape": (3, 4)})
        assert (y["dims"], "reshape" in y) == ((2,), False)


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


def test_config_of_labels(server: Workbench) -> None:
    """An output with labels tells the file that they are in."""
    assert config_of(server, "digits")["output"][0]["label_filename"] == "labels.txt"


def test_config_loads_nothing(sample_models: Path) -> None:
    """The configuration of a model that is not loaded is read from its files."""
    with Workbench(sample_models, device="cpu") as workbench:
        assert config_of(workbench, "wine")["name"] == "wine"
        assert workbench.snapshot().models == ()
