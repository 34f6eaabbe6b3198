"""The ``config.pbtxt`` that a tuned model gets."""

from __future__ import annotations

import platform
import time
from pathlib import Path
from typing import Any

from google.protobuf import json_format, text_format

from workbench.bench.variant import Config, Variant
from workbench.protos import message_class

NAME = "config.pbtxt"
BEFORE = "config.pbtxt.before"
_KEPT = ("name", "platform", "backend", "max_batch_size", "input", "output")
_TENSOR = ("name", "data_type", "dims", "label_filename")


def text(sentence: str, evidence: str, own: Config, variant: Variant, folder: Path | None) -> str:
    """The file: *sentence* and *evidence* as comments, then the configuration with *variant*.

    The file in *folder* is taken and changed; without one, what the server tells of its *own*.
    """
    file = folder / NAME if folder else None
    told = {key: own[key] for key in _KEPT if own.get(key)}
    for end in ("input", "output"):
        told[end] = [
            {key: tensor[key] for key in _TENSOR if tensor.get(key)} for tensor in own.get(end, ())
        ]
    written = _parsed(file) if file and file.is_file() else {}
    if "input" in written:  # whose shapes are without a batch, if it names no largest one
        written.setdefault("max_batch_size", 0)
    config = _message(variant.of({**told, **written}))
    date = time.strftime("%Y-%m-%d %H:%M")
    lines = [f"workbench tune, {date}, {platform.machine()}, {platform.system()}", sentence]
    comments = "".join(f"# {line}".rstrip() + "\n" for line in [*lines, *evidence.splitlines()])
    return f"{comments}{text_format.MessageToString(config)}"


def write(folder: Path, changed: str) -> Path:
    """Write the file into *folder*; that which was there stays beside it as ``BEFORE``."""
    path = folder / NAME
    if path.is_file():
        (folder / BEFORE).write_bytes(path.read_bytes())
    part = folder / f".{NAME}.part"
    part.write_text(changed, encoding="utf-8")
    part.replace(path)
    return path


def _message(config: Config) -> Any:
    message: Any = message_class("model_config", "inference.ModelConfig")()
    json_format.ParseDict(dict(config), message)
    return message


def _parsed(file: Path) -> dict[str, Any]:
    message: Any = message_class("model_config", "inference.ModelConfig")()
    text_format.Parse(file.read_text(encoding="utf-8"), message)
    parsed: dict[str, Any] = json_format.MessageToDict(message, preserving_proto_field_name=True)
    return parsed
