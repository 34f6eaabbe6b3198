"""Configurations as the text of ``config.pbtxt``, and how they get into a model's folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from google.protobuf import json_format, text_format

from workbench.protos import message_class
from workbench.repository.config import CONFIG_FILENAME

BEFORE = f"{CONFIG_FILENAME}.before"

_PORTABLE = (
    "name", "platform", "backend", "max_batch_size", "dynamic_batching", "ensemble_scheduling",
    "metric_tags", "parameters", "model_warmup",
)  # fmt: skip
_OF_TENSORS = ("name", "data_type", "dims", "reshape", "label_filename", "optional")
_IMAGE_DIMS = 3  # with others Triton refuses a format
_OF_OPTIMIZATION = ("graph", "execution_accelerators")


def portable(config: Mapping[str, Any]) -> dict[str, Any]:
    """The part of *config*, as a server gives it, that holds on any machine.

    Left out are defaults, where instances run, the versions that are served, and names of files.
    """
    told = _members(config, _PORTABLE)
    for end in ("input", "output"):
        told[end] = [_tensor(tensor) for tensor in config.get(end, ())]
    if optimization := _members(config.get("optimization", {}), _OF_OPTIMIZATION):
        told["optimization"] = optimization
    return told


def _tensor(tensor: Mapping[str, Any]) -> dict[str, Any]:
    told = _members(tensor, _OF_TENSORS)
    image = tensor.get("format", "FORMAT_NONE") != "FORMAT_NONE"
    if image and len(tensor["dims"]) == _IMAGE_DIMS:
        told["format"] = tensor["format"]
    return told


def _members(told: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """The fields of *told* with these *names* that are not empty."""
    return {name: told[name] for name in names if told.get(name)}


def as_text(config: Mapping[str, Any]) -> str:
    """The members *config* of Triton's ModelConfig, by their names in JSON, as protobuf's text."""
    message: Any = message_class("model_config", "inference.ModelConfig")()
    json_format.Parse(json.dumps(config, default=dict), message)
    text: str = text_format.MessageToString(message)
    return text


def replace_config(folder: Path, text: str) -> Path:
    """Write *text* as the configuration in *folder*; another one stays beside it, as ``BEFORE``."""
    path = folder / CONFIG_FILENAME
    if path.is_file():
        before = path.read_bytes()
        if before == text.encode():
            return path
        (folder / BEFORE).write_bytes(before)
    part = folder / f".{CONFIG_FILENAME}.part"
    part.write_text(text, encoding="utf-8")
    part.replace(path)
    return path
