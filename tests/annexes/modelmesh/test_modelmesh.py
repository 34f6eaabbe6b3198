"""ModelMesh's runtime SPI, with a driver that plays ModelMesh."""

import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_calls import asked, message
from inside import until
from modelmesh_driver import ModelMesh

from doubles import FakeFiles, FakeLoader
from workbench import Workbench
from workbench.annexes.modelmesh.environment import Environment, settings_of
from workbench.annexes.modelmesh.runtime import ModelMesh as Runtime
from workbench.annexes.modelmesh.runtime import find_model
from workbench.core import ServerCore
from workbench.errors import InvalidRequest, LoadFailed, SettingError
from workbench.grpc import servers
from workbench.protos import message_class
from workbench.settings import Settings


class Sizes(dict):  # type: ignore[type-arg]
    """The sizes of models, also by the names that predictions are made under."""

    def __missing__(self, name: str) -> int:
        return self[name.partition("/")[2]]


class Loading(Sizes):
    """The same of what they take only while they load."""

    def get(self, name: str, default: int = 0) -> int:  # type: ignore[override]
        return super().get(name.rpartition("/")[2], default)


OWN_NBYTES = 70  # what the process takes beside its models


class Rig:
    """A runtime whose files are doubles, and its ModelMesh; of *sizes*, *loading* only so long."""

    def __init__(
        self, root: Path, sizes: dict[str, int], loading: dict[str, int], **environ: str
    ) -> None:
        self.root = root
        for name in sizes:
            (root / f"{name}.onnx").touch()
        self.loader = FakeLoader(Sizes(sizes), loading=Loading(loading))
        memory = {"CONTAINER_MEM_REQ_BYTES": str(1100 + OWN_NBYTES), "MEM_BUFFER_BYTES": "100"}
        self.environ = memory | {"DEFAULT_MODELSIZE": "10"} | environ
        given = Settings.of(environ={}, device="cpu", modelmesh="port:0", grpc_port=0)
        self.settings = settings_of(given, self.environ)
        self.restart()

    def restart(self) -> None:
        self.core = ServerCore(self.settings, files=FakeFiles(self.loader))
        self.core.status.base_nbytes = lambda: OWN_NBYTES  # type: ignore[method-assign]
        self.core.open()
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.environ.items():
                patch.setenv(name, value)
            (self.server,) = servers(self.core, "")
        self.server.start()
        self.mesh = ModelMesh(self.server.url, self.server.url)

    def path(self, model: str) -> str:
        return str(self.root / f"{model}.onnx")

    def close(self) -> None:
        for gate in self.loader.gates.values():
            gate.set()
        self.mesh.close()
        self.server.stop()
        self.core.close()

    def check_books(self) -> None:
        """ModelMesh and the ledger say the same, to the byte."""
        now = self.core.status.snapshot()
        assert {model.id.name: model.nbytes for model in now.models} == dict(self.mesh.sizes)
        assert now.claimed_nbytes == now.held_nbytes == self.mesh.used == self.loader.live_nbytes

    def is_loading(self, model: str) -> bool:
        return any(each.id.name == model for each in self.core.status.snapshot().models)


@pytest.fixture
def rig_of(tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    with ExitStack() as stack:

        def made(**given: Any) -> Rig:
            sizes = given.pop("sizes", {"a": 300, "b": 400})
            rig = Rig(tmp_path, sizes, given.pop("loading", {}), **given)
            stack.callback(rig.close)
            return rig

        yield made


@pytest.fixture
def rig(rig_of: Callable[..., Rig]) -> Rig:
    rig = rig_of()
    rig.mesh.poll()
    return rig


def code_of(future: grpc.Future) -> tuple[grpc.StatusCode, str]:
    with pytest.raises((grpc.RpcError, grpc.FutureCancelledError)):
        future.result()
    return future.code(), future.details()


def test_the_status_of_the_runtime(rig_of: Callable[..., Rig]) -> None:
    """What ModelMesh asks at its start comes from the ledger and the adapters' variables."""
    rig = rig_of(
        LOADING_CONCURRENCY="3",
        LOADTIME_TIMEOUT="90000",
        RUNTIME_VERSION="v7",
        LIMIT_PER_MODEL_CONCURRENCY="4",
    )
    status = rig.mesh.poll()
    assert (status.capacityInBytes, status.defaultModelSizeInBytes) == (1000, 10)
    assert (status.maxLoadingConcurrency, status.modelLoadingTimeoutMs) == (3, 90_000)
    assert (status.runtimeVersion, status.limitModelConcurrency) == ("v7", True)
    assert status.allowAnyMethod
    for method in ("ModelInfer", "ModelMetadata", "ModelReady"):
        assert rig.mesh.methods[f"inference.GRPCInferenceService/{method}"] == [1]
    loaded = rig.mesh.ask("loadModel", modelId="a", modelPath=rig.path("a"))
    assert loaded.maxConcurrency == 4


def test_a_runtime_that_is_not_open(rig: Rig) -> None:
    """Before the core is open, the runtime is STARTING."""
    rig.core.close()
    assert rig.mesh.ask("runtimeStatus").status == 0


def test_a_model_from_load_to_unload(rig: Rig) -> None:
    """A model is predicted, loaded, sized, used by its id, and gone when its unload returns."""
    mesh, path = rig.mesh, rig.path("a")
    assert mesh.ask("predictModelSize", modelId="a", modelPath=path).sizeInBytes == 300
    assert mesh.ask("loadModel", modelId="a", modelPath=path, modelKey="{}").sizeInBytes == 300
    assert mesh.ask("modelSize", modelId="a").sizeInBytes == 300
    assert mesh.ask("predictModelSize", modelId="a", modelPath=path).sizeInBytes == 300
    assert b"y" in mesh.infer("a", asked())
    for _ in range(20):  # so that the request would be known where no metadata counts
        assert b"y" in mesh.infer("a", asked(), metadata=True)
    with pytest.raises(grpc.RpcError) as raised:
        mesh.infer("b", asked(), metadata=True)
    assert raised.value.code() is grpc.StatusCode.NOT_FOUND
    mesh.sizes["a"] = 300
    rig.check_books()
    mesh.remove("a")
    rig.check_books()
    for gone in (lambda: mesh.infer("a", asked()), lambda: mesh.ask("modelSize", modelId="a")):
        with pytest.raises(grpc.RpcError) as raised:
            gone()
        assert raised.value.code() is grpc.StatusCode.NOT_FOUND
    mesh.remove("a")  # which is not there: no error
    mesh.remove("never")


@pytest.mark.parametrize("metadata", [False, True])
@pytest.mark.parametrize("method", ["ModelInfer", "ModelMetadata", "ModelConfig"])
def test_a_version_that_nobody_has(rig: Rig, method: str, metadata: bool) -> None:
    """It is INVALID_ARGUMENT, so that ModelMesh does not load the model again.

    Of a model that is not loaded it is NOT_FOUND, as any request.
    """
    rig.mesh.place("a", rig.path("a"))
    call = rig.mesh.channels[1].unary_unary(f"/inference.GRPCInferenceService/{method}")
    prefix = "model_" if method == "ModelInfer" else ""
    for model, code in (("a", "INVALID_ARGUMENT"), ("b", "NOT_FOUND")):
        fields = {f"{prefix}version": "9", f"{prefix}name": "" if metadata else model}
        data = message(f"{method}Request", **fields).SerializeToString()
        with pytest.raises(grpc.RpcError) as raised:
            call(data, metadata=(("mm-model-id", model),) if metadata else ())
        assert raised.value.code().name == code
        assert not raised.value.details().startswith("Model ")  # MLServer's words for a lost model
    rig.check_books()


OTHER_NAMES = {
    "RepositoryModelLoad": {"model_name": "nobody"},
    "SystemSharedMemoryUnregister": {"name": "nobody"},
}


@pytest.mark.parametrize("method", OTHER_NAMES)
def test_other_names_that_nobody_has(rig: Rig, method: str) -> None:
    """NOT_FOUND is for the model of the call: what else its message names has another code."""
    asked = message(f"{method}Request", **OTHER_NAMES[method]).SerializeToString()
    call = rig.mesh.channels[1].unary_unary(f"/inference.GRPCInferenceService/{method}")
    with pytest.raises(grpc.RpcError) as raised:
        call(asked, metadata=(("mm-model-id", "a"),))
    assert raised.value.code() is not grpc.StatusCode.NOT_FOUND


def test_the_health_of_nobody(rig: Rig) -> None:
    """A check of what is no service here is INVALID_ARGUMENT, since any client may send it."""
    asked = message_class("health", "grpc.health.v1.HealthCheckRequest")(service="nobody")
    with pytest.raises(grpc.RpcError) as raised:
        rig.mesh.channels[1].unary_unary("/grpc.health.v1.Health/Check")(asked.SerializeToString())
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_load_twice(rig: Rig) -> None:
    """A model that is loaded is not loaded again; from another path it is."""
    mesh = rig.mesh
    for _ in range(2):
        assert mesh.ask("loadModel", modelId="a", modelPath=rig.path("a")).sizeInBytes == 300
    assert len(rig.loader.loads) == 1
    other = rig.root / "other.onnx"
    other.touch()
    rig.loader.origins["a"] = "other"
    assert mesh.ask("loadModel", modelId="a", modelPath=str(other)).sizeInBytes == 300
    assert len(rig.loader.loads) == 2
    until(lambda: rig.loader.live_nbytes == 300)  # the old one leaves once the new one is there


def test_two_loads_at_once(rig: Rig) -> None:
    """Two loads of one model at once load it once, and both succeed."""
    rig.loader.gates["a"] = threading.Event()
    calls = [rig.mesh.begin("loadModel", modelId="a", modelPath=rig.path("a")) for _ in range(2)]
    until(lambda: rig.is_loading("a"))
    rig.loader.gates["a"].set()
    assert [call.result().sizeInBytes for call in calls] == [300, 300]
    assert len(rig.loader.loads) == 1


@pytest.mark.parametrize("can_be_ended", [True, False])
def test_a_load_that_is_cancelled(rig: Rig, can_be_ended: bool) -> None:
    """After a cancelled load and the unload that follows, the model is not in memory.

    Where the engine cannot be interrupted, the unload returns once it is through.
    """
    loader, gate = rig.loader, threading.Event()
    loader.gates["a"] = gate
    if not can_be_ended:
        loader.unstoppable.add("a")
    load = rig.mesh.begin("loadModel", modelId="a", modelPath=rig.path("a"))
    until(lambda: loader.live_nbytes == 300)
    load.cancel()
    unload = rig.mesh.begin("unloadModel", modelId="a")
    if not can_be_ended:
        with pytest.raises(grpc.FutureTimeoutError):
            unload.result(timeout=0.2)
        assert loader.live_nbytes == 300
        gate.set()
    unload.result(timeout=30)
    rig.check_books()
    assert loader.live_nbytes == 0
    rig.loader.gates.clear()
    rig.mesh.place("a", rig.path("a"))
    rig.check_books()


def test_a_cancelled_load_ends_by_itself(rig: Rig) -> None:
    """The cancellation ends the load, also before ModelMesh asks for the unload."""
    rig.loader.gates["a"] = threading.Event()
    load = rig.mesh.begin("loadModel", modelId="a", modelPath=rig.path("a"))
    until(lambda: rig.loader.live_nbytes == 300)
    load.cancel()
    until(lambda: rig.loader.live_nbytes == 0)


def test_a_restart_of_modelmesh(rig: Rig) -> None:
    """A status call purges what is loaded, and what is loading, before the runtime is READY."""
    mesh, loader = rig.mesh, rig.loader
    mesh.place("a", rig.path("a"))
    loader.gates["b"] = threading.Event()
    load = mesh.begin("loadModel", modelId="b", modelPath=rig.path("b"))
    until(lambda: rig.is_loading("b"))
    mesh.poll()
    rig.check_books()
    assert load.code() is not grpc.StatusCode.OK
    assert loader.live_nbytes == 0


def test_a_load_while_modelmesh_restarts(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the purge is through each load is UNAVAILABLE, and leaves nothing behind."""
    purging, gate, unload_all = threading.Event(), threading.Event(), rig.core.models.unload_all

    def unloading() -> None:
        purging.set()
        gate.wait(30)
        unload_all()

    monkeypatch.setattr(rig.core.models, "unload_all", unloading)
    status = rig.mesh.begin("runtimeStatus")
    purging.wait(30)
    code, told = code_of(rig.mesh.begin("loadModel", modelId="a", modelPath=rig.path("a")))
    assert (code, "started anew" in told) == (grpc.StatusCode.UNAVAILABLE, True)
    gate.set()
    assert status.result().status == 1
    assert rig.loader.live_nbytes == 0
    rig.mesh.place("a", rig.path("a"))


def test_a_restart_of_the_runtime(rig: Rig) -> None:
    """What a runtime that starts anew does not have is NOT_FOUND, so that ModelMesh loads it."""
    rig.mesh.serve("a", rig.path("a"), asked())
    books = dict(rig.mesh.sizes), rig.mesh.methods, rig.mesh.capacity
    rig.close()
    rig.restart()
    rig.mesh.sizes.update(books[0])
    rig.mesh.methods, rig.mesh.capacity = books[1:]
    assert b"y" in rig.mesh.serve("a", rig.path("a"), asked())
    rig.check_books()


def test_an_unload_under_traffic(rig: Rig) -> None:
    """Requests that run are answered before their model leaves; later ones do not find it."""
    mesh = rig.mesh
    mesh.place("a", rig.path("a"))
    codes: set[grpc.StatusCode] = set()
    over = threading.Event()

    def send() -> None:
        while not over.is_set():
            try:
                mesh.infer("a", asked())
            except grpc.RpcError as error:
                codes.add(error.code())

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            mesh.remove("a")
            rig.check_books()
            mesh.place("a", rig.path("a"))
    finally:
        over.set()
    for thread in threads:
        thread.join(30)
    assert codes <= {grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNAVAILABLE}
    rig.check_books()


def test_no_room(rig_of: Callable[..., Rig]) -> None:
    """What does not fit is RESOURCE_EXHAUSTED: nobody is evicted whom ModelMesh believes here."""
    rig = rig_of(sizes={"a": 600, "b": 600, "huge": 2000})
    mesh = rig.mesh
    mesh.poll()
    mesh.place("a", rig.path("a"))
    for model in ("b", "huge"):
        code, _ = code_of(mesh.begin("loadModel", modelId=model, modelPath=rig.path(model)))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        rig.check_books()


def test_a_load_that_fails(rig: Rig) -> None:
    """A load that fails leaves nothing behind, and says why."""
    rig.loader.failures["a"] = LoadFailed("it is broken")
    code, told = code_of(rig.mesh.begin("loadModel", modelId="a", modelPath=rig.path("a")))
    assert (code, "it is broken" in told) == (grpc.StatusCode.INTERNAL, True)
    rig.check_books()
    assert rig.core.models.added() == {}


def test_a_thousand_steps(rig_of: Callable[..., Rig]) -> None:
    """Through 1,000 random steps under a small capacity both books agree, to the byte."""
    chance = random.Random(19)
    sizes = {f"m{number}": chance.randrange(50, 450) for number in range(12)}
    rig = rig_of(sizes=sizes)
    mesh = rig.mesh
    mesh.poll()
    for step in range(1000):
        model = chance.choice(list(sizes))
        path = rig.path(model)
        what = chance.random()
        if what < 0.75:
            assert b"y" in mesh.serve(model, path, asked())
        elif what < 0.9:
            mesh.remove(model)
        elif what < 0.98:
            if model not in mesh.sizes and mesh.used + sizes[model] <= mesh.capacity:
                load = mesh.begin("loadModel", modelId=model, modelPath=path)
                load.cancel()
                mesh.remove(model)
        else:
            mesh.poll()
        rig.check_books()
        assert mesh.used <= mesh.capacity, step


def test_loads_that_modelmesh_has_room_for(rig_of: Callable[..., Rig]) -> None:
    """None is refused, up to three at once, and the process stays within its container.

    Models of 2,400 share a capacity of 1,000; each takes up to the buffer more while it loads.
    """
    chance = random.Random(49)
    kept = {f"m{number}": chance.randrange(50, 350) for number in range(12)}
    loading = {model: chance.randrange(200) for model in kept}
    sizes = {model: kept[model] + loading[model] for model in kept}
    buffer, container_nbytes = {"MEM_BUFFER_BYTES": "200"}, 1200 + OWN_NBYTES
    environ = buffer | {"CONTAINER_MEM_REQ_BYTES": str(container_nbytes)}
    rig = rig_of(sizes=sizes, loading=loading, **environ)
    mesh, gates, begun, count = rig.mesh, rig.loader.gates, dict[str, grpc.Future](), 0
    assert mesh.poll().capacityInBytes == 1000
    for _ in range(1000):
        what, absent = chance.random(), [model for model in kept if model not in mesh.sizes]
        if what < 0.5 and len(begun) < 3:
            model = chance.choice(absent)
            gates[model] = threading.Event()
            load = mesh.begin_load(model, rig.path(model), loading=begun)
            begun |= {model: load} if load is not None else {}
        elif what < 0.8:
            for model in begun:  # any of them may have the room that the others wait for
                gates[model].set()
            for model, load in begun.items():
                mesh.end_load(model, load)
            count += len(begun)
            begun.clear()
        elif there := [model for model in mesh.sizes if model not in begun]:
            mesh.remove(chance.choice(there))
    assert count > 200
    assert rig.loader.peak_nbytes + OWN_NBYTES <= container_nbytes
    assert mesh.known == {model: kept[model] for model in mesh.known}


def test_a_peak_above_the_whole_buffer(rig_of: Callable[..., Rig]) -> None:
    """Such a load is not refused: it begins once nothing else loads, and later ones wait for it."""
    sizes = {"full": 700, "a": 150, "huge": 700, "b": 150}
    rig = rig_of(sizes=sizes, loading={"huge": 600, "a": 50, "b": 50})
    mesh, gates = rig.mesh, rig.loader.gates
    mesh.poll()
    mesh.place("full", rig.path("full"))
    loads = {}
    for model in ("a", "huge", "b"):
        gates[model] = threading.Event()
        loads[model] = mesh.begin_load(model, rig.path(model))
        until(lambda model=model: model in rig.core.models.added())
        until(lambda model=model: rig.core.status.of(model).pending)
    live = {"a": 700 + 150, "huge": 700 + 100 + 700, "b": 700 + 100 + 100 + 150}
    for model, nbytes in live.items():
        until(lambda nbytes=nbytes: rig.loader.live_nbytes == nbytes)
        gates[model].set()
        mesh.end_load(model, loads[model])
    rig.check_books()
    assert rig.loader.peak_nbytes == 700 + 100 + 700


def test_the_process_grows(rig: Rig) -> None:
    """What the process takes later is kept from loads, but never what ModelMesh counts on."""
    rig.mesh.place("a", rig.path("a"))
    for own, budget in ((OWN_NBYTES + 60, 1040), (OWN_NBYTES + 500, 1000)):
        rig.core.status.base_nbytes = lambda own=own: own  # type: ignore[method-assign, misc]
        rig.mesh.remove("a")
        rig.mesh.place("a", rig.path("a"))
        assert rig.core.status.snapshot().budget_nbytes == budget
    rig.core.adjust(replace(rig.core.settings, budget=2000))  # as a user may
    rig.mesh.remove("a")
    rig.mesh.place("a", rig.path("a"))
    assert rig.core.status.snapshot().budget_nbytes == 2000


def test_nothing_is_left_for_models(rig_of: Callable[..., Rig]) -> None:
    """A process that takes all but the buffer says so; ModelMesh asks again."""
    rig = rig_of(CONTAINER_MEM_REQ_BYTES=str(100 + OWN_NBYTES))
    code, told = code_of(rig.mesh.begin("runtimeStatus"))
    assert (code, "MEM_BUFFER_BYTES" in told) == (grpc.StatusCode.RESOURCE_EXHAUSTED, True)
    rig.core.status.base_nbytes = lambda: OWN_NBYTES - 40  # type: ignore[method-assign]
    assert rig.mesh.poll().capacityInBytes == 40


KEYS = {
    "": "no key",
    "{}": "an empty one",
    '{"model_type": "onnx"}': "a type as a string",
    '{"model_type": {"name": "onnx", "version": "1"}, "disk_size_bytes": 7, "news": [1]}': "more",
    '{"schema_path": "/nowhere", "storage_key": null, "disk_size_bytes": "x"}': "odd values",
}


@pytest.mark.parametrize("key", KEYS)
def test_keys_that_are_fine(rig: Rig, key: str) -> None:
    """A key may be missing, and say what this server does not know."""
    path = rig.path("a")
    for method in ("predictModelSize", "loadModel"):
        told = rig.mesh.ask(method, modelId="a", modelType="tf", modelPath=path, modelKey=key)
        assert told.sizeInBytes == 300


@pytest.mark.parametrize("key", ["no JSON", "[1]", '"a"', "{", "[" * 10**5])
def test_keys_that_are_no_json(rig: Rig, key: str) -> None:
    """A key that is no JSON object is INVALID_ARGUMENT; a prediction does without it."""
    call = rig.mesh.begin("loadModel", modelId="a", modelPath=rig.path("a"), modelKey=key)
    code, told = code_of(call)
    assert (code, "modelKey" in told) == (grpc.StatusCode.INVALID_ARGUMENT, True)
    path = rig.path("a")
    assert rig.mesh.ask("predictModelSize", modelId="a", modelPath=path, modelKey=key).sizeInBytes
    rig.check_books()


@pytest.mark.parametrize("path", ["", "nowhere.onnx", "/nowhere", "/dev/null", "a/" * 3000])
def test_paths_that_are_not_there(rig: Rig, path: str) -> None:
    """A path that leads nowhere is INVALID_ARGUMENT, and named."""
    for method in ("predictModelSize", "loadModel"):
        code, told = code_of(rig.mesh.begin(method, modelId="a", modelPath=path))
        assert (code, repr(path[:200]) in told) == (grpc.StatusCode.INVALID_ARGUMENT, True)


@pytest.mark.parametrize("model", ["", "..", "a/../b", "a\0b", "a\nb"])
def test_ids_that_no_model_can_have(rig: Rig, model: str) -> None:
    """They are INVALID_ARGUMENT: after NOT_FOUND, ModelMesh would load the model and ask again."""
    for method in ("predictModelSize", "loadModel"):
        code, told = code_of(rig.mesh.begin(method, modelId=model, modelPath=rig.path("a")))
        assert (code, repr(model) in told) == (grpc.StatusCode.INVALID_ARGUMENT, True)
    assert code_of(rig.mesh.begin("modelSize", modelId=model))[0] is grpc.StatusCode.NOT_FOUND
    rig.mesh.ask("unloadModel", modelId=model)
    rig.check_books()


def test_two_predictions_at_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a prediction leaves another one of the same model alone."""
    asked = {"modelId": "a", "modelPath": rig.path("a")}
    estimate = rig.core.models.estimate

    def beside(name: str) -> int:
        monkeypatch.undo()
        assert rig.mesh.ask("predictModelSize", **asked).sizeInBytes == 300
        return estimate(name)

    monkeypatch.setattr(rig.core.models, "estimate", beside)
    assert rig.mesh.ask("predictModelSize", **asked).sizeInBytes == 300


@pytest.mark.parametrize(
    ("environ", "key", "nbytes"),
    [
        ({}, '{"disk_size_bytes": 100}', 125),
        ({"MODELSIZE_MULTIPLIER": "1.5"}, '{"disk_size_bytes": 100}', 150),
        ({"MODELSIZE_MULTIPLIER": "1e19"}, '{"disk_size_bytes": 100}', 2**60),  # a message's most
        *(({}, key, 10**6) for key in ("{}", "x")),
        *(({}, f'{{"disk_size_bytes": {size}}}', 10**6) for size in ("1e300", "1e400", "true")),
    ],
)
def test_a_guess(rig: Rig, environ: dict[str, str], key: str, nbytes: int) -> None:
    """Of a file that says nothing of its size, the key's is taken as the adapters take it."""
    assert Runtime(rig.core, Environment.of(environ))._guess(key) == nbytes


def test_a_prediction_of_what_is_no_model(tmp_path: Path) -> None:
    """It is a guess."""
    (tmp_path / "a.onnx").write_bytes(b"no model")
    with Workbench(modelmesh="port:0", grpc_port=0) as workbench:
        mesh = ModelMesh(workbench.grpc_url, workbench.grpc_url)
        told = mesh.ask("predictModelSize", modelId="a", modelPath=str(tmp_path / "a.onnx"))
        assert told.sizeInBytes == 10**6
        mesh.close()


# ── a real model, in every layout ──


def versions(root: Path, model: Path, *numbers: str) -> Path:
    for version in numbers or ("1", "12", "9"):
        (root / version).mkdir()
        (root / version / "model.onnx").write_bytes(model.read_bytes())
    return root


def native(root: Path, model: Path) -> Path:
    (root / "config.pbtxt").write_text('backend: "onnxruntime"')
    return versions(root, model, "3")


def named_otherwise(root: Path, model: Path) -> Path:
    (root / "config.pbtxt").write_text('name: "of-the-client" backend: "onnxruntime"')
    return versions(root, model, "1")


def versions_of_other_names(root: Path, model: Path) -> Path:
    for version in ("9", "12"):
        (root / version).mkdir()
    (root / "9" / "mnist.onnx").write_bytes(b"an old one, which is not loaded")
    (root / "12" / "mnist.onnx").symlink_to(model)
    return root


def one_file(root: Path, model: Path) -> Path:
    (root / "_model").symlink_to(model)
    return root


def one_folder(root: Path, model: Path) -> Path:
    (root / "model").mkdir()
    (root / "model" / "mnist.onnx").symlink_to(model)
    (root / "model" / "labels.txt").touch()
    return root


def mlserver(root: Path, model: Path) -> Path:
    (root / "mnist").symlink_to(model)
    settings = {"name": "id", "parameters": {"uri": str(root / "mnist")}}
    (root / "model-settings.json").write_text(json.dumps(settings))
    return root


def linked(root: Path, model: Path) -> Path:
    (root / "link.onnx").symlink_to(model)
    return root / "link.onnx"


LAYOUTS = [native, named_otherwise, versions, versions_of_other_names]
LAYOUTS += [one_file, one_folder, mlserver, linked]
LAYOUTS += [lambda root, model: model, lambda root, model: model.parent.parent]


@pytest.fixture(scope="module")
def runtime() -> Iterator[tuple[Workbench, ModelMesh]]:
    with Workbench(modelmesh="port:0", grpc_port=0, token="off") as workbench:
        mesh = ModelMesh(workbench.grpc_url, workbench.grpc_url)
        mesh.poll()
        yield workbench, mesh
        mesh.close()


def test_a_folder_with_a_configuration(tmp_path: Path) -> None:
    """It is served as a whole: the configuration says which file is the model."""
    (tmp_path / "config.pbtxt").write_text('default_model_filename: "net.onnx"')
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "net.onnx").touch()
    assert find_model(tmp_path) == tmp_path


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(
    runtime: tuple[Workbench, ModelMesh],
    tmp_path: Path,
    sample_models: Path,
    layout: Callable[[Path, Path], Path],
) -> None:
    """Every layout that the adapters build, or their puller leaves, loads, predicted in time."""
    workbench, mesh = runtime
    path = str(layout(tmp_path, sample_models / "wine" / "1" / "model.onnx"))
    began_s = time.process_time()
    predicted = mesh.ask("predictModelSize", modelId="wine-1", modelPath=path).sizeInBytes
    assert time.process_time() - began_s < 0.5
    mesh.place("wine-1", path)
    assert 0 < mesh.sizes["wine-1"] <= predicted
    now = workbench._core.status.snapshot()
    assert now.claimed_nbytes == mesh.used
    mesh.remove("wine-1")
    assert workbench._core.status.snapshot().held_nbytes == 0


def test_a_model_of_the_servers_own_folders(sample_models: Path) -> None:
    """It is unloaded like one that ModelMesh has loaded, and stays in the repository."""
    with Workbench(sample_models, device="cpu", modelmesh="port:0", grpc_port=0) as workbench:
        mesh = ModelMesh(workbench.grpc_url, workbench.grpc_url)
        workbench.load("wine")
        mesh.ask("unloadModel", modelId="wine")
        mesh.close()
        assert workbench._core.status.snapshot().held_nbytes == 0
        assert "wine" in workbench


def test_a_folder_that_is_odd(tmp_path: Path) -> None:
    """A folder of several files is left to the core, and settings that are no JSON are told."""
    (tmp_path / "a").touch()
    (tmp_path / "b").touch()
    assert find_model(tmp_path) == tmp_path
    (tmp_path / "model-settings.json").write_text("{")
    with pytest.raises(InvalidRequest, match=r"model-settings\.json"):
        find_model(tmp_path)


def test_a_folder_that_leads_to_itself(tmp_path: Path) -> None:
    """It is refused in one line, with what to do."""
    folder = tmp_path / "round"
    (folder / "below").mkdir(parents=True)
    (folder / "below" / "link").symlink_to(folder)
    with pytest.raises(InvalidRequest, match=r"to no model: .*; put its model\.onnx into it$"):
        find_model(folder)
    settings = {"name": "id", "parameters": {"uri": "below"}}
    (folder / "model-settings.json").write_text(json.dumps(settings))
    with pytest.raises(InvalidRequest, match=r"to no model: .*; put its model\.onnx into it$"):
        find_model(folder)


@pytest.mark.parametrize("uri", [".", "../mine", "link"])
def test_settings_that_name_their_own_folder(tmp_path: Path, uri: str) -> None:
    """The model is looked for beside them; where there is none, the core says so."""
    folder = tmp_path / "mine"
    folder.mkdir()
    settings = {"name": "id", "parameters": {"uri": uri}}
    (folder / "model-settings.json").write_text(json.dumps(settings))
    if uri == "link":
        (folder / uri).symlink_to(folder)
    else:
        assert find_model(folder) == folder
    (folder / "net.onnx").touch()
    assert find_model(folder) == folder / "net.onnx"


# ── where it listens ──


@pytest.mark.parametrize(
    ("environ", "data", "management"),
    [
        ({}, 8001, "port:8085"),
        ({"RUNTIME_PORT": "9001", "ADAPTER_PORT": "9085"}, 9001, "port:9085"),
        ({"RUNTIME_DATA_ENDPOINT": "port:7000"}, 7000, "port:8085"),
        ({"RUNTIME_DATA_ENDPOINT": "unix:/d.sock"}, "unix:/d.sock", "port:8085"),
    ],
)
def test_endpoints_of_the_environment(
    environ: dict[str, str], data: int | str, management: str
) -> None:
    """With ``modelmesh=on`` the adapters' variables say where it listens; settings win."""
    settings = settings_of(Settings.of(environ={}, modelmesh="on"), environ)
    assert settings.grpc_port == data
    assert settings["modelmesh"] == management
    assert (settings.load, settings.evict) == ("explicit", "never")
    own = replace(Settings.of(environ={}, modelmesh="unix:/m"), grpc_port=5, budget=7)
    assert settings_of(own, environ) == replace(own, load="explicit", evict="never", placed=True)


@pytest.mark.parametrize(
    "environ",
    [
        {"CONTAINER_MEM_REQ_BYTES": "x"},
        {"CONTAINER_MEM_REQ_BYTES": "-1"},
        {"MODEL_SERVER_MEM_REQ_BYTES": "x", "CONTAINER_MEM_REQ_BYTES": ""},
        {"CONTAINER_MEM_REQ_BYTES": "5", "MEM_BUFFER_BYTES": "5"},
        {"MODELSIZE_MULTIPLIER": "x"},
        {"MODELSIZE_MULTIPLIER": "nan"},
        {"MODELSIZE_MULTIPLIER": "inf"},
        {"MODELSIZE_MULTIPLIER": "1e20"},
        {"LOADTIME_TIMEOUT": str(2**32)},
        {"LOADING_CONCURRENCY": str(2**32)},
        {"LIMIT_PER_MODEL_CONCURRENCY": str(2**32)},
        {"DEFAULT_MODELSIZE": str(2**64)},
    ],
)
def test_an_environment_that_makes_no_sense(environ: dict[str, str]) -> None:
    """A variable that is no number, leaves no room, or fits no message is told."""
    with pytest.raises(SettingError, match=next(iter(environ))):
        Environment.of(environ)


def test_the_memory_of_the_container() -> None:
    """It is in the adapters' variable, or else in the one that the runtime's contract names."""
    own, adapters = "MODEL_SERVER_MEM_REQ_BYTES", "CONTAINER_MEM_REQ_BYTES"
    least = 2**28
    for environ, nbytes in (
        ({}, None),
        ({own: f"{least + 1}"}, least + 1),
        ({own: f"{least + 1}", adapters: f"{least + 2}"}, least + 2),
        ({own: f"{least + 1}", adapters: ""}, least + 1),
    ):
        assert Environment.of(environ).memory_nbytes == nbytes
    settings = settings_of(Settings.of(environ={}, modelmesh="on"), {own: f"{least + 1}"})
    assert settings.budget == least + 1


def test_a_load_waits_as_long_as_modelmesh() -> None:
    """Loads wait for each other no shorter than ModelMesh waits for them."""
    given = Settings.of(environ={}, modelmesh="on")
    assert settings_of(given, {"LOADTIME_TIMEOUT": "90000"}).wait == 90.0
    assert settings_of(given, {}).wait == given.wait


def test_different_endpoints(tmp_path: Path) -> None:
    """On endpoints of their own, neither service answers at the other's; both may be sockets."""
    with Workbench(modelmesh=f"unix:{tmp_path}/m", grpc_port=f"unix:{tmp_path}/d") as workbench:
        assert workbench.grpc_url == f"unix:{tmp_path}/d"
        mesh = ModelMesh(f"unix:{tmp_path}/m", workbench.grpc_url)
        mesh.poll()
        other = ModelMesh(workbench.grpc_url, f"unix:{tmp_path}/m")
        assert code_of(other.begin("runtimeStatus"))[0] is grpc.StatusCode.UNIMPLEMENTED
        other.methods = mesh.methods
        with pytest.raises(grpc.RpcError) as raised:
            other.infer("a", asked())
        assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED
        mesh.close()
        other.close()
    assert not list(tmp_path.iterdir())


def test_the_same_endpoint(tmp_path: Path) -> None:
    """On one endpoint both services answer, and no others are on it."""
    path = f"{tmp_path}/s"
    with Workbench(modelmesh=f"unix:{path}", grpc_port=f"unix:{path}") as workbench:
        mesh = ModelMesh(workbench.grpc_url, workbench.grpc_url)
        mesh.poll()
        assert len(workbench._serving._listeners) == 2
        mesh.close()


def test_modelmesh_is_not_there_unless_asked_for(server: Workbench) -> None:
    """A server that was not asked to be a runtime has no such service: a call of it unloads all."""
    mesh = ModelMesh(server.grpc_url, server.grpc_url)
    assert code_of(mesh.begin("runtimeStatus"))[0] is grpc.StatusCode.UNIMPLEMENTED
    mesh.close()
