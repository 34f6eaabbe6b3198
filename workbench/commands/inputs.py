"""The options that give a command the inputs of a model: JSON, arrays, images."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import click
import numpy as np

from workbench.commands.options import path_option
from workbench.errors import UsageError, line_of
from workbench.tensor import DATATYPES, Array, Tensor

_JSON_WORDS = ("true", "false", "null")
_NUMPYS = DATATYPES.keys() - {"BF16"}  # the datatypes of numpy

_ONE_OF = "give the inputs by one of --json, --npy and --image"

_INPUTS = (
    click.option(
        "--json",
        "json_text",
        show_default="none",
        help="inputs as JSON, or a file of it, or - for stdin",
    ),
    path_option("--npy", show_default="none", help="inputs in an .npy or .npz file"),
    path_option("--image", show_default="none", help="an image file, as it is"),
)


def reads_inputs(*, required: bool) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the *inputs* that its options tell; if not *required*, perhaps ``None``."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def reading(
            *, json_text: str | None, npy: Path | None, image: Path | None, **given: Any
        ) -> None:
            inputs = _given_inputs(json_text, npy, image)
            if inputs is None and required:
                raise UsageError(_ONE_OF)
            command(inputs=inputs, **given)

        for option in reversed(_INPUTS):
            reading = option(reading)
        return reading

    return decorate


def _given_inputs(json_text: str | None, npy: Path | None, image: Path | None) -> Any:
    """The inputs that the options give; ``None`` without any. Raises ``UsageError``."""
    given = [each for each in (json_text, npy, image) if each is not None]
    if not given:
        return None
    if len(given) > 1:
        raise UsageError(_ONE_OF)
    try:
        if json_text is not None:
            return _from_json(_text_of(json_text))
        if image is not None:
            return image.read_bytes()
        return _from_npy(npy)
    except OSError as error:
        raise UsageError(f"{given[0]}: {error.strerror}") from None
    except (ValueError, TypeError, EOFError, BadZipFile) as error:
        told = line_of(error)
        if "pickle" in told:  # numpy takes whatever has not its magic number for one
            told = "it is no .npy or .npz file of numbers or texts"
        raise UsageError(f"{given[0]} cannot be read: {told}") from None


def _text_of(given: str) -> str:
    if given == "-":
        return sys.stdin.read()
    if given.lstrip()[:1] in ("[", "{", '"') or _is_number(given):
        return given
    path = Path(given)
    if path.suffix or path.is_file():
        return path.read_text("utf-8-sig")
    if given.strip() not in _JSON_WORDS:
        raise UsageError(f"{given!r} is neither JSON nor a file")
    return given


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _from_json(text: str) -> Any:
    value = json.loads(text)
    inputs = value.get("inputs") if isinstance(value, dict) else None
    if not isinstance(inputs, list) or not all(_is_tensor(each) for each in inputs):
        return value
    return {each["name"]: _array(each).reshape(each["shape"]) for each in inputs}


def _array(tensor: Mapping[str, Any]) -> Array:
    """The data of V2's *tensor*, of its datatype; of BF16, numbers."""
    datatype = tensor.get("datatype")
    return Tensor.of(tensor["data"], datatype if datatype in _NUMPYS else None).array


def _is_tensor(entry: object) -> bool:
    return isinstance(entry, dict) and {"name", "shape", "data"} <= entry.keys()


def _from_npy(path: Path | None) -> Any:
    assert path is not None
    with path.open("rb") as file:
        loaded = np.load(file, allow_pickle=False)
        return loaded if isinstance(loaded, np.ndarray) else {name: loaded[name] for name in loaded}
