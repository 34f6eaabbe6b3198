"""Room for the models of an endpoint: in memory, beside the core's evictions, and on the disk."""

import errno
import io
import os
import shutil
import tarfile
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from inside import until
from onnx_models import identity

from workbench.annexes.sagemaker import unpack as unpack_module
from workbench.annexes.sagemaker.container import Container
from workbench.annexes.sagemaker.endpoint import Endpoint
from workbench.annexes.sagemaker.errors import ContainerRefused, DiskFull
from workbench.annexes.sagemaker.events import EndpointMeasured
from workbench.core import ServerCore
from workbench.errors import (
    MemoryExhausted,
    ModelNotFound,
    ThreadsExhausted,
)
from workbench.settings import Settings

_CODE = b"def model_fn(folder): ...\ndef predict_fn(data, model): return data\n"


def packed(archive: Path, members: dict[str, bytes]) -> None:
    with tarfile.open(archive, "w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """Archives of models, ``a`` to ``d``, and of code, ``x`` to ``z``; a ``folder``."""
    root = tmp_path / "prefix"
    (root / "folder").mkdir(parents=True)
    onnx = identity(root / "folder" / "model.onnx").read_bytes()
    for name in "abcd":
        packed(root / f"{name}.tgz", {"model.onnx": onnx})
    for name in "xyz":
        packed(root / f"{name}.tgz", {"code/inference.py": _CODE, "weights.bin": bytes(2**22)})
    return root


Started = Callable[..., Endpoint]


@pytest.fixture
def started(prefix: Path) -> Iterator[Started]:
    """Starts an endpoint on a core of its own."""
    made: list[Endpoint] = []

    def start(**given: Any) -> Endpoint:
        options = {"device": "cpu", "cache": "off", "artifact_code": True, "artifacts": prefix}
        core = ServerCore(Settings.of(environ={}, **options | given))
        core.open()
        made.append(Endpoint(Container(core, {})))
        return made[-1]

    yield start
    for endpoint in made:
        endpoint.close()
        endpoint.core.close()


def use(endpoint: Endpoint, *targets: str) -> None:
    """One request to each of *targets*, which are loaded if need be."""
    for target in targets:
        wanted = endpoint.find(target if target == "folder" else f"{target}.tgz")
        if wanted.ready is not None:
            wanted.ready.result(30)


def states(endpoint: Endpoint) -> dict[str, str]:
    return {name.removesuffix(".tgz"): state for name, state in endpoint.report.states.items()}


# ── memory ──


@pytest.mark.parametrize(
    ("given", "targets"),
    [
        ({"budget": "12MiB"}, "xyxz"),  # code, which the core cannot evict
        ({"budget": "12MiB", "evict": "never"}, "xyxz"),
    ],
)
def test_what_the_core_may_not_evict(started: Started, given: Any, targets: str) -> None:
    """Where a load finds no room, the model that was asked for longest ago leaves."""
    endpoint = started(**given)
    use(endpoint, *targets)
    assert states(endpoint) == {"x": "loaded", "y": "on disk", "z": "loaded"}
    told = endpoint.report.statistics
    assert [told[f"{name}.tgz"].unloads for name in "xyz"] == [0, 1, 0]


def test_a_model_in_use_stays(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle model leaves before one that was asked for longer ago and still runs."""
    endpoint = started(budget="12MiB")
    use(endpoint, "x", "y")
    core = endpoint.core
    status = core.status.of

    def patched(name: str) -> Any:
        found = status(name)
        return replace(found, leases=1) if "/x-" in name else found

    monkeypatch.setattr(core.status, "of", patched)
    use(endpoint, "z")
    assert states(endpoint) == {"x": "loaded", "y": "on disk", "z": "loaded"}


def test_a_model_that_never_fits(started: Started, prefix: Path) -> None:
    """It is refused, and no other model leaves for it; its copy stays."""
    packed(prefix / "b.tgz", {"code/inference.py": _CODE, "weights.bin": bytes(2**24)})
    endpoint = started(budget="12MiB")
    use(endpoint, "x", "y")
    with pytest.raises(ContainerRefused, match="507") as caught:
        use(endpoint, "b")
    assert caught.value.code == 507
    assert states(endpoint) == {"x": "loaded", "y": "loaded", "b": "on disk"}


def test_loads_at_once(started: Started) -> None:
    """Models that find no room at the same time are loaded one after another."""
    endpoint = started(budget="6MiB")
    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(use, endpoint, name) for name in "xyz"]:
            done.exception(30)
    use(endpoint, "x")
    assert sorted(states(endpoint).values()) == ["loaded", "on disk", "on disk"]


def test_a_run_without_room(started: Started) -> None:
    """By 507 for a run the model asked for longest ago leaves memory, a folder's too; copies stay.

    Where no other is left, nothing recovers.
    """
    endpoint = started()
    use(endpoint, "folder", "b")
    wanted = endpoint.find("a.tgz")
    assert wanted.ready is not None
    wanted.ready.result(30)
    assert endpoint.recovers(wanted, 507)
    assert endpoint.recovers(wanted, 507)
    assert states(endpoint) == {"a": "loaded", "b": "on disk"}
    assert not endpoint.recovers(wanted, 507)


def test_a_model_that_has_left(started: Started) -> None:
    """A request that finds its model gone asks again, and loads it; an answer of 404 is no loss."""
    endpoint = started()
    use(endpoint, "a")
    wanted = endpoint.find("a.tgz")
    assert wanted.ready is None
    assert not endpoint.recovers(wanted, 404)
    endpoint.container.unload(wanted.artifact.model_name)
    assert endpoint.recovers(wanted, 404)
    use(endpoint, "a")
    assert states(endpoint) == {"a": "loaded"}


def test_a_load_that_cannot_begin(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a thread for its load a model is not ready, and the next request tries again."""

    def none(*_: object, **__: object) -> Future[Any]:
        raise ThreadsExhausted("no thread")

    endpoint = started()
    with monkeypatch.context() as patched:
        patched.setattr(endpoint.core, "soon", none)
        with pytest.raises(ThreadsExhausted):
            use(endpoint, "a")
    use(endpoint, "a")
    assert states(endpoint) == {"a": "loaded"}


def test_what_is_told_of_loads_and_unloads(started: Started, prefix: Path) -> None:
    """Each step is an event with CloudWatch's name, and counts in what the report says."""
    endpoint = started(budget="6MiB")
    use(endpoint, "x", "y")
    measured = [e.event for e in endpoint.core.events.since(0)]
    measured = [each for each in measured if isinstance(each, EndpointMeasured)]
    assert [(each.metric, each.target_model, each.count) for each in measured] == [
        ("ModelCacheHit", "x.tgz", 0),
        ("ModelDownloadingTime", "x.tgz", None),
        ("ModelLoadingTime", "x.tgz", None),
        ("LoadedModelCount", "x.tgz", 1),
        ("ModelCacheHit", "y.tgz", 0),
        ("ModelDownloadingTime", "y.tgz", None),
        ("ModelUnloadingTime", "x.tgz", None),
        ("LoadedModelCount", "x.tgz", 0),
        ("ModelLoadingTime", "y.tgz", None),
        ("LoadedModelCount", "y.tgz", 1),
    ]
    for each in measured:
        size = (prefix / each.target_model).stat().st_size
        timed = each.count is None
        assert (each.nbytes, each.seconds is None) == ((size, False) if timed else (0, True))
    told = endpoint.report.statistics["x.tgz"]
    assert (told.hits, told.misses, told.loads, told.unloads) == (0, 1, 1, 1)
    assert min(told.downloading_s, told.loading_s, told.unloading_s) > 0
    assert told.waiting_s == 0


# ── the disk ──


@pytest.fixture
def small_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The temporary folder, on a disk with room for one copy."""
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))

    def copy(source: Any, target: Any, nbytes: int) -> None:
        if len(copies(place)) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        shutil.copyfileobj(source, target, nbytes)

    monkeypatch.setattr(unpack_module, "shutil", type("Shutil", (), {"copyfileobj": copy}))
    return place


def copies(place: Path) -> list[str]:
    return [path.name.rpartition("-")[0] for path in place.glob("*/*")]


def test_copies_leave_a_full_disk(started: Started, small_disk: Path) -> None:
    """A model whose copy is in the way is unloaded; a folder has none, so its model stays."""
    endpoint = started()
    use(endpoint, "folder", "a", "b")
    assert copies(small_disk) == ["b"]
    assert states(endpoint) == {"folder": "loaded", "b": "loaded"}
    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(use, endpoint, name) for name in "acd"]:
            done.exception(30)
    assert len(copies(small_disk)) <= 1


def test_copies_stay_on_a_disk_with_room(started: Started) -> None:
    """The copy of a model that left memory stays while others are unpacked."""
    endpoint = started(budget="6MiB")
    use(endpoint, "x", "y", "z")
    assert states(endpoint) == {"x": "on disk", "y": "on disk", "z": "loaded"}


def test_a_disk_that_stays_full(started: Started, small_disk: Path) -> None:
    """Where no copy can go it is the error of a full disk."""
    (small_disk / "other").mkdir()
    (small_disk / "other" / "file-1").touch()
    with pytest.raises(DiskFull):
        use(started(), "a")


def test_a_model_that_is_leaving_is_wanted(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that comes meanwhile waits until it has left, finds it gone, and loads it anew."""
    endpoint = started()
    use(endpoint, "a")
    begun, asked = threading.Event(), threading.Event()
    unload = endpoint.container.unload

    def slow(name: str) -> None:
        begun.set()
        assert asked.wait(30)
        unload(name)

    monkeypatch.setattr(endpoint.container, "unload", slow)
    with ThreadPoolExecutor(1) as pool:
        emptied = pool.submit(endpoint.hand_over, endpoint.core.settings)
        assert begun.wait(30)
        wanted = endpoint.find("a.tgz")
        asked.set()
        emptied.result(30)
    assert wanted.ready is not None
    wanted.ready.result(30)
    assert endpoint.recovers(wanted, 404)
    use(endpoint, "a")


@pytest.mark.parametrize(
    ("error", "stays"),
    [(MemoryExhausted("full"), True), (ModelNotFound("gone"), False), (ValueError("odd"), False)],
)
def test_copies_of_models_that_do_not_load(
    started: Started,
    small_disk: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    stays: bool,
) -> None:
    """A copy stays where there was no room: its files may be right."""

    def load(*_: object) -> None:
        raise error

    endpoint = started()
    monkeypatch.setattr(endpoint.container, "load", load)
    with pytest.raises(ContainerRefused):
        use(endpoint, "a")
    assert copies(small_disk) == ["a"] * stays


def test_copies_of_older_contents(started: Started, prefix: Path) -> None:
    """They leave when a new one is fetched, also if their model has left memory before."""
    endpoint = started(budget="6MiB")
    for number in range(3):
        os.utime(prefix / "x.tgz", (number, number))
        use(endpoint, "x", "y")
    assert endpoint._store is not None
    assert [each.target for each in endpoint._known()] == ["x.tgz", "y.tgz"]
    assert len(list(Path(endpoint._store._root.name).iterdir())) == 2


def test_a_content_that_changes_during_its_load(
    started: Started, prefix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model of the older content leaves once its load ends."""
    endpoint = started()
    begun, goes_on = threading.Event(), threading.Event()
    load = endpoint.container.load

    def slow(name: str, url: str) -> None:
        if not begun.is_set():
            begun.set()
            assert goes_on.wait(30)
        load(name, url)

    monkeypatch.setattr(endpoint.container, "load", slow)
    endpoint.find("a.tgz")
    assert begun.wait(30)
    os.utime(prefix / "a.tgz", (1, 1))
    use(endpoint, "a")
    goes_on.set()
    until(lambda: len(endpoint._artifacts) == len(endpoint.container.models()) == 1)
    assert states(endpoint) == {"a": "loaded"}
