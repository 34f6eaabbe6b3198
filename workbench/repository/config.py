"""``config.pbtxt`` -> ``ModelConfig``, by protobuf's own text parser."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from google.protobuf import text_format

from workbench.errors import LoadFailed, ModelNotSupported, line_of
from workbench.image_forms import PARAMETERS, image_options
from workbench.model import TIER, TIERS, Ensemble, ModelConfig, TensorSpec, VersionPolicy
from workbench.nbytes import show_nbytes
from workbench.protos import message_class
from workbench.repository.engine_options import NAMES, engine_options
from workbench.repository.ensembles import ensemble_of
from workbench.repository.fields import datatype_of, is_plain
from workbench.repository.scheduling import batching_of, instances_of
from workbench.repository.warm_up import warm_up_samples
from workbench.rows import COLUMNS
from workbench.spelling import meant
from workbench.stamps import Stamp, stamps

CONFIG_FILENAME = "config.pbtxt"
_PLATFORMS = ("", "onnxruntime_onnx")
_ENSEMBLE = "ensemble"
_BACKENDS = ("", "onnxruntime")
_SOME = 1000
MOST_NBYTES = 1 << 20  # which takes half a second
_MOST_OF_LABELS_NBYTES = 16 << 20
_TENSOR = dict.fromkeys(("name", "data_type", "dims", "reshape"))
# the honoured fields, and the fields of messages; None: all of them
_HONOURED_OF_ENSEMBLE: dict[str, Any] = {
    **dict.fromkeys(("name", "platform", "max_batch_size", "version_policy", "parameters")),
    "metric_tags": None,
    "response_cache": {"enable": None},
    "input": _TENSOR | dict.fromkeys(("format", "optional")),
    "output": _TENSOR | {"label_filename": None},
    "ensemble_scheduling": {
        "step": dict.fromkeys(("model_name", "model_version", "input_map", "output_map"))
    },
    "model_transaction_policy": {},
}
_HONOURED: dict[str, Any] = {
    **_HONOURED_OF_ENSEMBLE,
    **dict.fromkeys(("backend", "default_model_filename", "model_warmup", "dynamic_batching")),
    "optimization": {
        **dict.fromkeys(("graph", "execution_accelerators")),
        **dict.fromkeys(("input_pinned_memory", "output_pinned_memory")),
        "cuda": {},
    },
    "instance_group": dict.fromkeys(("name", "count", "kind", "gpus")),
}
NO_EFFECT = {
    "instance_group.gpus": True,
    "instance_group.name": False,
    "optimization.input_pinned_memory": False,
    "optimization.output_pinned_memory": False,
    "response_cache.enable": True,
}
"""Fields that are read and change nothing here, and whether the event ``ignored`` names them.

It does not name those that a Triton prints in each configuration.
"""
_NOT_SERVED = {
    **dict.fromkeys(("allow_ragged_batch", "batch_input", "batch_output"), "ragged batches"),
    "decoupled": "models that give several answers, or none, to one request",
    "sequence_batching": "sequences of requests",
}
_LABEL = re.compile("(?!__)[a-zA-Z_][a-zA-Z0-9_]*")
_NO_FIELD = re.compile(r'Message type "(\S+)" has no field named "(\w+)"')
_OUR_LABELS = ("model", "version", "reason", "state", "le")
_CHOICES = {TIER: TIERS}  # parameters, and their allowed values
_PARAMETERS = (*PARAMETERS, *_CHOICES, *NAMES, COLUMNS)


def read_config(folder: Path) -> ModelConfig:
    """The configuration of the model in *folder*; the defaults where it has no file.

    Raises ``LoadFailed`` for a file that does not parse, has a field that is not honoured, or
    contradicts itself.
    """
    return _configured(folder, _parsed(folder))


def _parsed(folder: Path) -> Any:
    """The ModelConfig message in *folder*; ``None`` if it has no file. Raises ``LoadFailed``."""
    path = folder / CONFIG_FILENAME
    try:
        if not path.is_file():
            if path.is_symlink() or (path.exists() and not path.is_dir()):
                raise LoadFailed(f"{path}: it is not a readable file, or a link to nothing")
            return None
        if path.stat().st_size > MOST_NBYTES:
            most = show_nbytes(MOST_NBYTES)
            raise LoadFailed(f"{path}: it has more than the {most} that are read")
        message: Any = message_class("model_config", "inference.ModelConfig")()
        text_format.Parse(path.read_text(encoding="utf-8-sig"), message)
    except text_format.ParseError as error:
        raise LoadFailed(f"{path}: {_with_field_meant(line_of(error))}") from None
    except (ValueError, OSError) as error:  # a number may not fit its field
        raise LoadFailed(f"{path}: {line_of(error)}") from None
    return message


def _with_field_meant(told: str) -> str:
    """The message *told* by the parser; of an unknown field, also the one that was meant."""
    unknown = _NO_FIELD.search(told)
    if unknown is None:
        return told
    message, field = unknown.groups()
    fields = message_class("model_config", message).DESCRIPTOR.fields_by_name
    hint = meant(field, fields)
    return f"{told.removesuffix('.')}{hint}" if hint else told


def _configured(folder: Path, message: Any) -> ModelConfig:
    if message is None:
        return ModelConfig(folder.name)
    try:
        return model_config(folder.name, folder, message)
    except (ValueError, OSError, LoadFailed) as error:
        kind = type(error) if isinstance(error, LoadFailed) else LoadFailed
        raise kind(f"{folder / CONFIG_FILENAME}: {error}") from None


def config_stamp(folder: str) -> Stamp | None:
    """The stamp of the configuration in *folder*; ``None`` if it has none."""
    found = stamps(f"{folder}/{CONFIG_FILENAME}")
    return found[0] if found else None


class ConfigFiles:
    """A cache of configurations, which are read again when their files change; thread-safe.

    If *checks_name*, a configuration must have the name of its folder.
    """

    def __init__(self, *, checks_name: bool = True) -> None:
        self._checks_name = checks_name
        self._known: dict[str, tuple[tuple[Stamp, ...], ModelConfig | LoadFailed]] = {}

    def read(self, folder: str) -> ModelConfig:
        known = self._known.get(folder)
        if known is not None and known[0] == _stamps(folder, known[1]):
            return _good(known[1])
        before = _stamps(folder, None)
        found: ModelConfig | LoadFailed
        try:
            message = _parsed(Path(folder))
        except LoadFailed as error:
            found = error
        else:
            if message is not None and not self._checks_name:
                message.name = ""
            found = _configured(Path(folder), message)
        now = _stamps(folder, found)
        if now is not None and now[:1] == before:  # otherwise it is being written
            self._known[folder] = now, found
        return _good(found)

    def can_skip(self, folder: str) -> bool:
        """True if *folder* has the default version policy, told without parsing its configuration.

        False if that was read before: then it costs nothing to use it.
        """
        if folder in self._known:
            return False
        path = Path(folder, CONFIG_FILENAME)
        if not path.is_file():  # reading a pipe might never end
            return False
        with path.open("rb") as file:
            return b"version_policy" not in file.read(MOST_NBYTES)

    def keep(self, count: int) -> None:
        """Forget configurations, if there are many more than *count*, the number of models."""
        if len(self._known) > 2 * count + _SOME:
            self._known.clear()


def _good(found: ModelConfig | LoadFailed) -> ModelConfig:
    if isinstance(found, LoadFailed):
        raise LoadFailed(str(found))
    return found


def _stamps(folder: str, config: ModelConfig | LoadFailed | None) -> tuple[Stamp, ...] | None:
    """The stamps of the configuration's file, and of the files that it names."""
    names = config.label_filenames.values() if isinstance(config, ModelConfig) else ()
    return stamps(f"{folder}/{CONFIG_FILENAME}", *(f"{folder}/{name}" for name in names))


def model_config(name: str, folder: Path, message: Any) -> ModelConfig:
    """The ModelConfig *message* of the model *name*, whose files are in *folder*.

    Raises ``ValueError``, ``OSError`` and ``LoadFailed`` if it is wrong; ``ModelNotSupported``.
    """
    ensemble = message.platform == _ENSEMBLE or message.HasField("ensemble_scheduling")
    if ensemble:
        found = _check_honoured(message, _HONOURED_OF_ENSEMBLE, "in an ensemble")
    else:
        found = _check_honoured(message, _HONOURED, "here")
    ignored = [f"field {name!r}" for name, told in NO_EFFECT.items() if told and name in found]
    _check(message, name, ensemble=ensemble)
    batched = message.max_batch_size > 0
    parameters = {name: each.string_value for name, each in message.parameters.items()}
    _check_parameters(parameters)
    honoured = PARAMETERS if ensemble else _PARAMETERS
    ignored += [f"parameter {name!r}" for name in sorted(set(parameters).difference(honoured))]
    batching = None
    if message.HasField("dynamic_batching") or _completes_batching(message):
        batching = batching_of(message.dynamic_batching, message.max_batch_size)
    return ModelConfig(
        name,
        message.max_batch_size,
        tuple(_input(tensor, batched) for tensor in message.input),
        tuple(_spec(tensor, batched) for tensor in message.output),
        _version_policy(message.version_policy),
        message.default_model_filename or "model.onnx",
        _labels(folder, message.output),
        parameters,
        {each.name: each.label_filename for each in message.output if each.label_filename},
        engine_options(parameters, message.optimization),
        warm_up_samples(folder, message.model_warmup),
        batching,
        *instances_of(message.instance_group),
        _ensemble(message) if ensemble else None,
        _metric_tags(message.metric_tags),
        tuple(ignored),
        _pinned_memory(message.optimization),
    )


def _completes_batching(message: Any) -> bool:
    """True if Triton turns on dynamic batching: it leaves alone what has its inputs and outputs."""
    return message.max_batch_size > 1 and not (message.input and message.output)


def _pinned_memory(optimization: Any) -> tuple[bool, bool]:
    """True if inputs and outputs may go through pinned memory; by default they may."""
    inputs, outputs = (
        getattr(optimization, name).enable or not optimization.HasField(name)
        for name in ("input_pinned_memory", "output_pinned_memory")
    )
    return inputs, outputs


def _metric_tags(found: Mapping[str, str]) -> Mapping[str, str]:
    """The labels; raises ``ValueError`` for a name that is invalid in Prometheus, or in use."""
    for name in found:
        if not _LABEL.fullmatch(name) or name in _OUR_LABELS:
            raise ValueError(f"metric_tags has {name!r}, which cannot be the name of a label")
    return dict(found)


def _ensemble(message: Any) -> Ensemble:
    inputs, outputs = ([each.name for each in some] for some in (message.input, message.output))
    return ensemble_of(message.ensemble_scheduling, inputs, outputs)


def _check_honoured(
    message: Any, honoured: Mapping[str, Any], where: str, place: str = ""
) -> set[str]:
    """The names of the fields that are set in *message*, below *place*.

    Raises ``ValueError`` for a field that is not *honoured*, and ``ModelNotSupported`` for what
    Triton serves and this server does not.
    """
    found: set[str] = set()
    for descriptor, value in message.ListFields():
        name = place + descriptor.name
        if descriptor.name not in honoured and descriptor.name in _NOT_SERVED:
            what = _NOT_SERVED[descriptor.name]
            raise ModelNotSupported(f"field {name!r} is not honoured {where}: no {what} here")
        if descriptor.name not in honoured:
            raise ValueError(f"field {name!r} is not honoured {where}: leave it out")
        found.add(name)
        within = honoured[descriptor.name]
        if within is not None:
            for each in value if descriptor.is_repeated else (value,):
                found |= _check_honoured(each, within, where, f"{name}.")
    return found


def _check(message: Any, name: str, *, ensemble: bool) -> None:
    if message.name not in ("", name):
        raise ValueError(f"the name {message.name!r} is not that of the folder, {name!r}")
    if ensemble and message.platform not in ("", _ENSEMBLE):
        raise ValueError(f"ensemble_scheduling is of platform ensemble, not {message.platform!r}")
    if not ensemble and message.platform not in _PLATFORMS:
        raise ValueError(_not_served("platform", message.platform))
    if message.backend not in _BACKENDS:
        raise ValueError(_not_served("backend", message.backend))
    if message.max_batch_size < 0:
        raise ValueError(f"max_batch_size {message.max_batch_size} is below 0")
    for tensors in (message.input, message.output):
        names = [tensor.name for tensor in tensors]
        twice = [name for name in names if names.count(name) > 1 and name][:1]
        if twice:
            raise ValueError(f"input or output {twice[0]!r} is declared twice")
    filename = message.default_model_filename
    if filename and not is_plain(filename):
        raise ValueError(f"default_model_filename {filename!r} is not a plain file name")


def _not_served(field: str, value: str) -> str:
    is_code = value == "python"
    cure = "make its code a function, by @wb.model" if is_code else "export the model to ONNX"
    return f"{field} {value!r} is not served here: {cure}"


def _spec(tensor: Any, batched: bool, optional: bool = False) -> TensorSpec:
    if not tensor.name:
        raise ValueError("an input or output has no name")
    datatype = datatype_of(tensor)
    if datatype is None:
        raise ValueError(f"{tensor.name!r} has no data_type")
    if any(dim == 0 or dim < -1 for dim in tensor.dims):
        raise ValueError(f"dims of {tensor.name!r} must be positive, or -1 for any size")
    batch = (-1,) if batched else ()
    reshape = None
    if tensor.HasField("reshape"):
        reshape = batch + _reshape(tensor)
    return TensorSpec(tensor.name, datatype, batch + tuple(tensor.dims), optional, reshape=reshape)


def _reshape(tensor: Any) -> tuple[int, ...]:
    """The shape of *tensor* in the model; raises ``ValueError`` if its size is another."""
    dims, shape = tuple(tensor.dims), tuple(tensor.reshape.shape)
    sizes = [math.prod(dim for dim in each if dim != -1) for each in (dims, shape)]
    if any(dim == 0 or dim < -1 for dim in shape) or sizes[0] != sizes[1]:
        raise ValueError(f"reshape of {tensor.name!r} to {list(shape)} does not fit {list(dims)}")
    if dims.count(-1) != shape.count(-1):
        raise ValueError(
            f"reshape of {tensor.name!r} to {list(shape)} must have as many dims of any size as "
            f"{list(dims)}"
        )
    return shape


def _input(tensor: Any, batched: bool) -> TensorSpec:
    spec = _spec(tensor, batched, tensor.optional)
    if not tensor.format:
        return spec
    value = tensor.DESCRIPTOR.enum_types_by_name["Format"].values_by_number.get(tensor.format)
    if value is None:
        raise ValueError(f"{spec.name!r} has an unknown format, {tensor.format}")
    if len(tensor.dims) != 3 and len(spec.shape) != 4:
        raise ValueError(f"{spec.name!r} has a format, but {len(tensor.dims)} dims instead of 3")
    return replace(spec, format=value.name)


def _check_parameters(parameters: Mapping[str, str]) -> None:
    """Raise ``ValueError`` or ``LoadFailed`` for a value that a known parameter cannot have."""
    image_options(parameters)
    for name, choices in _CHOICES.items():
        if parameters.get(name, choices[0]) not in choices:
            raise ValueError(
                f"parameter {name!r} is {parameters[name]!r}; it must be one of "
                f"{', '.join(choices)}"
            )


def _version_policy(message: Any) -> VersionPolicy:
    match message.WhichOneof("policy_choice"):
        case "all":
            return VersionPolicy(latest=0)
        case "specific":
            if not message.specific.versions:
                raise ValueError("version_policy names no specific version")
            return VersionPolicy(specific=tuple(message.specific.versions))
        case _:
            return VersionPolicy(latest=message.latest.num_versions or 1)


def _labels(folder: Path, outputs: Iterable[Any]) -> Mapping[str, tuple[str, ...]]:
    labels = {}
    for output in outputs:
        filename = output.label_filename
        if not filename:
            continue
        path = folder / filename
        if not is_plain(filename) or not path.is_file():
            raise ValueError(f"label_filename {filename!r} is not a file of the model's folder")
        if path.stat().st_size > _MOST_OF_LABELS_NBYTES:
            most = show_nbytes(_MOST_OF_LABELS_NBYTES)
            raise ValueError(f"label_filename {filename!r} has more than the {most} that are read")
        try:
            text = path.read_text(encoding="utf-8-sig").removesuffix("\n")
            labels[output.name] = tuple(text.split("\n") if text else ())
        except UnicodeDecodeError as error:
            raise ValueError(f"label_filename {filename!r} is not UTF-8: {error.reason}") from None
    return labels
