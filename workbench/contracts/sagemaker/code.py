"""A model with code of its own, run as SageMaker's inference toolkit runs it.

``code/inference.py`` has ``model_fn(model_dir)``, and ``transform_fn(model, body, content_type,
accept)``, or ``predict_fn(data, model)`` between ``input_fn(body, content_type)`` and
``output_fn(prediction, accept)``; of these two there are defaults for JSON, CSV and npy.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from workbench.codecs.payloads import (
    PLAIN,
    Payload,
    PayloadForm,
    Received,
    choose,
    encode,
    parse_media_type,
    preferred,
    read_arrays,
)
from workbench.errors import (
    InvalidRequest,
    LoadFailed,
    MemoryExhausted,
    ModelNotReady,
    RunFailed,
    WorkbenchError,
)
from workbench.inference import InferRequest, InferResponse
from workbench.model import FunctionModel, ModelId, Signature, TensorSpec
from workbench.tensor import Tensor

_MEMORY_OF_FILES = 1.2  # the memory of a model, as a multiple of the size of its files
_TEXTS = ("application/json", "text/csv")  # media types that the toolkit decodes for input_fn
_importing = threading.Lock()  # sys.path is shared by all threads

_INPUTS = tuple(TensorSpec(name, "BYTES", (1,)) for name in ("body", "content_type", "accept"))
_OUTPUTS = tuple(TensorSpec(name, "BYTES", (1,)) for name in ("body", "content_type"))


@contextmanager
def _told(what: Path) -> Iterator[None]:
    """Context in which errors of the artifact's code become errors of its model."""
    try:
        yield
    except WorkbenchError:
        raise
    except MemoryError as error:
        raise MemoryExhausted(f"{what} ran out of memory") from error
    except (Exception, SystemExit) as error:
        text = " ".join(str(error).split())
        raise LoadFailed(f"{what} raised {type(error).__name__}: {text}") from error


def _imported(script: Path) -> ModuleType:
    """The module that *script* is.

    What it imports from its own folder is its own too: of two models each has its own helpers.
    """
    folder = str(script.parent)
    spec = importlib.util.spec_from_file_location("inference", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with _importing:
        before = set(sys.modules)
        sys.path.insert(0, folder)
        try:
            spec.loader.exec_module(module)
        finally:
            sys.path.remove(folder)
            for name in set(sys.modules) - before:
                if (getattr(sys.modules[name], "__file__", None) or "").startswith(folder):
                    del sys.modules[name]
    return module


class ArtifactCode:
    """The model in *folder*, run by the *script* in it.

    Raises ``LoadFailed`` where the script fails, or lacks functions.
    """

    def __init__(self, folder: Path, script: Path, max_nbytes: int) -> None:
        self._folder = folder
        self._max_nbytes = max_nbytes
        with _told(script):
            self._module = _imported(script)
        self._model: Any = None
        self._is_loaded = False
        if not hasattr(self._module, "model_fn") or not self._has("transform_fn", "predict_fn"):
            raise LoadFailed(f"{script} must have model_fn, and transform_fn or predict_fn")

    def _has(self, *names: str) -> bool:
        return any(hasattr(self._module, name) for name in names)

    @property
    def function(self) -> FunctionModel:
        """The code as a function model, with an estimate of its memory from its files."""
        files = (path for path in self._folder.rglob("*") if path.is_file())
        nbytes = int(_MEMORY_OF_FILES * sum(path.stat().st_size for path in files))
        return FunctionModel(self._run, _INPUTS, _OUTPUTS, nbytes)

    def load(self) -> None:
        """Call ``model_fn``. Raises ``LoadFailed``, ``MemoryExhausted``."""
        with _told(self._folder / "model_fn"):
            self._model = self._module.model_fn(str(self._folder))
        self._is_loaded = True

    def _run(self, body: Any, content_type: Any, accept: Any) -> tuple[list[bytes], list[bytes]]:
        if not self._is_loaded:  # its memory is claimed, and that makes it READY
            raise ModelNotReady(f"model_fn of {self._folder} has not returned yet: ask again later")
        media_type, wanted = content_type[0].decode(), accept[0].decode()
        given: Any = body[0]
        if parse_media_type(media_type).name in _TEXTS:
            given = given.decode()
        if self._has("transform_fn"):
            made = self._module.transform_fn(self._model, given, media_type, wanted)
        else:
            data = self._read(given, media_type)
            made = self._write(self._module.predict_fn(data, self._model), wanted)
        payload, answered = made if isinstance(made, tuple) else (made, wanted)
        return [payload.encode() if isinstance(payload, str) else bytes(payload)], [
            answered.encode()
        ]

    def _read(self, body: Any, content_type: str) -> Any:
        if self._has("input_fn"):
            return self._module.input_fn(body, content_type)
        media_type = parse_media_type(content_type)
        if media_type.name == "application/json":
            try:
                return np.array(json.loads(body))
            except ValueError as error:
                raise InvalidRequest(f"the request is not an array in JSON: {error}") from None
        data = body.encode() if isinstance(body, str) else body
        return read_arrays(data, media_type, self._max_nbytes)

    def _write(self, prediction: Any, accept: str) -> Any:
        if self._has("output_fn"):
            return self._module.output_fn(prediction, accept)
        name = choose(accept, PLAIN)
        response = InferResponse(ModelId("", 1), {"prediction": Tensor.of(prediction)})
        return b"".join(map(bytes, encode(response, PayloadForm(name)).parts))


def is_code(signature: Signature) -> bool:
    """Whether it is the signature of an artifact's code, which takes bodies unparsed."""
    inputs = signature.inputs
    return len(inputs) == len(_INPUTS) and tuple(inputs.values()) == _INPUTS


def code_request(name: str, received: Received) -> InferRequest:
    """The request for the code of the model *name*."""
    content_type = received.content_type or "application/json"
    given = (received.body, content_type.encode(), preferred(received.accept).encode())
    inputs = {
        spec.name: Tensor.of([each], "BYTES") for spec, each in zip(_INPUTS, given, strict=True)
    }
    return InferRequest(name, inputs)


def code_payload(response: InferResponse) -> Payload:
    """The payload that the code answered."""
    body, content_type = (tensor.array[0] for tensor in response.outputs.values())
    name = content_type.decode("latin-1")
    if not name.isascii() or not name.isprintable():
        raise RunFailed(f"{response.model} answered with an invalid media type: {name[:40]!r}")
    return Payload(name, (body,))
