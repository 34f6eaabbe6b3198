"""The container of a multi-model endpoint: its models, loaded, listed, run and unloaded.

A model that was evicted is in no list and is loaded again by the next request for it, or by a
load of its name; until it is unloaded its name stays. With ``evict="never"``, as on SageMaker,
none is: there is no room then, until the platform unloads one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

from msgspec.structs import replace

from workbench.codecs.payloads.formats import Decoder, Payload, PayloadForm, encode
from workbench.contracts.sagemaker.code import ArtifactCode, code_payload, code_request, is_code
from workbench.contracts.sagemaker.errors import ModelExists
from workbench.contracts.sagemaker.events import TargetNamed
from workbench.contracts.sagemaker.layouts import Artifact, find_artifact
from workbench.contracts.sagemaker.names import core_name, platform_name
from workbench.core import Describe, ServerCore
from workbench.errors import (
    InvalidRequest,
    LoadFailed,
    MemoryExhausted,
    ModelNotFound,
    WaitedTooLong,
)
from workbench.inference import InferRequest, InferResponse
from workbench.model import ModelId, Signature
from workbench.settings.sagemaker import default_accept, script_name

_SINGLE = "model"
_MOST_HEADS = 1024  # that are remembered
_SMALL_NBYTES = 2**16  # a body that takes much less than a millisecond to read


class Container:
    """The models of *core* that the platform loaded, by the platform's names.

    *environ* may have SageMaker's variables. Raises ``SettingError``.
    """

    def __init__(self, core: ServerCore, environ: Mapping[str, str] = os.environ) -> None:
        self.core = core
        self.max_nbytes = core.settings.max_request
        """Of the body of a request, once it is read."""
        chosen = default_accept(environ)
        self.accepts = f"{chosen}, */*;q=0.1" if chosen else ""
        """The Accept of requests that accept anything: first the media type of the variable."""
        self._script = script_name(environ)
        self.asked = lru_cache(_MOST_HEADS)(self.new_asked)
        """As ``new_asked``; that of the last heads is remembered, with what it has found out."""
        self._busy: set[str] = set()  # that are being loaded or unloaded, by the core's names
        self._free = threading.Condition()

    # ── models ──

    def load(self, model_name: str, url: str, target: str = "") -> None:
        """Load the model in the folder *url*; returns when it answers.

        If that fails, nothing of it stays. An event says that it is of the artifact *target*, if
        the platform tells that.

        Raises ``InvalidRequest``, ``ModelExists``, ``ModelNotFound`` where there is no such
        folder, ``LoadFailed``, ``MemoryExhausted`` and others as ``CoreModels.load``.
        """
        name = core_name(model_name)
        taken = ModelExists(f"Model {model_name} is already registered.")
        with self._claimed(name, lambda: name in self.core.status.loaded(), taken):
            if target:
                self.core.events.append(TargetNamed(ModelId(name, 1), target))
            artifact = find_artifact(url, self._script)
            try:
                self._serve(name, artifact, url)
            except BaseException as error:
                if self.core.models.is_added(name):
                    self.core.models.remove(name)
                if isinstance(error, WaitedTooLong):  # for room, which the platform can make
                    raise MemoryExhausted(str(error)) from error
                raise

    @contextmanager
    def _claimed(
        self, name: str, is_refused: Callable[[], bool], refusal: Exception
    ) -> Iterator[None]:
        """Context in which nobody else loads or unloads *name*.

        Raises *refusal* while somebody else does, and if *is_refused* returns True.
        """
        with self._free:
            if name in self._busy or is_refused():
                raise refusal
            self._busy.add(name)
        try:
            yield
        finally:
            with self._free:
                self._busy.discard(name)
                self._free.notify_all()

    def _serve(self, name: str, artifact: Artifact, url: str) -> None:
        core = self.core
        if artifact.code is None:
            core.models.add(name, artifact.path, parts=artifact.parts, url=url)
            core.models.load(name)
            return
        if not core.settings["artifact_code"]:
            raise LoadFailed(
                f"{url} brings code, which is not run: start the server with artifact_code='on' "
                "to run the code of all artifacts"
            )
        code = ArtifactCode(artifact.path, artifact.code, core.settings.max_request)
        core.models.add(name, code.function, url=url)
        core.models.pin(name)  # to evict it would free nothing
        code.load(core.status.gpu(core.status.resolve(name)))

    def unload(self, model_name: str) -> None:
        """Unload the model; returns when its memory is back.

        Running requests are answered first, for some seconds. Raises ``ModelNotFound``.
        """
        name = core_name(model_name)
        missing = ModelNotFound(f"Model not found: {model_name}")
        with self._claimed(name, lambda: not self.core.models.is_added(name), missing):
            self.core.models.remove(name)

    def models(self) -> dict[str, str]:
        """The loaded models, each with its url."""
        loaded, urls = self.core.status.loaded(), self.core.models.added()
        with self._free:
            names = [(name, platform_name(name)) for name in loaded.difference(self._busy)]
        return {called: urls[name] for name, called in names if called and name in urls}

    def url(self, model_name: str) -> str:
        """The url that the model was loaded from. Raises ``ModelNotFound`` if it is not loaded."""
        try:
            return self.models()[model_name]
        except KeyError:
            raise ModelNotFound(f"Model not found: {model_name}") from None

    # ── requests without a model in their path ──

    def only(self) -> str:
        """The core's name of the only model; it is loaded if need be.

        On an endpoint of a single model that is the folder ``model``, where the platform puts it.
        Raises ``InvalidRequest``, and as ``load`` does.
        """
        while True:
            name = self._only()
            with self._free:
                if name not in self._busy:
                    return name
                self._free.wait()

    def _only(self) -> str:
        models = [core_name(each) for each in self.models()] or self.core.status.names()
        folder = self.core.settings["artifacts"]
        if not models and folder is not None and (folder / _SINGLE).is_dir():
            self._bring(_SINGLE, folder / _SINGLE)
            models = (core_name(_SINGLE),)
        if len(models) != 1:
            raise InvalidRequest(
                f"Parameter model_name is required. There are {len(models)} models, and the "
                f"request has no X-Amzn-SageMaker-Target-Model header{self._elsewhere()}"
            )
        return models[0]

    def _elsewhere(self) -> str:
        """Where models of the repository answer, which have no names of the platform's."""
        if self.models() or not self.core.status.names():
            return ""
        return "; models of the repository answer at /endpoints/NAME/invocations"

    def _bring(self, model_name: str, folder: Path) -> None:
        """Load it unless it is loaded. The first request does so, and others wait."""
        name = core_name(model_name)
        while True:
            with self._free:
                self._free.wait_for(lambda: name not in self._busy)
            if self.core.models.is_added(name):
                return
            with suppress(ModelExists):  # another request was first
                self.load(model_name, str(folder))

    # ── inference ──

    def new_asked(self, name: str, content_type: str, accept: str, functions: bool) -> Asked:
        return Asked(name, self.max_nbytes, content_type, accept, functions=functions)

    def invoke_now(self, invocation: Invocation) -> Payload | None:
        """The answer, if it takes no waiting and little time; else ``None``.

        Raises as ``CoreRequests.infer_now``, and for media types.
        """
        self.check_loaded(invocation)
        if not self.may_be_brief(invocation):
            return None
        response = self.core.requests.infer_now(invocation.asked.name, None, invocation.read)
        return None if response is None else invocation.write(response)

    def invoke(self, invocation: Invocation) -> Future[Payload]:
        """The answer; to cancel it ends the request. It raises as ``CoreRequests.start``'s does.

        Raises ``ModelNotFound`` for a model of the platform's that is not loaded, or is being
        loaded or unloaded.
        """
        name, nbytes = invocation.asked.name, len(invocation.body)
        self.check_loaded(invocation)
        return self.core.requests.start(
            name,
            None,
            invocation.read,
            write=invocation.write,
            nbytes=nbytes,
            quick=nbytes <= _SMALL_NBYTES,
        )

    def may_be_brief(self, invocation: Invocation) -> bool:
        """Whether its body can be read in much less than 1 ms."""
        return len(invocation.body) <= _SMALL_NBYTES

    def check_loaded(self, invocation: Invocation) -> None:
        """Raise ``ModelNotFound`` unless the model is there, and nobody loads or unloads it."""
        name = invocation.asked.name
        # one that is not there yet would be loaded by the request, if a load began only now
        if name in self._busy or not (
            self.core.models.is_added(name) or platform_name(name) is None
        ):
            raise ModelNotFound(f"Model not found: {platform_name(name)}")


class Asked:
    """What requests of equal heads ask for: to run the core's model *name*.

    *content_type* and *accept* are as in the headers of these names, JSON if they are empty. Only
    where *functions* is true may functions run for it.
    """

    def __init__(
        self,
        name: str,
        max_nbytes: int,
        content_type: str = "",
        accept: str = "",
        *,
        functions: bool = True,
    ) -> None:
        self.name = name
        self.content_type = content_type
        self.accept = accept
        self.functions = functions
        self._max_nbytes = max_nbytes
        self._decoder: Decoder | None = None

    def decoder(self, signature: Signature) -> Decoder | None:
        """What reads the bodies for a model of that *signature*; ``None`` if its code does."""
        decoder = self._decoder
        if decoder is None or decoder.signature is not signature:
            if is_code(signature):
                return None
            decoder = self._decoder = Decoder(
                self.name, self.content_type, self.accept, signature, self._max_nbytes
            )
        return decoder


class Invocation:
    """One request: what is *asked*, its *body*, and its *headers*, for code that reads them."""

    __slots__ = ("_form", "_headers", "asked", "body")

    def __init__(
        self, asked: Asked, body: bytes, headers: Sequence[tuple[bytes, bytes]] = ()
    ) -> None:
        self.asked = asked
        self.body = body
        self._headers = headers
        self._form: PayloadForm | None = None

    def read(self, describe: Describe) -> InferRequest:
        """The request, for the model that *describe* describes."""
        asked = self.asked
        decoder = asked.decoder(describe())
        if decoder is not None:
            request, self._form = decoder.read(self.body)
        else:
            kinds = asked.content_type, asked.accept
            request = code_request(asked.name, self.body, *kinds, self._headers)
        request.functions = asked.functions
        return request

    def write(self, response: InferResponse) -> Payload:
        form = self._form
        if form is None:
            return code_payload(response)
        if form.v2 is not None and (called := platform_name(self.asked.name)) is not None:
            response = replace(response, model=response.model._replace(name=called))
        return encode(response, form)
