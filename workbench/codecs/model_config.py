"""A model's configuration as the JSON of Triton's ModelConfig message.

Names, order and types of values are those of a real Triton: all defaults are present, integers are
numbers, enums are names. Loading it as a configuration changes nothing.
"""

from __future__ import annotations

import json
from pathlib import Path

from workbench.model import (
    Batching,
    Ensemble,
    FunctionModel,
    ModelConfig,
    ModelSource,
    QueuePolicy,
    Signature,
    Step,
    TensorSpec,
    VersionPolicy,
    WarmUpInput,
    WarmUpSample,
)
from workbench.rows import COLUMNS

JsonObject = dict[str, object]

_UINT64_MAX = 2**64 - 1
_LEVELS = {"basic": -1, "extended": 1, "none": 2}
_BACKENDS = {"onnxruntime_onnx": ("onnxruntime_onnx", "onnxruntime"), "python": ("", "python")}


def describe(
    source: ModelSource, signature: Signature, gpu: int | None, instances: int = 1
) -> JsonObject:
    """The configuration of *source*, completed with the *signature* of its file.

    *dims* are without the batch dimension where max_batch_size is above 0. *gpu* is the number of
    the GPU that files run on; functions may run anywhere. *instances* is how many runs go on at
    once. The names of a matrix's columns are a parameter.
    """
    config = source.config
    is_file, is_function = (isinstance(source.origin, kind) for kind in (Path, FunctionModel))
    platform, backend = _BACKENDS.get(signature.platform, (signature.platform, ""))
    skip = 1 if signature.max_batch_size else 0
    parameters = dict(config.parameters)
    if signature.columns:
        parameters[COLUMNS] = json.dumps(signature.columns)
    return {
        "name": config.name,
        "platform": platform,
        "backend": backend,
        "runtime": "",
        "version_policy": {"all": {}} if is_function else _policy(config.version_policy),
        "max_batch_size": signature.max_batch_size,
        "input": [_input(spec, skip) for spec in signature.inputs.values()],
        "output": [
            _output(spec, skip, config.label_filenames.get(spec.name, ""))
            for spec in signature.outputs.values()
        ],
        "batch_input": [],
        "batch_output": [],
        **({"optimization": _optimization(config)} if is_file else {}),
        **_scheduling(source, signature.max_batch_size),
        "instance_group": [_instance_group(config, gpu, instances)] if is_file else [],
        "default_model_filename": source.origin.name if isinstance(source.origin, Path) else "",
        "cc_model_filenames": {},
        "metric_tags": dict(config.metric_tags),
        "parameters": {key: {"string_value": text} for key, text in parameters.items()},
        "model_warmup": [_sample(sample) for sample in config.warm_up],
        "model_transaction_policy": {
            "decoupled": isinstance(source.origin, FunctionModel) and source.origin.streams
        },
    }


def _policy(policy: VersionPolicy) -> JsonObject:
    if policy.specific:
        return {"specific": {"versions": policy.specific}}
    return {"latest": {"num_versions": policy.latest}} if policy.latest else {"all": {}}


def _optimization(config: ModelConfig) -> JsonObject:
    asked: JsonObject = {}
    if config.engine.optimization != "all":
        asked["graph"] = {"level": _LEVELS[config.engine.optimization]}
    if config.engine.accelerator:
        cuda = {"name": "cuda", "parameters": config.engine.accelerator}
        asked["execution_accelerators"] = {"gpu_execution_accelerator": [cuda]}
    inputs_pinned, outputs_pinned = config.pinned_memory
    return asked | {
        "priority": "PRIORITY_DEFAULT",
        "input_pinned_memory": {"enable": inputs_pinned},
        "output_pinned_memory": {"enable": outputs_pinned},
        "gather_kernel_buffer_threshold": 0,
        "eager_batching": False,
    }


def _reshape(spec: TensorSpec, skip: int) -> JsonObject:
    return {} if spec.reshape is None else {"reshape": {"shape": spec.reshape[skip:]}}


def _input(spec: TensorSpec, skip: int) -> JsonObject:
    return {
        "name": spec.name,
        "data_type": _data_type(spec),
        "format": spec.format or "FORMAT_NONE",
        "dims": spec.shape[skip:],
        **_reshape(spec, skip),
        "is_shape_tensor": False,
        "allow_ragged_batch": False,
        "optional": spec.optional,
        "is_non_linear_format_io": False,
    }


def _output(spec: TensorSpec, skip: int, label_filename: str) -> JsonObject:
    return {
        "name": spec.name,
        "data_type": _data_type(spec),
        "dims": spec.shape[skip:],
        **_reshape(spec, skip),
        "label_filename": label_filename,
        "is_shape_tensor": False,
        "is_non_linear_format_io": False,
    }


def _sample(sample: WarmUpSample) -> JsonObject:
    inputs = {}
    for name, given in sample.inputs.items():
        data: JsonObject = {f"{given.data}_data": True}
        if isinstance(given.data, Path):
            data = {"input_data_file": given.data.name}
        inputs[name] = {"data_type": _data_type(given), "dims": given.shape, **data}
    return {
        "name": sample.name,
        "batch_size": sample.batch_size,
        "inputs": inputs,
        "count": sample.count,
    }


def _data_type(given: TensorSpec | WarmUpInput) -> str:
    return f"TYPE_{'STRING' if given.datatype == 'BYTES' else given.datatype}"


def _scheduling(source: ModelSource, max_batch_size: int) -> JsonObject:
    origin = source.origin
    if isinstance(origin, Ensemble):
        steps = sorted(origin.steps, key=lambda step: step.number)
        return {"ensemble_scheduling": {"step": [_step(step) for step in steps]}}
    if isinstance(origin, FunctionModel):
        return _batching(origin.schedule.batching if origin.schedule else None, max_batch_size)
    batching, config = source.config.batching, source.config
    if batching is None and max_batch_size > config.max_batch_size:  # as Triton completes it
        batching = Batching()
    return _batching(batching, max_batch_size)


def _step(step: Step) -> JsonObject:
    return {
        "model_name": step.model,
        "model_version": -1 if step.version is None else step.version,
        "input_map": step.inputs,
        "output_map": step.outputs,
        "model_namespace": "",
    }


def _batching(batching: Batching | None, max_batch_size: int) -> JsonObject:
    if batching is None:
        return {}
    largest = (max_batch_size,) if max_batch_size else ()
    told: JsonObject = {
        "preferred_batch_size": batching.preferred or largest,
        "max_queue_delay_microseconds": _microseconds(batching.delay_s),
        "preserve_ordering": batching.ordered,
        "priority_levels": batching.levels,
        "default_priority_level": batching.default_level,
        "priority_queue_policy": {
            str(level): _policy_of_queue(policy) for level, policy in batching.policies.items()
        },
    }
    if batching.policy != QueuePolicy():
        told["default_queue_policy"] = _policy_of_queue(batching.policy)
    return {"dynamic_batching": told}


def _policy_of_queue(policy: QueuePolicy) -> JsonObject:
    return {
        "timeout_action": "DELAY" if policy.delays else "REJECT",
        "default_timeout_microseconds": _microseconds(policy.timeout_s),
        "allow_timeout_override": policy.may_override,
        "max_queue_size": policy.most,
    }


def _microseconds(seconds: float) -> int:
    # as a float, the longest time is longer than a field can say
    return min(round(seconds * 1e6), _UINT64_MAX)


def _instance_group(config: ModelConfig, gpu: int | None, instances: int) -> JsonObject:
    """The group that says how many runs of a model's one session go on at once."""
    return {
        "name": config.name,
        "kind": "KIND_CPU" if gpu is None else "KIND_GPU",
        "count": instances,
        "gpus": [] if gpu is None else [gpu],
        "secondary_devices": [],
        "profile": [],
        "passive": False,
        "host_policy": "",
    }
