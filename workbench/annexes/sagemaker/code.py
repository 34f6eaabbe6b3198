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
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from inspect import Parameter, signature
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from workbench.annexes.sagemaker.modules import OwnModules
from workbench.annexes.sagemaker.payloads.formats import (
    PayloadForm,
    content_type,
    encode,
    read_arrays,
)
from workbench.annexes.sagemaker.payloads.media import (
    JSON,
    PLAIN,
    choose,
    parse_media_type,
    preferred,
)
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
from workbench.http.reply import Reply
from workbench.inference import InferRequest, InferResponse
from workbench.model import FunctionModel, ModelId, Signature, TensorSpec
from workbench.tensor import Tensor

_MEMORY_OF_FILES = 1.2  # the memory of a model, as a multiple of the size of its files
_TEXTS = (JSON, "text/csv")  # media types that the toolkit decodes for input_fn
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
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")  # RFC 9110, 5.6.2
_VALUE = re.compile(r"[\t\x20-\x7e]*")
_OF_SERVERS = {
    "connection", "content-length", "content-type", "date", "keep-alive", "server", "trailer",
    "transfer-encoding", "upgrade",
}  # fmt: skip
_NOT_TOLD = {"authorization", "cookie"}
_WITH_BODY = {int(each) for each in HTTPStatus if each >= 200} - {204, 205, 304}

_log = logging.getLogger(__name__)

_INPUTS = tuple(TensorSpec(name, "BYTES", (1,)) for name in ("body", "content_type", "accept"))
_OUTPUTS = tuple(TensorSpec(name, "BYTES", (1,)) for name in ("body", "content_type", "head"))


class HandlerContext:
    """The context of a request: its headers, and the status and headers of its answer.

    Its methods are those of SageMaker's toolkit, where a request is number *idx* of a batch; here
    it is number 0, alone. *system_properties* has the model's folder and its GPU.
    """

    def __init__(self, folder: str, gpu_id: int | None) -> None:
        self.system_properties = {"model_dir": folder, "gpu_id": gpu_id}
        self.take({})

    def take(self, headers: Mapping[str, str]) -> None:
        """Begin a request with these *headers*, by names in lower case."""
        told = ((name, value) for name, value in headers.items() if name not in _NOT_TOLD)
        self._request = {
            name: value.encode("latin-1").decode(errors="replace") for name, value in told
        }
        self._answer: dict[str, str] = {}
        self._status = 200

    @property
    def head(self) -> bytes:
        """The status and the headers of the answer, as JSON."""
        return json.dumps([self._status, self._answer]).encode()

    def get_request_header(self, idx: int, key: str) -> str | None:  # noqa: ARG002
        """The header *key* of the request, in whatever case; ``None`` if it has none."""
        return self._request.get(key.lower())

    def get_all_request_header(self, idx: int) -> Mapping[str, str]:  # noqa: ARG002
        return dict(self._request)

    def set_response_header(self, idx: int, key: str, value: object) -> None:  # noqa: ARG002
        """Give the answer a header. Raises ``ValueError`` for what cannot be one."""
        name, text = key.lower(), str(value)
        if name in _OF_SERVERS or not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(text):
            raise ValueError(f"an answer cannot have the header {key[:40]!r}: {text[:40]!r}")
        self._answer[name] = text

    def set_response_status(
        self,
        code: int = 200,
        phrase: str = "",  # noqa: ARG002
        idx: int = 0,  # noqa: ARG002
    ) -> None:
        """Give the answer a status of HTTP. Raises ``ValueError`` for one without a body."""
        if code not in _WITH_BODY:
            raise ValueError(f"an answer cannot have the status {code!r}")
        self._status = code


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
        self._context: HandlerContext | None = None  # once it is loaded
        self._model: Any = None
        self._is_loaded = False
        with _told(script):
            self._hooks = self._found(self._own.import_script(script))
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
        return FunctionModel(self._run, _INPUTS, _OUTPUTS, nbytes, takes=frozenset(("headers",)))

    def load(self, gpu_id: int | None = None) -> None:
        """Call ``model_fn``, whose context names the GPU *gpu_id*; ``None`` on the CPU.

        Raises ``LoadFailed``, ``MemoryExhausted``, ``WaitedTooLong``.
        """
        folder = str(self._folder)
        self._context = HandlerContext(folder, gpu_id)
        with _told(f"model_fn of {folder}"), self._own.importable():
            self._call("pre_model_fn", folder)
            self._model = self._call("model_fn", folder)
            self._call("model_warmup_fn", folder, self._model)
        self._is_loaded = True

    def _call(self, name: str, *given: object) -> Any:
        """The value that the function *name* returns; ``None`` if there is none."""
        return self._hooks[name](*given) if name in self._hooks else None

    def _run(
        self, body: Any, content_type: Any, accept: Any, headers: Mapping[str, str]
    ) -> tuple[list[bytes], list[bytes], list[bytes]]:
        if not self._is_loaded or self._context is None:  # its memory is claimed: it is READY
            raise _StillLoading(f"model_fn of {self._folder} has not returned yet: ask again later")
        media_type, wanted = content_type[0].decode(), accept[0].decode()
        self._context.take(headers)  # of one request at a time
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
        return [_bytes_of(payload)], [answered.encode()], [self._context.head]

    def _read(self, body: Any, content_type: str) -> Any:
        if "input_fn" in self._hooks:
            return self._call("input_fn", body, content_type)
        media_type = parse_media_type(content_type)
        if media_type.name == JSON:
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
        if name == JSON and not is_plain:
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
    """True for the signature of an artifact's code, which takes bodies unparsed."""
    return tuple(signature.inputs.values()) == _INPUTS


def code_request(name: str, body: bytes, content_type: str, accept: str) -> InferRequest:
    """The request for the code of the model *name*."""
    given = body, (content_type or JSON).encode(), preferred(accept).encode()
    inputs = {
        spec.name: Tensor.of([each], "BYTES") for spec, each in zip(_INPUTS, given, strict=True)
    }
    return InferRequest(name, inputs)


def code_reply(response: InferResponse) -> Reply:
    """The reply that the code made. Raises ``RunFailed``."""
    body, kind, head = (tensor.array[0] for tensor in response.outputs.values())
    name = kind.decode("latin-1")
    if not name.isascii() or not name.isprintable():
        raise RunFailed(f"{response.model} answered with an invalid media type: {name[:40]!r}")
    status, headers = json.loads(head)
    more = ((name.encode(), value.encode()) for name, value in headers.items())
    return Reply(status, (*content_type(name), *more), (body,))
