"""Configurations go from a Triton to this server and back: get, change, load.

Named by the rows of Triton's own suites that failed on a field at its default.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import json_format, text_format
from google.protobuf.message import Message
from onnx_models import identity
from tritonclient.http import InferenceServerClient

from workbench import Workbench
from workbench.errors import InvalidRequest
from workbench.events import OptionIgnored
from workbench.model import ModelId
from workbench.protos import message_class

# As a Triton 2.51 without a GPU prints it: each default is there, each number a number.
TENSOR = {"is_shape_tensor": False, "is_non_linear_format_io": False}
PRINTED: dict[str, Any] = {
    "name": "m",
    "platform": "onnxruntime_onnx",
    "backend": "onnxruntime",
    "runtime": "",
    "version_policy": {"latest": {"num_versions": 1}},
    "max_batch_size": 4,
    "input": [
        {"name": "x", "data_type": "TYPE_FP32", "format": "FORMAT_NONE", "dims": [2], **TENSOR}
        | {"allow_ragged_batch": False, "optional": False}
    ],
    "output": [
        {"name": "y", "data_type": "TYPE_FP32", "dims": [2], "label_filename": "", **TENSOR}
    ],
    "batch_input": [],
    "batch_output": [],
    "optimization": {
        "priority": "PRIORITY_DEFAULT",
        "input_pinned_memory": {"enable": True},
        "output_pinned_memory": {"enable": True},
        "gather_kernel_buffer_threshold": 0,
        "eager_batching": False,
    },
    "dynamic_batching": {
        "preferred_batch_size": [4],
        "max_queue_delay_microseconds": 0,
        "preserve_ordering": False,
        "priority_levels": 0,
        "default_priority_level": 0,
        "priority_queue_policy": {},
    },
    "instance_group": [
        {"name": "m_0", "kind": "KIND_CPU", "count": 2, "gpus": [], "secondary_devices": []}
        | {"profile": [], "passive": False, "host_policy": ""}
    ],
    "default_model_filename": "model.onnx",
    "cc_model_filenames": {},
    "metric_tags": {},
    "parameters": {},
    "model_warmup": [],
    "model_transaction_policy": {"decoupled": False},
}


def model(root: Path, name: str = "m", config: str = "") -> None:
    identity(root / name / "1" / "model.onnx", dims=("n", 2))
    (root / name / "config.pbtxt").write_text(config)


@contextmanager
def served(root: Path, **settings: Any) -> Iterator[tuple[Workbench, InferenceServerClient]]:
    with Workbench(root, device="cpu", **settings) as workbench:
        address = workbench.url.removeprefix("http://")
        with InferenceServerClient(address) as triton:
            yield workbench, triton


def ignored(workbench: Workbench) -> list[Any]:
    """What was said to be ignored."""
    events = (entry.event for entry in workbench.events)
    return [event for event in events if isinstance(event, OptionIgnored)]


def message_of(config: dict[str, Any]) -> Any:
    """Triton's message of *config*, which has no field that the message has not."""
    return json_format.ParseDict(config, message_class("model_config", "inference.ModelConfig")())


def test_printed_by_a_triton_and_loaded_with_a_request(tmp_path: Path) -> None:
    """L0_lifecycle, L0_model_update: what a Triton prints comes back from ``load`` unchanged."""
    model(tmp_path)
    with served(tmp_path) as (workbench, triton):
        triton.load_model("m", config=json.dumps(PRINTED))
        told = triton.get_model_config("m")
        assert list(told) == list(PRINTED)
        told["instance_group"][0]["name"] = "m_0"  # here the group has the model's name
        assert told == PRINTED
        assert not ignored(workbench)


def test_printed_by_a_triton_and_loaded_from_a_file(tmp_path: Path) -> None:
    """What a Triton prints, written to config.pbtxt, is served."""
    model(tmp_path, config=text_format.MessageToString(message_of(PRINTED)))
    with served(tmp_path) as (_, triton):
        assert triton.get_model_config("m")["dynamic_batching"] == PRINTED["dynamic_batching"]


@pytest.mark.parametrize("end", ["input", "output"])
def test_dims_without_the_batch(tmp_path: Path, end: str) -> None:
    """As Triton does, max_batch_size is completed where only one end has dims, those of a row."""
    name = "xy"[end == "output"]
    model(tmp_path, config=f'{end} {{ name: "{name}" data_type: TYPE_FP32 dims: 2 }}')
    with served(tmp_path) as (workbench, triton):
        told = triton.get_model_config("m")
        for key in ("max_batch_size", "input", "output", "dynamic_batching"):
            assert told[key] == PRINTED[key]
        assert triton.get_model_metadata("m")["inputs"][0]["shape"] == [-1, 2]
        rows = np.ones((4, 2), np.float32)
        assert workbench.infer("m", rows).tolist() == rows.tolist()
        with pytest.raises(InvalidRequest, match="batch size 5; at most 4"):
            workbench.infer("m", np.ones((5, 2), np.float32))
        triton.load_model("m", config=json.dumps(told))
        assert triton.get_model_config("m") == told


def test_dims_with_the_batch(tmp_path: Path) -> None:
    """Dims that have the batch are those of the file, with any number of rows."""
    model(tmp_path, config='input { name: "x" data_type: TYPE_FP32 dims: [ -1, 2 ] }')
    with served(tmp_path) as (workbench, triton):
        assert triton.get_model_config("m")["max_batch_size"] == 0
        assert workbench.infer("m", np.ones((5, 2), np.float32)).shape == (5, 2)


def test_a_batch_without_dynamic_batching(tmp_path: Path) -> None:
    """As Triton does, dynamic batching is turned on, unless inputs and outputs are written out."""
    model(tmp_path, config="max_batch_size: 4")
    with served(tmp_path) as (_, triton):
        told = triton.get_model_config("m")
        assert told["dynamic_batching"] == PRINTED["dynamic_batching"]
        del told["dynamic_batching"]
        triton.load_model("m", config=json.dumps(told))
        assert triton.get_model_config("m") == told


PART = """ensemble_scheduling { step { model_name: "m" model_version: -1
    input_map { key: "x" value: "in" } output_map { key: "y" value: "out" } } }
    input { name: "in" data_type: TYPE_FP32 dims: [ -1, 2 ] }
    output { name: "out" data_type: TYPE_FP32 dims: [ -1, 2 ] }"""
BATCHED = """max_batch_size: 8 dynamic_batching {
    preferred_batch_size: [ 2, 4 ] max_queue_delay_microseconds: 29 preserve_ordering: true
    priority_levels: 2 default_priority_level: 1
    default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 2000
        allow_timeout_override: true max_queue_size: 9 }
    priority_queue_policy { key: 2 value { max_queue_size: 1 } } }"""
FULL = """max_batch_size: 8 instance_group { count: 3 }
    version_policy { all {} } metric_tags { key: "team" value: "b" }
    optimization { graph { level: 1 } input_pinned_memory { enable: true } }
    parameters { key: "intra_op_thread_count" value { string_value: "1" } }
    parameters { key: "not_ours" value { string_value: "kept" } }
    model_warmup { name: "w" batch_size: 1 inputs { key: "x"
        value { data_type: TYPE_FP32 dims: 2 zero_data: true } } }"""
TENSORS = """max_batch_size: 4 version_policy { latest { num_versions: 3 } }
    optimization { graph { level: 2 } }
    input { name: "x" data_type: TYPE_FP32 dims: [ 2, 1 ] reshape { shape: [ 2 ] } }
    output { name: "y" data_type: TYPE_FP32 dims: [ 2 ] label_filename: "labels.txt" }"""


def holds(told: Any, said: Any) -> bool:
    """Whether one message, or a list of them, says all that another does."""
    if isinstance(said, Message):
        return all(holds(getattr(told, field.name), value) for field, value in said.ListFields())
    if isinstance(said, str) or not hasattr(said, "__len__"):
        return bool(told == said)
    if hasattr(said, "items"):
        return all(holds(told[key], value) for key, value in said.items())
    return len(told) == len(said) and all(map(holds, told, said))


@pytest.mark.parametrize("config", ["", BATCHED, FULL, TENSORS])
def test_what_is_got_can_be_loaded(tmp_path: Path, config: str) -> None:
    """What the file says is got, and if that is loaded, what is got then is the same."""
    model(tmp_path, config=config)
    (tmp_path / "m" / "labels.txt").write_text("a\nb")
    with served(tmp_path) as (_, triton):
        got = triton.get_model_config("m")
        assert holds(message_of(got), text_format.Parse(config, message_of({})))
        triton.load_model("m", config=json.dumps(got))
        assert triton.get_model_config("m") == got
        got["max_batch_size"] = 0
        got.pop("dynamic_batching", None)
        for each in (*got["input"], *got["output"]):
            each.pop("reshape", None)
            each["dims"] = [-1, 2]
        got["model_warmup"] = []
        triton.load_model("m", config=json.dumps(got))  # changed
        assert triton.get_model_config("m") == got


def test_batching_of_a_model_without_batches_can_be_loaded(tmp_path: Path) -> None:
    """Where max_batch_size is 0 no batch is preferred, so what is got can be loaded as well."""
    model(tmp_path, config="dynamic_batching { }")
    with served(tmp_path) as (_, triton):
        got = triton.get_model_config("m")
        assert got["dynamic_batching"]["preferred_batch_size"] == []
        triton.load_model("m", config=json.dumps(got))
        assert triton.get_model_config("m") == got


def test_the_longest_times_can_be_loaded(tmp_path: Path) -> None:
    """Delays and timeouts as long as their fields can say are got so, and can be loaded."""
    longest = 2**64 - 1
    policy = f"default_queue_policy {{ default_timeout_microseconds: {longest} }}"
    batching = f"max_queue_delay_microseconds: {longest} {policy}"
    model(tmp_path, config=f"max_batch_size: 8 dynamic_batching {{ {batching} }}")
    with served(tmp_path) as (_, triton):
        got = triton.get_model_config("m")
        told = got["dynamic_batching"]
        assert told["max_queue_delay_microseconds"] == longest
        assert told["default_queue_policy"]["default_timeout_microseconds"] == longest
        triton.load_model("m", config=json.dumps(got))
        assert triton.get_model_config("m") == got


def test_what_is_got_of_an_ensemble_can_be_loaded(tmp_path: Path) -> None:
    """An ensemble's configuration comes back unchanged too, foreign parameters included."""
    model(tmp_path)
    foreign = 'parameters { key: "not_ours" value { string_value: "kept" } }'
    (tmp_path / "pipe").mkdir()
    (tmp_path / "pipe" / "config.pbtxt").write_text(PART + foreign)
    with served(tmp_path) as (workbench, triton):
        got = triton.get_model_config("pipe")
        message_of(got)
        triton.load_model("pipe", config=json.dumps(got))
        assert triton.get_model_config("pipe") == got
        told = OptionIgnored(ModelId("pipe", 1), "parameter 'not_ours'", "it has no effect here")
        assert told in ignored(workbench)


@pytest.mark.parametrize("said", [True, False])
def test_pinned_memory_is_told_as_it_was_said(tmp_path: Path, said: bool) -> None:
    """No buffer is pinned here, whatever is said; what is said is kept."""
    switch = f"{{ enable: {str(said).lower()} }}"
    model(tmp_path, config=f"optimization {{ input_pinned_memory {switch} }}")
    with served(tmp_path) as (_, triton):
        told = triton.get_model_config("m")["optimization"]
    assert told["input_pinned_memory"] == {"enable": said}
    assert told["output_pinned_memory"] == {"enable": True}


def test_instances_as_they_are(tmp_path: Path) -> None:
    """The count is how many runs go at once, whether the configuration says so or not."""
    model(tmp_path, "three", "instance_group { count: 2 } instance_group { count: 1 }")
    model(tmp_path, "batched", BATCHED)
    model(tmp_path, "free")
    with served(tmp_path, threads=1) as (workbench, triton):
        counts = {
            name: triton.get_model_config(name)["instance_group"][0]["count"]
            for name in ("three", "batched", "free")
        }
        session = workbench.load("batched")
        assert session is not None
        assert triton.get_model_config("batched")["instance_group"][0]["count"] == counts["batched"]
    assert counts["three"] == 3
    assert counts["batched"] >= 1
    assert counts["free"] > counts["batched"]
