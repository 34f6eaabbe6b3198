"""``mmesh.ModelRuntime``: ModelMesh decides which models this server loads and unloads.

Its capacity and the sizes of models come from the core's ledger, so that both keep the same books.
ModelMesh makes room for a model as it is once loaded: what models need beside that while they load,
and what this process takes later, is in the buffer, which the ledger has and ModelMesh does not.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any
from weakref import WeakValueDictionary

from workbench.annexes.modelmesh.environment import Environment
from workbench.core import ServerCore
from workbench.errors import (
    InvalidRequest,
    LoadFailed,
    MemoryExhausted,
    ModelNotFound,
    RequestStopped,
    WorkbenchError,
)
from workbench.grpc import v2
from workbench.grpc.service import Rpc, RpcHandler, Service, methods_of
from workbench.grpc.status import PLACED
from workbench.model import check_name, is_version
from workbench.nbytes import show_nbytes
from workbench.protos import message_class
from workbench.stop import CancellationToken

NAME = "mmesh.ModelRuntime"
_FILE = "model_runtime"
_MODEL_NBYTES = 2**60  # of a model
_MOST_STEPS = 16  # from folder to folder, until a path goes round in circles
_SETTINGS = "model-settings.json"  # the file that a folder of MLServer has


class _ModelTurn:
    """Lets one load or unload of a model run at a time; *stop* cancels the load in progress."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.stop = CancellationToken()


class ModelMesh:
    """Loads and unloads models of *core* as ModelMesh asks, in *environment*."""

    def __init__(self, core: ServerCore, environment: Environment) -> None:
        self._core = core
        self._environment = environment
        self._turns: WeakValueDictionary[str, _ModelTurn] = WeakValueDictionary()
        self._turning = Lock()
        self._predictions = count()
        self._budget_nbytes = environment.memory_nbytes  # unless a user gives another one
        self._capacity_nbytes = 0  # as ModelMesh knows it
        self._starts = 0  # of ModelMesh, each of which unloads all models
        self._started = 0  # how many of them are through with that

    def service(self) -> Service:
        answers: dict[str, RpcHandler] = {
            "runtimeStatus": self._status,
            "predictModelSize": self._predict,
            "loadModel": self._load,
            "modelSize": self._size,
            "unloadModel": self._unload,
        }
        return Service(NAME, _FILE, methods_of(_FILE, NAME, answers, {}, lambda _: PLACED))

    def _turn(self, model: str) -> _ModelTurn:
        with self._turning:
            return self._turns.setdefault(model, _ModelTurn())

    # ── the runtime ──

    def _status(self, *_: Any) -> Any:
        """The capacity. Unloads all models first: ModelMesh begins with empty books."""
        if not self._core.is_open:
            return {"status": 0}  # STARTING
        self._purge()
        environment = self._environment
        self._capacity_nbytes = 0
        self._fit()
        left_nbytes = self._core.status.snapshot().budget_nbytes - environment.buffer_nbytes
        if left_nbytes <= 0:
            budget = show_nbytes(left_nbytes + environment.buffer_nbytes)
            raise MemoryExhausted(
                f"models may take {budget}, and MEM_BUFFER_BYTES is "
                f"{show_nbytes(environment.buffer_nbytes)}: nothing is left for them"
            )
        self._capacity_nbytes = left_nbytes
        told: Any = message_class(_FILE, "mmesh.RuntimeStatusResponse")(
            status=1,  # READY
            capacityInBytes=left_nbytes,
            maxLoadingConcurrency=max(1, environment.loading_concurrency),
            modelLoadingTimeoutMs=environment.load_timeout_ms,
            defaultModelSizeInBytes=environment.default_nbytes,
            runtimeVersion=environment.version,
            limitModelConcurrency=environment.model_concurrency > 0,
            allowAnyMethod=True,
        )
        for method in v2.NAMED_FIRST:
            told.methodInfos[f"{v2.NAME}/{method}"].idInjectionPath.append(1)
        return told

    def _fit(self) -> None:
        """Let models take what this process leaves of the container's memory now.

        Never less than ModelMesh counts on: it has made room for the next model already.
        """
        memory_nbytes = self._environment.memory_nbytes
        with self._turning:
            settings = self._core.settings
            if memory_nbytes is not None and settings.budget == self._budget_nbytes:
                left_nbytes = memory_nbytes - self._core.status.base_nbytes()
                self._budget_nbytes = max(left_nbytes, self._capacity_nbytes, 1)
                self._core.adjust(replace(settings, budget=self._budget_nbytes))

    def _purge(self) -> None:
        with self._turning:
            self._starts += 1
            turns = list(self._turns.values())
        try:
            for turn in turns:
                turn.stop.set(_started_anew())
            for turn in turns:
                with turn.lock:
                    pass  # its load has ended, and others raise until all is unloaded
            for name in self._core.models.added():
                self._remove(name)
            self._core.models.unload_all()
        finally:
            with self._turning:
                self._started += 1

    # ── a model ──

    def _predict(self, asked: Any, _: Rpc) -> Any:
        """The most memory that the loaded model takes, estimated from its file alone."""
        with suppress(ModelNotFound):
            known = self._core.status.of(asked.modelId).nbytes
            if known:
                return {"sizeInBytes": known}
        path, number = self._path(asked.modelPath), next(self._predictions)
        name = f"modelmesh prediction {number}/{_id_of(asked)}"  # the same model may be asked twice
        self._core.models.add(name, path)
        try:
            need = self._core.models.estimate(name)
            nbytes = need.nbytes - need.loading_nbytes
        except LoadFailed:
            nbytes = self._guess(asked.modelKey)
        finally:
            with suppress(ModelNotFound):
                self._core.models.remove(name)
        return {"sizeInBytes": nbytes}

    def _guess(self, key: str) -> int:
        """The adapters' guess: from the size on disk, if the key has it."""
        with suppress(InvalidRequest):
            on_disk: Any = _key(key).get("disk_size_bytes")
            if type(on_disk) in (int, float) and 0 < on_disk <= _MODEL_NBYTES:
                return int(min(on_disk * self._environment.multiplier, _MODEL_NBYTES))
        return self._environment.default_nbytes

    def _load(self, asked: Any, call: Rpc) -> Any:
        """Load the model, unless it is loaded. Afterwards it is loaded completely or not at all."""
        model, path = _id_of(asked), self._path(asked.modelPath)
        _key(asked.modelKey)
        starts, turn = self._starts, self._turn(model)
        with turn.lock:
            stop = turn.stop = CancellationToken()
            if not starts == self._starts == self._started:
                raise _started_anew()
            call.when_gone(lambda: stop.set(RequestStopped("ModelMesh cancelled the load")))
            if model not in self._core.status.loaded() or self._core.models.added().get(
                model
            ) != str(path):
                try:
                    self._fit()
                    self._core.models.add(model, path, url=str(path))
                    self._core.models.load(model, None, stop)
                except BaseException as error:
                    self._remove(model)
                    if isinstance(error, LoadFailed):  # its status means that nothing was attempted
                        raise WorkbenchError(str(error)) from error
                    raise
            concurrency = self._environment.model_concurrency
            nbytes = self._core.status.of(model).nbytes
            return {"sizeInBytes": nbytes, "maxConcurrency": concurrency}

    def _size(self, asked: Any, _: Rpc) -> Any:
        return {"sizeInBytes": self._core.status.of(asked.modelId).nbytes}

    def _unload(self, asked: Any, _: Rpc) -> None:
        """Returns when the memory is free, also that of a load that could not be ended at once."""
        turn = self._turn(asked.modelId)
        turn.stop.set(RequestStopped("ModelMesh unloads the model"))
        with turn.lock:
            self._remove(asked.modelId)

    def _remove(self, model: str) -> None:
        with suppress(ModelNotFound):
            self._core.models.remove(model, until_gone=True)
        with suppress(ModelNotFound):  # it may be one of the server's own folders
            self._core.models.unload(model, until_gone=True)

    def _path(self, text: str) -> Path:
        """The file or folder at a *modelPath* to serve. Raises ``InvalidRequest``."""
        path = self._environment.root / text
        try:
            if text and path.exists():
                return find_model(path)
        except OSError as error:  # such as a name that is too long, or a device
            raise InvalidRequest(
                f"modelPath {text[:200]!r} is no model: {error.strerror}"
            ) from None
        raise InvalidRequest(f"there is nothing at modelPath {text[:200]!r}")


def _id_of(asked: Any) -> str:
    """The *modelId*, if a model can have it. Raises ``InvalidRequest``: it can never be loaded."""
    try:
        return check_name(asked.modelId)
    except ModelNotFound as error:
        raise InvalidRequest(str(error)) from None


def _started_anew() -> RequestStopped:
    return RequestStopped("ModelMesh has started anew")


def find_model(path: Path, steps: int = _MOST_STEPS) -> Path:
    """The file, or the folder in Triton's layout, of the model in *path*.

    The folders are those that ModelMesh's adapters build: for Triton, for MLServer, and for
    OpenVINO Model Server, and one that holds a single file, whatever its name. Raises
    ``InvalidRequest`` if that leads on for more than so many *steps*.
    """
    if path.is_file():
        return path.resolve()
    if not steps:
        raise InvalidRequest(
            f"{path} leads to no model: each folder in it leads to another; put its model.onnx "
            "into it"
        )
    names = {each.name for each in path.iterdir() if not each.name.startswith(".")}
    entries = [path / name for name in names - {_SETTINGS}]
    if "config.pbtxt" in names or "model.onnx" in names:
        return path
    if _SETTINGS in names:
        uri = _uri(path / _SETTINGS)
        if uri and not path.samefile(path / uri):
            return find_model(path / uri, steps - 1)
    versions = [each for each in entries if is_version(each.name) and each.is_dir()]
    if versions:
        latest = max(versions, key=lambda each: int(each.name))
        return path if (latest / "model.onnx").exists() else find_model(latest, steps - 1)
    files = [each for each in entries if each.suffix == ".onnx"]
    for found in (files, entries):
        if len(found) == 1:
            return find_model(found[0], steps - 1)
    return path  # the core says what is wrong with it


def _uri(file: Path) -> str:
    try:
        settings = json.loads(file.read_text("utf-8"))
        uri = settings.get("parameters", {}).get("uri", "")
    except (OSError, ValueError, AttributeError) as error:
        raise InvalidRequest(f"{file} cannot be read: {error}") from None
    return uri if isinstance(uri, str) and (file.parent / uri).exists() else ""


def _key(text: str) -> dict[str, Any]:
    """The *modelKey*, which may be missing. Raises ``InvalidRequest``."""
    if not text.strip():
        return {}
    try:
        key = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"modelKey is not JSON: {error}") from None
    if not isinstance(key, dict):
        raise InvalidRequest(f"modelKey is not a JSON object: {text[:100]!r}")
    return key
