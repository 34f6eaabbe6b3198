"""Reads the text of a configuration as the file of a model, or its refusal."""

from pathlib import Path

import pytest

from workbench.errors import LoadFailed
from workbench.model import ModelConfig
from workbench.repository.config import read_config


def read(folder: Path, text: str | bytes) -> ModelConfig:
    data = text.encode() if isinstance(text, str) else text
    (folder / "config.pbtxt").write_bytes(data)
    return read_config(folder)


def refusal(folder: Path, text: str | bytes) -> str:
    """The message of the refusal, less the file's path, which it begins with."""
    with pytest.raises(LoadFailed) as caught:
        read(folder, text)
    path = f"{folder / 'config.pbtxt'}: "
    assert str(caught.value).startswith(path)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value).removeprefix(path)
