"""The ``config.pbtxt`` that a tuned model gets."""

from __future__ import annotations

import platform
import time
from pathlib import Path
from typing import Any

from google.protobuf import json_format, text_format

from workbench.bench.variant import Config, Variant
from workbench.protos import message_class
from workbench.repository.config import CONFIG_FILENAME
from workbench.repository.config_text import as_text, portable


def text(sentence: str, evidence: str, own: Config, variant: Variant, folder: Path | None) -> str:
    """The file: *sentence* and *evidence* as comments, then the configuration with *variant*.

    The file in *folder* is taken and changed; without one, what the server tells of its *own*.
    """
    file = folder / CONFIG_FILENAME if folder else None
    written = _parsed(file) if file and file.is_file() else {}
    if "input" in written:  # whose shapes are without a batch, if it names no largest one
        written.setdefault("max_batch_size", 0)
    config = as_text(variant.of({**portable(own), **written}))
    date = time.strftime("%Y-%m-%d %H:%M")
    lines = [f"workbench tune, {date}, {platform.machine()}, {platform.system()}", sentence]
    comments = "".join(f"# {line}".rstrip() + "\n" for line in [*lines, *evidence.splitlines()])
    return comments + config


def _parsed(file: Path) -> dict[str, Any]:
    message: Any = message_class("model_config", "inference.ModelConfig")()
    text_format.Parse(file.read_text(encoding="utf-8"), message)
    parsed: dict[str, Any] = json_format.MessageToDict(message, preserving_proto_field_name=True)
    return parsed
