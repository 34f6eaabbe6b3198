"""The container of a multi-model endpoint: its models, loaded, listed, run and unloaded.

A model that was evicted is in no list and is loaded again by the next request for it, or by a
load of its name; until it is unloaded its name stays. With ``evict="never"``, as on SageMaker,
none is: there is no room then, until the platform unloads one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache

from workbench.annexes.sagemaker.code import ArtifactCode
from workbench.annexes.sagemaker.errors import ModelExists
from workbench.annexes.sagemaker.events import TargetNamed
from workbench.annexes.sagemaker.layouts import Artifact, find_artifact
from workbench.annexes.sagemaker.names import core_name, platform_name
from workbench.annexes.sagemaker.payloads.formats import PayloadRequest
from workbench.annexes.sagemaker.settings import default_accept, script_name
from workbench.core import ServerCore
from workbench.errors import (
    InvalidRequest,
    LoadFailed,
    MemoryExhausted,
    ModelNotFound,
    WaitedTooLong,
)
from workbench.model import ModelId

SINGLE = "model"
"""The folder below the setting ``artifacts`` that has the model of an endpoint of one model."""

_ANY = ("", "*/*")  # of an Accept header
_MOST_HEADS = 1024  # that are remembered
_KNOWN_CHARS = 1024  # characters of a head, beyond which it is not remembered


class Container:
    """The models of *core* that the platform loaded, by the platform's names.

    *environ* may have SageMaker's variables. Raises ``SettingError``.
    """

    def __init__(self, core: ServerCore, environ: Mapping[str, str] = os.environ) -> None:
        self.core = core
        chosen = default_accept(environ)
        self._accept = f"{chosen}, */*;q=0.1" if chosen else ""  # for who accepts anything
        self._script = script_name(environ)
        self._asked = lru_cache(_MOST_HEADS)(PayloadRequest)
        self._busy: set[str] = set()  # that are being loaded or unloaded, by the core's names
        self._lock = threading.Lock()

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
                    raise MemoryExhausted(str(error)) from None
                raise

    @contextmanager
    def _claimed(
        self, name: str, is_refused: Callable[[], bool], refusal: Exception
    ) -> Iterator[None]:
        """Context in which nobody else loads or unloads *name*.

        Raises *refusal* while somebody else does, and if *is_refused* returns True.
        """
        with self._lock:
            if name in self._busy or is_refused():
                raise refusal
            self._busy.add(name)
        try:
            yield
        finally:
            with self._lock:
                self._busy.discard(name)

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
        with self._lock:
            names = [(name, platform_name(name)) for name in loaded.difference(self._busy)]
        return {called: urls[name] for name, called in names if called and name in urls}

    def url(self, model_name: str) -> str:
        """The url that the model was loaded from. Raises ``ModelNotFound`` if it is not loaded."""
        try:
            return self.models()[model_name]
        except KeyError:
            raise ModelNotFound(f"Model not found: {model_name}") from None

    # ── inference ──

    def asked(
        self, name: str, kind: bytes, accept: bytes, *, functions: bool = True
    ) -> PayloadRequest:
        """The object of all requests for the core's model *name* with this Content-Type and Accept.

        That of the last heads is remembered, with what it has found out.
        """
        wanted = accept.decode("latin-1")
        if wanted.strip() in _ANY:
            wanted = self._accept
        is_short = len(name) + len(kind) + len(wanted) <= _KNOWN_CHARS
        find = self._asked if is_short else PayloadRequest
        return find(name, kind.decode("latin-1"), wanted, self.core.settings.max_request, functions)

    def check_loaded(self, name: str) -> None:
        """Raise ``ModelNotFound`` unless the model is there, and nobody loads or unloads it."""
        # one that is not there yet would be loaded by the request, if a load began only now
        if name in self._busy or not (
            self.core.models.is_added(name) or platform_name(name) is None
        ):
            raise ModelNotFound(f"Model not found: {platform_name(name)}")

    def only(self) -> str | None:
        """The core's name of the only model, for requests that name none.

        ``None``: it is the one in the folder ``SINGLE``, and not loaded. Raises ``InvalidRequest``.
        """
        loaded, folder = self.models(), self.core.settings["artifacts"]
        own = [name for name in self.core.status.names() if platform_name(name) is None]
        models = [core_name(each) for each in loaded] or own
        if len(models) == 1:
            return models[0]
        if not models and folder is not None and (folder / SINGLE).is_dir():
            return None
        where = "; models of the repository answer at /endpoints/NAME/invocations"
        raise InvalidRequest(
            f"Parameter model_name is required. There are {len(models)} models, and the request "
            f"has no X-Amzn-SageMaker-Target-Model header{where if models and not loaded else ''}"
        )
