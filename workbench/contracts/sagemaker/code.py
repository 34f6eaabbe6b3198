"""A model with code of its own, run as SageMaker's inference toolkit runs it.

``code/inference.py`` has ``model_fn(model_dir)``, and ``transform_fn(model, body, content_type,
accept)``, or ``predict_fn(data, model)`` between ``input_fn(body, content_type)`` and
``output_fn(prediction, accept)``; of these two there are defaults for JSON, CSV and npy. Around
``model_fn`` run ``pre_model_fn(model_dir)`` and ``model_warmup_fn(model_dir, model)``. Each may
take a context as one argument more, which has the headers of the request and of its answer.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import Parameter, signature
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from workbench.codecs.payloads.formats import PLAIN, Payload, PayloadForm, encode, read_arrays
from workbench.codecs.payloads.media import choose, parse_media_type, preferred
from workbench.contracts.sagemaker.context import (
    HandlerContext,
    RequestProcessor,
    read_answer,
    request_text,
)
from workbench.contracts.sagemaker.modules import OwnModules
from workbench.errors import (
    InvalidRequest,
    LoadFailed,
    MemoryExhausted,
    ModelNotReady,
    RunFailed,
    WorkbenchError,
    class_and_line_of,
)
from workbench.exhaustion import is_exhaustion
from workbench.inference import InferRequest, InferResponse
from workbench.model import FunctionModel, ModelId, Signature, TensorSpec
from workbench.tensor import Tensor

_MEMORY_OF_FILES = 1.2  # the memory of a model, as a multiple of the size of its files
_TEXTS = ("application/json", "text/csv")  # media types that the toolkit decodes for input_fn
_HOOKS: Mapping[str, int] = {
    "pre_model_fn": 1,
    "model_fn": 1,
    "model_warmup_fn": 2,
    "transform_fn": 4,
    "input_fn": 2,
    "predict_fn": 2,
    "output_fn": 2,
}
"""The functions of a script, and how many arguments each takes without the context."""

_NAMED = (Parameter.KEYWORD_ONLY, Parameter.VAR_KEYWORD)

_log = logging.getLogger(__name__)

_NAMES = ("body", "content_type", "accept", "headers")
_INPUTS = tuple(TensorSpec(name, "BYTES", (1,), optional=name == "headers") for name in _NAMES)
_OUTPUTS = tuple(TensorSpec(name, "BYTES", (1,)) for name in ("body", "content_type", "headers"))


@contextmanager
def _told(what: object) -> Iterator[None]:
    """Context in which errors of the artifact's code become errors of its model."""
    try:
        yield
    except WorkbenchError:
        raise
    except BaseException as error:
        ctrl_c = threading.current_thread() is threading.main_thread()  # which alone gets it
        if isinstance(error, KeyboardInterrupt) and ctrl_c:
            raise
        _log.exception("%s raised", what)
        told = class_and_line_of(error)
        if is_exhaustion(error):
            raise MemoryExhausted(f"{what} ran out of memory: {told}") from error
        if isinstance(error, ModuleNotFoundError):
            told += "; install it for this server, which does not read requirements.txt"
        raise LoadFailed(f"{what} raised {told}") from error


class _StillLoading(ModelNotReady, InvalidRequest):
    """A request came before the model was loaded; no failure of the code, as errors in it are."""


class ArtifactCode:
    """The model in *folder*, run by the *script* in it.

    *max_nbytes*: the most bytes of a body once it is unpacked. Raises ``LoadFailed`` where the
    script fails, or lacks functions.
    """

    def __init__(self, folder: Path, script: Path, max_nbytes: int) -> None:
        self._folder = folder
        self._max_nbytes = max_nbytes
        self._own = OwnModules(script.parent)
        self._context = HandlerContext()
        with _told(script):
            self._hooks = self._found(self._own.import_script(script))
        self._model: Any = None
        self._is_loaded = False
        parts = {"input_fn", "predict_fn", "output_fn"}.intersection(self._hooks)
        if "transform_fn" in self._hooks and parts:
            raise LoadFailed(
                f"{script} has transform_fn and {', '.join(sorted(parts))}: SageMaker's toolkit "
                "takes one or the other"
            )
        if "model_fn" not in self._hooks or not {"transform_fn", "predict_fn"} & set(self._hooks):
            raise LoadFailed(
                f"{script} must have model_fn, and transform_fn or predict_fn: the defaults of "
                "SageMaker's framework containers are not here"
            )

    def _found(self, module: ModuleType) -> dict[str, Callable[..., Any]]:
        found = {name: getattr(module, name, None) for name in _HOOKS}
        return {name: self._hook(each, _HOOKS[name]) for name, each in found.items() if each}

    def _hook(self, function: Callable[..., Any], count: int) -> Callable[..., Any]:
        """*function*; if it takes more than *count* arguments, the context is the last one.

        Those that have to be named are not counted, as the context is not named.
        """
        kinds = [each.kind for each in signature(function).parameters.values()]
        takes_context = sum(kind not in _NAMED for kind in kinds) == count + 1
        return (lambda *given: function(*given, self._context)) if takes_context else function

    @property
    def function(self) -> FunctionModel:
        """The code as a function model, with an estimate of its memory from its files."""
        files = (path for path in self._folder.rglob("*") if path.is_file())
        nbytes = int(_MEMORY_OF_FILES * sum(path.stat().st_size for path in files))
        return FunctionModel(self._run, _INPUTS, _OUTPUTS, nbytes)

    def load(self, gpu_id: int | None = None) -> None:
        """Call ``model_fn``, whose context names the GPU *gpu_id*; ``None`` on the CPU.

        Raises ``LoadFailed``, ``MemoryExhausted``, ``WaitedTooLong``.
        """
        folder = str(self._folder)
        self._context.system_properties = {"model_dir": folder, "gpu_id": gpu_id}
        with _told(f"model_fn of {folder}"), self._own.importable():
            self._call("pre_model_fn", folder)
            self._model = self._call("model_fn", folder)
            self._call("model_warmup_fn", folder, self._model)
        self._is_loaded = True

    def _call(self, name: str, *given: object) -> Any:
        """What the function of that *name* returns; ``None`` if there is none."""
        return self._hooks[name](*given) if name in self._hooks else None

    def _run(
        self, body: Any, content_type: Any, accept: Any, headers: Any = (b"",)
    ) -> tuple[list[bytes], list[bytes], list[bytes]]:
        if not self._is_loaded:  # its memory is claimed, and that makes it READY
            raise _StillLoading(f"model_fn of {self._folder} has not returned yet: ask again later")
        media_type, wanted = content_type[0].decode(), accept[0].decode()
        request = RequestProcessor(headers[0])
        self._context.request_processor = [request]  # of one request at a time
        given: Any = body[0]
        if parse_media_type(media_type).name in _TEXTS:
            try:
                given = given.decode()
            except UnicodeDecodeError as error:
                raise InvalidRequest(f"the request is not UTF-8: {error}") from None
        if "transform_fn" in self._hooks:
            made = self._call("transform_fn", self._model, given, media_type, wanted)
        else:
            data = self._read(given, media_type)
            made = self._write(self._call("predict_fn", data, self._model), wanted)
        payload, answered = made if isinstance(made, tuple) else (made, wanted)
        return [_bytes_of(payload)], [answered.encode()], [request.answer]

    def _read(self, body: Any, content_type: str) -> Any:
        if "input_fn" in self._hooks:
            return self._call("input_fn", body, content_type)
        media_type = parse_media_type(content_type)
        if media_type.name == "application/json":
            try:
                return np.array(json.loads(body))
            except (ValueError, RecursionError) as error:
                raise InvalidRequest(f"the request is not an array in JSON: {error}") from None
        data = body.encode() if isinstance(body, str) else body
        return read_arrays(data, media_type, self._max_nbytes)

    def _write(self, prediction: Any, accept: str) -> Any:
        if "output_fn" in self._hooks:
            return self._call("output_fn", prediction, accept)
        name = choose(accept, PLAIN)
        is_plain = hasattr(prediction, "__array__") and not np.asarray(prediction).dtype.hasobject
        if name == "application/json" and not is_plain:
            return json.dumps(prediction, default=_listed)
        response = InferResponse(ModelId("", 1), {"prediction": Tensor.of(prediction)})
        return b"".join(map(bytes, encode(response, PayloadForm(name)).parts))


def _listed(value: Any) -> Any:
    """An array, or a number of numpy's, for ``json``. Raises ``TypeError`` for anything else."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a prediction with a {type(value).__name__} is not JSON: write output_fn")


def _bytes_of(payload: object) -> bytes:
    """The body that a function returned; what is neither bytes nor text becomes JSON."""
    if isinstance(payload, bytes | bytearray | memoryview):
        return bytes(payload)
    return payload.encode() if isinstance(payload, str) else json.dumps(payload).encode()


def is_code(signature: Signature) -> bool:
    """Whether it is the signature of an artifact's code, which takes bodies unparsed."""
    inputs = signature.inputs
    return len(inputs) == len(_INPUTS) and tuple(inputs.values()) == _INPUTS


def code_request(
    name: str,
    body: bytes,
    content_type: str,
    accept: str,
    headers: Sequence[tuple[bytes, bytes]],
) -> InferRequest:
    """The request for the code of the model *name*."""
    kind = content_type or "application/json"
    given = (body, kind.encode(), preferred(accept).encode(), request_text(headers))
    inputs = {
        spec.name: Tensor.of([each], "BYTES") for spec, each in zip(_INPUTS, given, strict=True)
    }
    return InferRequest(name, inputs)


def code_payload(response: InferResponse) -> Payload:
    """The payload that the code answered."""
    body, content_type, told = (tensor.array[0] for tensor in response.outputs.values())
    status, headers = read_answer(told)
    name = content_type.decode("latin-1")
    if not name.isascii() or not name.isprintable():
        raise RunFailed(f"{response.model} answered with an invalid media type: {name[:40]!r}")
    return Payload(name, (body,), headers, status)
