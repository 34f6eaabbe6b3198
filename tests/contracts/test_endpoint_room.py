"""Room for models: in the container's memory, and for copies on the disk."""

import errno
import io
import os
import shutil
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from inside import until

from workbench.contracts.sagemaker.endpoint import store as store_module
from workbench.contracts.sagemaker.endpoint import unpack as unpack_module
from workbench.contracts.sagemaker.endpoint.containers import ContainerReply
from workbench.contracts.sagemaker.endpoint.endpoint import Endpoint, ModelClaim
from workbench.contracts.sagemaker.endpoint.store import ArtifactStore
from workbench.errors import ContainerRefused, DiskFull, ThreadsExhausted
from workbench.events import EndpointMeasured, EndpointWarned, Event


class Room:
    """A container with memory for *room* models, which they take when their loads begin."""

    outlives_us = False

    def __init__(self, room: int) -> None:
        self.room = room
        self.taken: list[str] = []  # targets
        self.begun: Callable[[str], object] = lambda target: None
        self.refused: Callable[[str], object] = lambda target: None
        self._lock = threading.Lock()

    def load(self, model_name: str, url: str, target: str) -> ContainerReply:
        with self._lock:
            fits = len(self.taken) < self.room
            if fits:
                self.taken.append(target)
        if not fits:
            self.refused(target)
            return ContainerReply(507, b"full")
        self.begun(target)
        return ContainerReply(200)

    def unload(self, model_name: str, target: str, timeout_s: float) -> ContainerReply:
        with self._lock:
            self.taken.remove(target)
        return ContainerReply(200)

    def has(self, model_name: str, target: str) -> bool:
        return target in self.taken


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """Four artifacts, ``a``, ``b``, ``c`` and ``d``."""
    for name in "abcd":
        with tarfile.open(tmp_path / f"{name}.tgz", "w:gz") as tar:
            info = tarfile.TarInfo("model.onnx")
            info.size = 3
            tar.addfile(info, io.BytesIO(b"abc"))
    return tmp_path


Started = Callable[[Any], Endpoint]


@pytest.fixture
def started(prefix: Path) -> Iterator[Started]:
    """Starts an endpoint on a container, with threads of its own."""
    with ThreadPoolExecutor(8) as pool:
        made: list[Endpoint] = []

        def start(container: Any) -> Endpoint:
            store = ArtifactStore(prefix)
            made.append(Endpoint(store, container, submit=pool.submit, log=lambda event: None))
            return made[-1]

        yield start
        for endpoint in made:
            endpoint.close()


def use(endpoint: Endpoint, target: str) -> None:
    """One request to the model of *target*, which is loaded if need be."""
    done(endpoint, endpoint.claim(f"{target}.tgz"))


def done(endpoint: Endpoint, claim: ModelClaim) -> None:
    try:
        claim.ready.result(30)
    finally:
        endpoint.release(claim)


def together(endpoint: Endpoint, targets: str) -> list[BaseException | None]:
    """The errors of requests for *targets* that come at once."""
    with ThreadPoolExecutor(len(targets)) as pool:
        return [each.exception(30) for each in [pool.submit(use, endpoint, t) for t in targets]]


def waits(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set once a load at *endpoint* waits for others."""
    waits, wait = threading.Event(), endpoint._changed.wait

    def waiting(timeout_s: float) -> bool:
        waits.set()
        return wait(timeout_s)

    monkeypatch.setattr(endpoint._changed, "wait", waiting)
    return waits


# ── memory ──


def test_a_load_waits_for_another_load(started: Started) -> None:
    """A model without room waits until one that is loading can leave."""
    container, begun, refused = Room(1), threading.Event(), threading.Event()

    def begin(target: str) -> None:
        begun.set()
        if target == "a.tgz":
            refused.wait(30)

    container.begun = begin
    container.refused = lambda target: refused.set()
    endpoint = started(container)
    first = endpoint.claim("a.tgz")
    begun.wait(30)
    second = endpoint.claim("b.tgz")
    done(endpoint, first)
    done(endpoint, second)
    assert container.taken == ["b.tgz"]


def test_a_load_waits_for_an_unload(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model without room waits until one that is leaving has left."""
    begun = threading.Event()

    class Slow(Room):
        """Frees no memory before a model waits for it."""

        def unload(self, model_name: str, target: str, timeout_s: float) -> ContainerReply:
            begun.set()
            load_waits.wait(20)
            return super().unload(model_name, target, timeout_s)

    container = Slow(1)
    endpoint = started(container)
    use(endpoint, "a")
    load_waits = waits(endpoint, monkeypatch)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(endpoint.empty)
        begun.wait(30)
        use(endpoint, "b")
    assert container.taken == ["b.tgz"]


def test_loads_that_refuse_each_other(started: Started) -> None:
    """Models that find no room at the same time are loaded one after another."""
    barrier, tried = threading.Barrier(3), set[str]()

    class Crowded(Room):
        """Refuses each model once, when all have been asked for."""

        def load(self, model_name: str, url: str, target: str) -> ContainerReply:
            if target in tried:
                return super().load(model_name, url, target)
            tried.add(target)
            barrier.wait(30)
            return ContainerReply(507, b"full")

    container = Crowded(1)
    assert together(started(container), "abc") == [None] * 3
    assert len(container.taken) == 1


def test_loads_that_never_fit(started: Started) -> None:
    """Models that are too large end with the refusal, and do not wait for each other."""
    endpoint = started(Room(0))
    for error in together(endpoint, "abc"):
        assert isinstance(error, ContainerRefused)
    assert endpoint.report.states == dict.fromkeys(("a.tgz", "b.tgz", "c.tgz"), "on disk")


def test_a_load_that_cannot_begin(prefix: Path) -> None:
    """Without a thread for its load a model is not ready, and the next request tries again."""
    threads = [False, True]

    def submit(work: Callable[[], Any]) -> Future[Any]:
        if not threads.pop(0):
            raise ThreadsExhausted("no thread")
        work()
        return Future()

    endpoint = Endpoint(ArtifactStore(prefix), Room(1), submit=submit, log=lambda event: None)
    with pytest.raises(ThreadsExhausted):
        use(endpoint, "a")
    use(endpoint, "a")
    endpoint.close()


def test_an_unload_that_comes_late(prefix: Path) -> None:
    """An unload that runs when its model has left spares the one that was loaded since."""
    jobs: list[Callable[[], Any]] = []

    def submit(work: Callable[[], Any]) -> Future[Any]:
        jobs.append(work)
        return Future()

    container, store = Room(1), ArtifactStore(prefix)
    endpoint = Endpoint(store, container, submit=submit, log=lambda event: None, keeps=False)
    claim = endpoint.claim("a.tgz")
    jobs.pop()()
    endpoint.release(claim)
    endpoint.release(endpoint.claim("a.tgz"))
    unload, late = jobs
    unload()
    claim = endpoint.claim("a.tgz")
    jobs.pop()()
    late()
    assert container.taken == ["a.tgz"]
    assert endpoint.report.loaded_model_count == 1
    endpoint.close()


def test_the_copy_of_an_older_content(prefix: Path) -> None:
    """The copy of what an artifact was before leaves with its model, whoever unloads that."""
    jobs: list[Callable[[], Any]] = []

    def submit(work: Callable[[], Any]) -> Future[Any]:
        jobs.append(work)
        return Future()

    store = ArtifactStore(prefix)
    endpoint = Endpoint(store, Room(2), submit=submit, log=lambda event: None)
    older = endpoint.claim("a.tgz")
    jobs.pop()()
    os.utime(prefix / "a.tgz", (0, 0))
    endpoint.release(endpoint.claim("a.tgz"))
    jobs.pop(0)()
    endpoint.release(older)  # its unload is among the jobs
    endpoint.release(endpoint.claim("b.tgz"))
    jobs.pop()()  # which has no room beside both
    assert sorted(store.copies.values()) == ["a.tgz", "b.tgz"]
    endpoint.close()


def test_a_load_that_is_repeated(started: Started) -> None:
    """It has another name, for multi-model-server may still be ending workers of the first one."""
    names: list[str] = []

    class Named(Room):
        """Keeps the names of loads."""

        def load(self, model_name: str, url: str, target: str) -> ContainerReply:
            names.append(model_name)
            return super().load(model_name, url, target)

    endpoint = started(Named(1))
    use(endpoint, "a")
    use(endpoint, "b")
    assert len(names) == len(set(names)) > 2


def test_a_model_that_is_there_already(started: Started) -> None:
    """By 409 the container has the model, as after a load whose answer was lost."""

    class Kept(Room):
        """Has kept its models."""

        def load(self, model_name: str, url: str, target: str) -> ContainerReply:
            super().load(model_name, url, target)
            return ContainerReply(409, b"taken")

    endpoint = started(Kept(1))
    use(endpoint, "a")
    assert endpoint.report.states == {"a.tgz": "loaded"}


def test_a_folder_makes_room_too(started: Started, prefix: Path) -> None:
    """A model leaves memory for another one, also if its artifact is a folder, without a copy."""
    (prefix / "folder").mkdir()
    (prefix / "folder" / "model.onnx").write_bytes(b"abc")
    container = Room(1)
    endpoint = started(container)
    done(endpoint, endpoint.claim("folder"))
    use(endpoint, "a")
    assert container.taken == ["a.tgz"]


def test_a_model_in_use_stays(started: Started) -> None:
    """An idle model leaves before one that was used longer ago and still is in use."""
    container = Room(2)
    endpoint = started(container)
    claim = endpoint.claim("a.tgz")
    claim.ready.result(30)
    use(endpoint, "b")
    use(endpoint, "c")
    assert container.taken == ["a.tgz", "c.tgz"]
    endpoint.release(claim)


def test_a_run_without_room(started: Started, prefix: Path) -> None:
    """By 507 for a run the model used longest ago leaves memory, a folder's too; copies stay."""
    (prefix / "folder").mkdir()
    (prefix / "folder" / "model.onnx").write_bytes(b"abc")
    container = Room(3)
    endpoint, full = started(container), ContainerReply(507)
    done(endpoint, endpoint.claim("folder"))
    use(endpoint, "b")
    claim = endpoint.claim("a.tgz")
    claim.ready.result(30)
    assert endpoint.recovers(claim, full)
    assert container.taken == ["b.tgz", "a.tgz"]
    assert endpoint.recovers(claim, full)
    assert container.taken == ["a.tgz"]
    assert endpoint.report.states == {"a.tgz": "loaded", "b.tgz": "on disk"}
    endpoint.release(claim)


def test_a_run_without_room_does_not_wait(started: Started) -> None:
    """By 507 for a run beside a model that is in use, nothing recovers, and it is told at once."""
    endpoint = started(Room(2))
    claims = [endpoint.claim(target) for target in ("a.tgz", "b.tgz")]
    for claim in claims:
        claim.ready.result(30)
    assert not endpoint.recovers(claims[0], ContainerReply(507))
    for claim in claims:
        endpoint.release(claim)


def test_a_model_that_the_container_has_lost(started: Started) -> None:
    """Each request that is told so asks again; the model is loaded once for all of them."""
    container = Room(2)
    endpoint = started(container)
    claims = [endpoint.claim("a.tgz") for _ in range(2)]
    claims[0].ready.result(20)
    container.taken.clear()
    lost = ContainerReply(404)
    assert endpoint.recovers(claims[0], lost)
    use(endpoint, "a")
    assert endpoint.recovers(claims[1], lost)
    for claim in claims:
        endpoint.release(claim)
    use(endpoint, "a")
    assert container.taken == ["a.tgz"]


def test_what_is_told_of_loads_and_unloads(prefix: Path) -> None:
    """Each step is an event with CloudWatch's name, and counts in what the report says."""
    events: list[Event] = []
    states: list[dict[str, str]] = []

    def submit(work: Callable[[], Any]) -> Future[Any]:
        work()
        return Future()

    container, store = Room(1), ArtifactStore(prefix)
    container.begun = lambda target: states.append(endpoint.report.states)
    endpoint = Endpoint(store, container, submit=submit, log=events.append)
    since_s = time.monotonic()
    use(endpoint, "a")
    before = endpoint.report
    use(endpoint, "b")
    most_s = time.monotonic() - since_s
    assert list(before.statistics) == ["a.tgz"]
    measured = [each for each in events if isinstance(each, EndpointMeasured)]
    assert [(each.metric, each.target_model, each.count) for each in measured] == [
        ("ModelCacheHit", "a.tgz", 0),
        ("ModelDownloadingTime", "a.tgz", None),
        ("ModelLoadingTime", "a.tgz", None),
        ("LoadedModelCount", "a.tgz", 1),
        ("ModelCacheHit", "b.tgz", 0),
        ("ModelDownloadingTime", "b.tgz", None),
        ("ModelLoadingTime", "b.tgz", None),  # which the container refused
        ("ModelUnloadingTime", "a.tgz", None),
        ("LoadedModelCount", "a.tgz", 0),
        ("ModelLoadingTime", "b.tgz", None),
        ("LoadedModelCount", "b.tgz", 1),
    ]
    for each in measured:
        size = (prefix / each.target_model).stat().st_size
        assert (each.nbytes, each.seconds is None) == (
            (size, False) if each.count is None else (0, True)
        )
    assert sum(each.seconds or 0 for each in measured) <= most_s
    assert states == [{"a.tgz": "loading"}, {"a.tgz": "on disk", "b.tgz": "loading"}]
    told = endpoint.report.statistics["a.tgz"]
    assert (told.hits, told.misses, told.loads, told.unloads) == (0, 1, 1, 1)
    assert min(told.downloading_s, told.loading_s, told.unloading_s) > 0
    assert told.waiting_s == 0
    endpoint.close()


@pytest.mark.parametrize(
    ("status", "told"),
    [(200, []), (404, []), (500, ["the container did not unload it (500): stuck"])],
)
def test_an_unload_that_fails(prefix: Path, status: int, told: list[str]) -> None:
    """It is told, with what the container said, unless that is 404; the endpoint goes on."""

    class Stuck(Room):
        """Frees the memory, and answers *status* all the same."""

        def unload(self, model_name: str, target: str, timeout_s: float) -> ContainerReply:
            super().unload(model_name, target, timeout_s)
            return ContainerReply(status, b"stuck")

    events: list[Event] = []
    with ThreadPoolExecutor(1) as pool:
        store = ArtifactStore(prefix)
        endpoint = Endpoint(store, Stuck(1), submit=pool.submit, log=events.append)
        use(endpoint, "a")
        use(endpoint, "b")
    endpoint.close()
    warned = [event for event in events if isinstance(event, EndpointWarned)]
    assert warned == [EndpointWarned("a.tgz", reason) for reason in told]


def test_the_time_to_empty_an_endpoint(started: Started) -> None:
    """Each unload of the stop may take what is left of ten seconds."""
    times_s: list[float] = []

    class Noting(Room):
        """Notes how long its unloads may take."""

        def unload(self, model_name: str, target: str, timeout_s: float) -> ContainerReply:
            times_s.append(timeout_s)
            return super().unload(model_name, target, timeout_s)

    endpoint = started(Noting(2))
    use(endpoint, "a")
    use(endpoint, "b")
    endpoint.empty()
    first_s, second_s = times_s
    assert 10 >= first_s >= second_s > 0.1


# ── the disk ──


@pytest.fixture(params=[1])
def small_disk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request: pytest.FixtureRequest
) -> Path:
    """The temporary folder, on a disk with room for one copy, or as many as a test says."""
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))

    def copy(source: Any, target: Any, nbytes: int) -> None:
        if len(copies(place)) > request.param:
            raise OSError(errno.ENOSPC, "No space left on device")
        shutil.copyfileobj(source, target, nbytes)

    monkeypatch.setattr(unpack_module, "shutil", type("Shutil", (), {"copyfileobj": copy}))
    return place


def copies(place: Path) -> list[str]:
    return [path.name.rpartition("-")[0] for path in place.glob("*/*")]


def test_idle_models_leave_a_full_disk(started: Started, small_disk: Path) -> None:
    """An idle model is unloaded where its copy is in the way; one that is in use is not."""
    container = Room(3)
    endpoint = started(container)
    use(endpoint, "a")
    use(endpoint, "b")
    assert container.taken == ["b.tgz"]
    assert copies(small_disk) == ["b"]
    assert together(endpoint, "abc") == [None] * 3
    assert len(copies(small_disk)) == 1


def test_copies_stay_on_a_disk_with_room(started: Started) -> None:
    """The copy of a model that left memory stays while others are unpacked."""
    endpoint = started(Room(1))
    for target in "abc":
        use(endpoint, target)
    assert endpoint.report.states == {"a.tgz": "on disk", "b.tgz": "on disk", "c.tgz": "loaded"}


def test_a_folder_makes_no_room_on_a_disk(started: Started, small_disk: Path, prefix: Path) -> None:
    """A model whose artifact is a folder has no copy, so it stays when the disk is full."""
    (prefix / "folder").mkdir()
    (prefix / "folder" / "model.onnx").write_bytes(b"abc")
    container = Room(3)
    endpoint = started(container)
    done(endpoint, endpoint.claim("folder"))
    use(endpoint, "a")
    use(endpoint, "b")
    assert container.taken == ["folder", "b.tgz"]


@pytest.mark.parametrize("small_disk", [2], indirect=True)
def test_a_turn_on_a_full_disk(
    started: Started, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that waits for another one's turn goes on once that has its copy, not its load."""
    both_load = threading.Barrier(2)

    class Slow(Room):
        """Frees no memory before one model waits for its turn."""

        def unload(self, model_name: str, target: str, timeout_s: float) -> ContainerReply:
            assert one_waits.wait(20)
            return super().unload(model_name, target, timeout_s)

    container = Slow(4)
    endpoint = started(container)
    use(endpoint, "a")
    use(endpoint, "b")
    one_waits = waits(endpoint, monkeypatch)
    container.begun = lambda target: both_load.wait(20)
    assert together(endpoint, "cd") == [None] * 2
    assert sorted(copies(small_disk)) == ["c", "d"]


def test_a_disk_that_stays_full(started: Started, small_disk: Path) -> None:
    """Where no copy can go it is the error of a full disk."""
    (small_disk / "other").mkdir()
    (small_disk / "other" / "file-1").touch()
    with pytest.raises(DiskFull):
        use(started(Room(3)), "a")


def test_a_copy_that_leaves_is_wanted(
    started: Started, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model is unpacked anew only when its old copy is gone."""
    endpoint = started(Room(1))
    use(endpoint, "a")
    endpoint.empty()  # its copy stays
    wanted: list[ModelClaim] = []
    settled = threading.Event()
    wait_for, rmtree = endpoint._changed.wait_for, shutil.rmtree

    def waiting(until: Callable[[], bool], timeout_s: float) -> bool:
        if not until():
            settled.set()
        return wait_for(until, timeout_s)

    def slow(path: Path, **options: Any) -> None:
        if path.name.startswith("a-") and not wanted:
            wanted.append(endpoint.claim("a.tgz"))
            endpoint.release(wanted[0])  # its load goes on
            wanted[0].ready.add_done_callback(lambda it: settled.set())
            settled.wait(30)
        rmtree(path, **options)

    monkeypatch.setattr(endpoint._changed, "wait_for", waiting)
    monkeypatch.setattr(store_module.shutil, "rmtree", slow)
    use(endpoint, "b")
    wanted[0].ready.result(30)


@pytest.mark.parametrize(("status", "stays"), [(0, True), (507, True), (400, False), (500, False)])
def test_copies_of_models_that_do_not_load(
    started: Started, small_disk: Path, status: int, stays: bool
) -> None:
    """A copy stays where the container gave no answer or had no room: its files may be right."""

    class Refusing(Room):
        def load(self, model_name: str, url: str, target: str) -> ContainerReply:
            return ContainerReply(status, b"no")

    endpoint = started(Refusing(1))
    with pytest.raises(ContainerRefused):
        use(endpoint, "a")
    assert copies(small_disk) == ["a"] * stays


def test_an_older_content_that_is_in_use(started: Started, prefix: Path) -> None:
    """Its model and its copy leave once its last request is answered."""
    container = Room(2)
    endpoint = started(container)
    claim = endpoint.claim("a.tgz")
    claim.ready.result(20)
    os.utime(prefix / "a.tgz", (1, 1))
    use(endpoint, "a")
    assert container.taken == ["a.tgz"] * 2
    endpoint.release(claim)
    until(lambda: container.taken == ["a.tgz"] and len(endpoint._store.copies) == 1)


def test_copies_of_older_contents(started: Started, prefix: Path) -> None:
    """They leave when a new one is fetched, also if their model has left memory before."""
    endpoint = started(Room(1))
    for number in range(3):
        os.utime(prefix / "a.tgz", (number, number))
        use(endpoint, "a")
        use(endpoint, "b")
    assert endpoint._store is not None
    assert sorted(endpoint._store.copies.values()) == ["a.tgz", "b.tgz"]
