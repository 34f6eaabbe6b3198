"""The verbs of the server, without a wire, over files that are doubles."""

import gc
import pickle
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import inside
import numpy as np
import pytest

from doubles import FakeFiles, FakeLoader, FakeSession, fake_core, unwatched
from workbench.core import Describe, ServerCore, runtime
from workbench.errors import (
    InvalidRequest,
    LoadFailed,
    MemoryExhausted,
    ModelNotFound,
    ModelNotReady,
    RepositoryError,
    RequestStopped,
    RunFailed,
    ServerNotRunning,
    VersionNotFound,
)
from workbench.events import ModelUnloaded
from workbench.inference import InferRequest
from workbench.model import FunctionModel, ModelId, ModelState, Need, Signature, TensorSpec
from workbench.settings import Settings
from workbench.statistics import BatchCounts, FailureReason
from workbench.stop import CancellationToken
from workbench.tensor import Tensor

MIB = 2**20
SIZES = {"a": 40, "b": 40, "c": 40, "huge": 101}
SPECS = TensorSpec("x", "FP32", (-1,)), TensorSpec("y", "FP32", (-1,))


def make_core(tmp_path: Path, **settings: Any) -> tuple[ServerCore, FakeLoader]:
    loader = FakeLoader(dict(SIZES))
    return fake_core(tmp_path, loader, **settings), loader


@contextmanager
def opened(tmp_path: Path, **settings: Any) -> Iterator[tuple[ServerCore, FakeLoader]]:
    core, loader = make_core(tmp_path, **settings)
    with inside.opened(core):
        yield core, loader


@pytest.fixture
def core(tmp_path: Path) -> Iterator[ServerCore]:
    with opened(tmp_path) as (core, _):
        yield core


def request_for(model: str, *values: float, **more: Any) -> InferRequest:
    return InferRequest(model, {"x": Tensor.of(np.array(values, np.float32))}, **more)


def double(nbytes: int = 0) -> FunctionModel:
    return FunctionModel(lambda x: x * 2, SPECS[:1], SPECS[1:], nbytes)


def loaded(core: ServerCore) -> set[str]:
    return {m.id.name for m in core.status.snapshot().models if m.state is ModelState.READY}


def test_infer_loads_on_demand(core: ServerCore) -> None:
    """An inference on a model of the repository loads it."""
    response = core.requests.infer(request_for("a", 1, 2, id="me"))
    assert response.model == ModelId("a", 1)
    assert response.id == "me"
    assert response.outputs["y"].array.tolist() == [1, 2]
    assert loaded(core) == {"a"}


def test_the_budget_changes(core: ServerCore) -> None:
    """Models leave a smaller one, and all that says how large it is follows."""
    core.models.load("a")
    core.models.load("b")
    core.adjust(replace(core.settings, budget=50))
    core.models.load("c")
    assert loaded(core) == {"c"}
    assert core.status.snapshot().budget_nbytes == core.budget_nbytes == core.settings.budget == 50
    with pytest.raises(MemoryExhausted, match="the budget is 50 B"):
        core.models.register(ModelId("double", 1), double(51))
    with pytest.raises(ModelNotReady, match="the budget is 50 B"):
        core.status.check_ready("huge")


def test_the_policy_changes(core: ServerCore) -> None:
    """The next eviction is by the new policy, which knows the uses before the change."""
    for name in ("a", "a", "b", "b", "b", "a"):
        core.requests.infer(request_for(name, 1))
    for _ in range(3):  # in use often, but not lately
        core.requests.infer(request_for("a", 1))
    core.requests.infer(request_for("b", 1))
    core.adjust(replace(core.settings, evict="lfu"))
    core.requests.infer(request_for("c", 1))
    assert loaded(core) == {"a", "c"}
    core.adjust(replace(core.settings, evict="never"))
    with pytest.raises(MemoryExhausted, match="nobody is evicted"):
        core.models.load("b")
    assert core.settings.evict == "never"


def test_the_keep_alive_time_changes(tmp_path: Path) -> None:
    """Models that are idle for longer leave from then on; without a time none does."""
    with opened(tmp_path, keep_alive="20ms") as (core, _):
        core.requests.infer(request_for("a", 1))
        assert kept_waiting(core, "expire") == "a:1, 40 B freed: not used for 20 ms"
        core.adjust(replace(core.settings, keep_alive=None))
        for thread in threading.enumerate():
            if thread.name == "workbench-expire":
                thread.join(30)
                assert not thread.is_alive()
        core.requests.infer(request_for("a", 1))
        assert loaded(core) == {"a"}
        core.adjust(replace(core.settings, keep_alive=0.02))
        inside.until(lambda: not loaded(core))


def test_errors_of_infer(core: ServerCore) -> None:
    """Unknown models and versions, and requests that do not fit, each have their own error.

    They leave nothing in use.
    """
    with pytest.raises(ModelNotFound):
        core.requests.infer(request_for("nobody", 1))
    with pytest.raises(VersionNotFound):
        core.requests.infer(request_for("a", 1, version=2))
    with pytest.raises(MemoryExhausted):
        core.requests.infer(request_for("huge", 1))
    with pytest.raises(InvalidRequest):
        core.requests.infer(InferRequest("a", {}))
    core.models.unload("a")
    assert loaded(core) == set()


def test_what_is_loading_is_not_ready(tmp_path: Path) -> None:
    """Where only a load by hand loads, a request meanwhile is told that it is under way.

    Whoever waits for the load is counted among those that wait, and not among those that run.
    """
    core, loader = make_core(tmp_path, load="explicit")
    loader.gates["a"] = threading.Event()
    with inside.opened(core), ThreadPoolExecutor(1) as pool:
        loading = pool.submit(core.models.load, "a")
        while core.status.of("a").state is not ModelState.LOADING:
            assert not loading.done()
        with pytest.raises(ModelNotReady, match=r"^a:1 is loading$"):
            core.requests.infer(request_for("a", 1))
        assert (core.status.of("a").leases, core.status.of("a").pending) == (0, 1)
        loader.gates["a"].set()
        loading.result()
        assert core.requests.infer(request_for("a", 1)).model == ModelId("a", 1)


@pytest.mark.parametrize("follow", [False, True])
def test_links_are_followed_if_the_settings_say_so(tmp_path: Path, follow: bool) -> None:
    """A link out of the repository is refused, unless the settings allow it."""
    make_core(tmp_path / "store")
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "a").symlink_to(tmp_path / "store" / "a")
    given = {"follow_links": True} if follow else {}
    settings = Settings.of(tmp_path / "root", environ={}, budget="100B", device="cpu", **given)
    core = ServerCore(settings, files=FakeFiles(FakeLoader(dict(SIZES))))
    with inside.opened(core):
        if follow:
            assert core.requests.infer(request_for("a", 1)).model == ModelId("a", 1)
        else:
            with pytest.raises(LoadFailed, match="is a link out of the repository"):
                core.requests.infer(request_for("a", 1))


def test_it_is_opened_and_closed(tmp_path: Path) -> None:
    """A core that is not open answers nothing and holds nothing; its functions stay."""
    core, loader = make_core(tmp_path)
    core.models.register(ModelId("f", 1), double())
    for _ in range(2):
        with pytest.raises(ServerNotRunning):
            core.requests.infer(request_for("a", 1))
        core.open()
        assert core.requests.infer(request_for("a", 1)).model == ModelId("a", 1)
        assert core.requests.infer(request_for("f", 2)).outputs["y"].array.tolist() == [4]
        core.close()
        assert loader.live_nbytes == 0
        core.close()


def test_a_large_body_that_waits_for_a_load_disturbs_its_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bytes are not the model's; where nothing is loaded for it, nothing is disturbed."""
    with opened(tmp_path) as (core, _):
        disturbed: list[int] = []
        read = request_for("a", 1)
        watch = core._running().devices[0].watch
        monkeypatch.setattr(watch, "disturb", lambda: disturbed.append(1))
        for nbytes, times in ((MIB - 1, 0), (MIB, 1)):
            core.models.unload("a")
            for _ in range(2):
                core.requests.start("a", None, lambda _: read, write=id, nbytes=nbytes).result(30)
            assert len(disturbed) == times


@pytest.mark.parametrize("waits", [False, True])
def test_who_asks_just_when_the_server_stops(tmp_path: Path, waits: bool) -> None:
    """A call whose threads end just then is told that the server does not run."""
    with opened(tmp_path) as (core, _):
        running = core._running()
        for threads in (running.calling, running.reading, running.waiting):
            threads.close()
        with pytest.raises(ServerNotRunning, match="the server is stopping"):
            core.soon(int, waits=waits)
        with pytest.raises(ServerNotRunning, match="the server is stopping"):
            core.call(int)


def test_threads_end_with_close(tmp_path: Path) -> None:
    """Closing leaves no thread behind."""
    before = set(threading.enumerate())
    core, _ = make_core(tmp_path)
    core.open()
    core.requests.infer(request_for("a", 1))
    core.soon(int).result()
    core.soon(int, waits=True).result()
    inside.submit(core, request_for("a", 1)).result()
    started = set(threading.enumerate()) - before
    assert started
    core.close()
    inside.until(lambda: not started & set(threading.enumerate()))  # some may be about to start


def test_close_cancels_what_has_not_begun(tmp_path: Path) -> None:
    """Runs that wait for a thread when the server closes are cancelled, not run late."""
    core, _ = make_core(tmp_path)
    core.open()
    begun, gate, ran = threading.Event(), threading.Event(), []

    def gated(x: Any) -> Any:
        ran.append(x)
        begun.set()
        assert gate.wait(30)
        return x

    core.models.register(ModelId("f", 1), FunctionModel(gated, SPECS[:1], SPECS[1:]))
    asked = [inside.submit(core, request_for("f", 1)) for _ in range(64)]
    assert begun.wait(30)
    core.close()
    gate.set()
    errors = [error for each in asked if (error := each.exception(30)) is not None]
    assert all(isinstance(error, ServerNotRunning) for error in errors)
    assert len(errors) == 64 - len(ran) > 0


def test_explicit_loading(tmp_path: Path) -> None:
    """With load='explicit' an inference loads nothing; a load does."""
    with opened(tmp_path, load="explicit") as (core, _):
        with pytest.raises(ModelNotReady, match=r"a:1 is not loaded: load it first"):
            core.requests.infer(request_for("a", 1))
        assert core.models.load("a").state is ModelState.READY
        core.requests.infer(request_for("a", 1))
        core.models.unload("a")
        with pytest.raises(ModelNotReady, match="unloaded by hand"):
            core.requests.infer(request_for("a", 1))


def test_all_at_start(tmp_path: Path) -> None:
    """With load='all' what fits is loaded at the start, and nobody is evicted for the rest."""
    with opened(tmp_path, load="all") as (core, _):
        assert len(loaded(core)) == 2
        kinds = {entry.event.kind for entry in core.events.since(0)}
    assert "evict" not in kinds
    assert "refused" in kinds


def test_a_file_that_cannot_be_read_is_a_failed_load(tmp_path: Path) -> None:
    """Also for a request that is made from the signature: its model is broken from then on."""
    (tmp_path / "a" / "1").mkdir(parents=True)
    (tmp_path / "a" / "1" / "model.onnx").write_bytes(b"no model")

    def read(describe: Describe) -> InferRequest:
        raise AssertionError(f"there is no {describe()}")

    for load, told in (("on-demand", ["failed"]), ("explicit", [])):
        core = ServerCore(Settings.of(tmp_path, environ={}, device="cpu", load=load))
        with inside.opened(core):
            with pytest.raises(LoadFailed, match="is not an ONNX model"):
                core.requests.ask("a", None, read)
            events = [each.event.kind for each in core.events.since()]
            assert [kind for kind in events if kind == "failed"] == told
            absence = core.status.of("a").absence
            assert (absence is not None and absence.failed) is bool(told)


def test_a_broken_model_does_not_stop_the_start(tmp_path: Path) -> None:
    """A model that does not load at the start is an event and a reason, not a failure of all."""
    core, loader = make_core(tmp_path, load="all")
    loader.failures["a"] = LoadFailed("it is broken")
    (tmp_path / "b" / "config.pbtxt").write_text("nonsense: 1")
    core.open()
    assert loaded(core) == {"c"}
    reasons = {row.id.name: row.reason for row in core.status.index()}
    assert reasons["a"] == "it is broken"
    assert "nonsense" in reasons["b"]
    core.close()


def test_pin(core: ServerCore) -> None:
    """A pinned model stays; unpinned it may leave; unloading forgets the pin."""
    assert core.models.pin("a").pinned
    for name in ("b", "c"):
        core.requests.infer(request_for(name, 1))
    assert loaded(core) == {"a", "c"}
    assert not core.models.unpin("a").pinned
    core.requests.infer(request_for("b", 1))
    core.models.pin("a")
    core.models.unload("a")
    assert not core.models.load("a").pinned


def test_unload_frees_the_memory(core: ServerCore) -> None:
    """When unload returns, the books are empty again."""
    core.models.load("a")
    core.models.unload("a")
    assert core.status.snapshot().held_nbytes == 0
    core.models.unload("a")
    with pytest.raises(ModelNotFound):
        core.models.unload("nobody")


def test_a_new_version_is_found_by_load(core: ServerCore, tmp_path: Path) -> None:
    """A version that appears in the folder is served once a load has looked again."""
    core.requests.infer(request_for("a", 1))
    (tmp_path / "a" / "2").mkdir()
    (tmp_path / "a" / "2" / "model.onnx").write_bytes(b"")
    assert core.requests.infer(request_for("a", 1)).model.version == 1
    assert core.models.load("a").id == ModelId("a", 2)
    assert core.requests.infer(request_for("a", 1)).model.version == 2


def test_function_takes_part(core: ServerCore) -> None:
    """A function is loaded when it is registered, and evicted when room is needed."""
    core.models.register(ModelId("f", 1), double(nbytes=60))
    assert "f" in loaded(core)
    core.requests.infer(request_for("a", 1))
    core.requests.infer(request_for("b", 1))
    assert loaded(core) == {"a", "b"}
    assert core.requests.infer(request_for("f", 3)).outputs["y"].array.tolist() == [6]


def test_function_that_fails(core: ServerCore) -> None:
    """A function that raises is a failed run that names model and error, and is counted."""

    def fail(x: Any) -> Any:
        raise KeyError("no")

    core.models.register(ModelId("f", 1), FunctionModel(fail, SPECS[:1], SPECS[1:]))
    with pytest.raises(RunFailed, match=r"f:1 raised KeyError: 'no'"):
        core.requests.infer(request_for("f", 1))
    assert core.status.of("f").requests.failed == 1


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (("a", "b"), "returned 2 values; it declares y"),
        ({"z": [1]}, "returned a dict of z; it declares y"),
        ("text", r"text \(BYTES\) is not FP32|could not convert"),
        ([[1.0]], r"has shape \[1, 1\], it declares \[-1\]"),
        (None, "returned nothing; it declares y"),
    ],
)
def test_function_that_breaks_its_word(core: ServerCore, returned: Any, message: str) -> None:
    """A function that returns what it did not declare is a failed run that says so."""
    core.models.register(ModelId("f", 1), FunctionModel(lambda x: returned, SPECS[:1], SPECS[1:]))
    with pytest.raises(RunFailed, match=message):
        core.requests.infer(request_for("f", 1))


def test_index_lists_everything(core: ServerCore, tmp_path: Path) -> None:
    """The index holds loaded and unloaded models, functions, and broken folders with reasons."""
    (tmp_path / "empty").mkdir()
    core.models.register(ModelId("f", 1), double())
    core.models.load("a")
    rows = {row.id.name: row for row in core.status.index()}
    assert rows["a"].state is ModelState.READY
    assert rows["b"].state is ModelState.UNAVAILABLE
    assert rows["f"].state is ModelState.READY
    assert "holds no model" in rows["empty"].reason


def test_index_keeps_what_lost_its_folder(core: ServerCore, tmp_path: Path) -> None:
    """A loaded model whose folder is gone is served on, and listed."""
    core.requests.infer(request_for("a", 1))
    (tmp_path / "a").rename(tmp_path.parent / f"{tmp_path.name}-gone")
    core.requests.infer(request_for("a", 1))
    assert "a" in {row.id.name for row in core.status.index()}


def test_brief_runs_are_known(core: ServerCore) -> None:
    """A run is expected to be brief once it was seen to be; a function never is."""
    request = request_for("a", 1)
    assert not inside.is_brief(core, "a")
    assert inside.run_now(core, request) is None
    core.requests.infer(request)
    assert inside.is_brief(core, "a")
    assert inside.run_now(core, request) is not None
    core.models.register(ModelId("f", 1), double())
    core.requests.infer(request_for("f", 1))
    assert inside.run_now(core, request_for("f", 1)) is None


@pytest.mark.parametrize("changed", [False, True])
def test_what_is_loaded_anew(changed: bool, tmp_path: Path) -> None:
    """How long runs took holds for the next load, unless the model's files changed."""
    with opened(tmp_path) as (core, loader):
        core.requests.infer(request_for("a", 1))
        core.models.unload("a")
        if changed:
            loader.origins["a"] = "another"
        assert inside.is_brief(core, "a") != changed


def test_status_counts_requests(core: ServerCore) -> None:
    """A model's status counts its requests and knows their latency."""
    for _ in range(3):
        core.requests.infer(request_for("a", 1))
    requests = core.status.of("a").requests
    assert (requests.succeeded, requests.failed) == (3, 0)
    assert 0 < requests.p50_s <= requests.p99_s


def test_where_the_time_of_a_request_goes(
    core: ServerCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a request waited before it ran, its checks, its run and the rest are told apart."""
    request = request_for("a", 1)
    lease = inside.lease(core, "a")
    moments = iter([request.made_s + after_s for after_s in (8.0, 12.0, 14.0, 15.0)])
    monkeypatch.setattr("workbench.core.runs.time.perf_counter", lambda: next(moments))
    inside.run(core, lease, request)
    counts = core.status.of("a").requests
    assert (counts.queue_s, counts.total_s) == (8.0, 15.0)
    assert counts.batches == (BatchCounts(1, 1, 4.0, 2.0, 1.0),)


def test_a_refusal_is_no_failed_run(core: ServerCore) -> None:
    """A request that does not fit the model is refused; it never ran, and lasted no time."""
    lease = inside.lease(core, "a")
    with pytest.raises(InvalidRequest):
        inside.run(core, lease, InferRequest("a", {}))
    counts = core.status.of("a").requests
    assert (counts.refused, counts.failed_runs, counts.failed_runs_s) == (1, 0, 0.0)


# ── classification ──────────────────────────────────────────────────────────


def scores(
    labels: tuple[str, ...] = (), shape: tuple[int, ...] = (-1, 3), batch: int = 4
) -> FakeSession:
    """A loaded model that answers with its input, the labels of whose output are *labels*."""
    signature = Signature(
        "fake",
        {"x": TensorSpec("x", "FP32", shape)},
        {"y": TensorSpec("y", "FP32", shape)},
        batch,
        {"y": labels},
    )
    session = FakeSession(ModelId("a", 1), 40, lambda: None)
    session.signature = signature
    return session


def classified(core: ServerCore, session: FakeSession, values: Any, count: int) -> Any:
    lease = inside.lease(core, "a")
    lease.session = session
    request = InferRequest(
        "a", {"x": Tensor.of(np.array(values, np.float32))}, classes={"y": count}
    )
    return inside.run(core, lease, request).outputs["y"].array


@pytest.mark.parametrize(
    ("batch", "told"),
    [
        (4, [[b"3.000000:1:dog", b"2.000000:2"], [b"9.000000:0:cat", b"8.000000:1:dog"]]),
        (0, [b"9.000000:3", b"8.000000:4"]),
    ],
)
def test_classes(core: ServerCore, batch: int, told: list[Any]) -> None:
    """An output wanted as classes is the best of each element of the batch, or the whole."""
    session = scores(("cat", "dog") if batch else (), batch=batch)
    assert classified(core, session, [[1, 3, 2], [9, 8, 7]], 2).tolist() == told


def test_classes_that_cannot_be_are_a_failure(core: ServerCore) -> None:
    """A wish for no class is refused, counted, and leaves no lease."""
    with pytest.raises(InvalidRequest, match="'classification' of output 'y' must be 1 or more"):
        classified(core, scores(), [[1, 2, 3]], 0)
    assert core.status.of("a").requests.failures == {FailureReason.OTHER: 1}
    assert core.status.of("a").leases == 0


def kept_waiting(core: ServerCore, kind: str) -> str:
    """The first event of that kind, waited for."""
    cursor = 0
    while True:
        entries = core.events.wait(cursor, 30)
        assert entries, f"no event {kind!r} came"
        for entry in entries:
            if entry.event.kind == kind:
                return str(entry.event)
        cursor = entries[-1].number


def test_a_wait_can_be_stopped(tmp_path: Path) -> None:
    """Whoever waits for a load hears of the stop at once, and leaves no lease behind."""
    core, loader = make_core(tmp_path)
    core.open()
    gate = loader.gates["a"] = threading.Event()
    stop = CancellationToken()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(core.requests.infer, request_for("a", 1, stop=stop))
        while core.events.since()[-1].event.kind != "loading":
            assert core.events.wait(core.events.since()[-1].number, 30)
        stop.set(RequestStopped("enough"))
        with pytest.raises(RequestStopped, match="enough"):
            asked.result(30)
        gate.set()
    core.models.unload("a")
    assert core.status.of("a").leases == 0
    core.close()


def test_a_stopped_run_says_why(core: ServerCore) -> None:
    """However a run ended that was stopped, the error is the stop's, and counted as such."""
    stop = CancellationToken()

    def stopped(*_: Any) -> Any:
        stop.set(RequestStopped("enough"))
        raise RunFailed("Exiting due to terminate flag")

    lease = inside.lease(core, "a")
    lease.session.run = stopped  # type: ignore[method-assign]
    with pytest.raises(RequestStopped, match="enough"):
        inside.run(core, lease, request_for("a", 1, stop=stop))
    assert core.status.of("a").requests.failures == {FailureReason.CANCELED: 1}


def test_a_functions_memory_is_no_drift(tmp_path: Path) -> None:
    """What a function is said to hold is in the books, and not looked for in the system."""
    core, _ = make_core(tmp_path, budget=2**31)
    core.open()
    core.models.register(ModelId("large", 1), double(2**30))
    (device,) = core.status.snapshot().devices
    assert device.held_nbytes == 2**30
    assert abs(device.surplus_nbytes) < 2**26
    core.close()
    assert not any(entry.event.kind == "drift" for entry in core.events.since(0))


# ── memory that is no model's ───────────────────────────────────────────────


@pytest.mark.parametrize("what", ["a large body", "a small body", "a function"])
def test_what_disturbs_a_comparison(what: str, core: ServerCore) -> None:
    """While a large body waits, or a function runs, what a load takes cannot be told apart."""
    (seat,) = core._running().devices
    core.models.register(ModelId("f", 1), double())
    with seat.watch.load(ModelId("other", 1)):
        if what == "a function":
            core.requests.infer(request_for("f", 1.0))
        else:
            core._running()._received(2 * MIB if what == "a large body" else 1000)
        assert seat.watch._disturbed == (what != "a small body")


def test_who_runs_on_at_the_end_is_waited_for(
    core: ServerCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that outlasts the server ends before Python does: afterwards it would crash."""
    begun, gate = threading.Event(), threading.Event()

    def gated(self: FakeSession, inputs: Any, *_: object) -> list[Tensor]:
        begun.set()
        assert gate.wait(30)
        return [inputs["x"]]

    monkeypatch.setattr(FakeSession, "run", gated)
    with ThreadPoolExecutor(2) as pool:
        asked = pool.submit(core.requests.infer, request_for("a", 1.0))
        assert begun.wait(30)
        residency = core._running().residency
        core.close(0.0)
        assert residency in runtime._left_running
        gate.set()
        runtime._wait_for_engine()
        assert residency.snapshot().residents == {}
        asked.result(30)


# ── values ──────────────────────────────────────────────────────────────────


def test_what_is_told_crosses_processes(core: ServerCore) -> None:
    """Snapshots, statuses, answers and the log are values: pickled and read again, the same."""
    core.requests.infer(request_for("a", 1))
    for told in (
        core.status.snapshot(),
        core.status.counted(),
        core.status.index(),
        core.events.since(),
        core.status.trace(),
    ):
        assert pickle.loads(pickle.dumps(told)) == told
    response = core.requests.infer(request_for("a", 1))
    assert pickle.loads(pickle.dumps(response)).model == response.model


def test_the_trace_of_requests(core: ServerCore) -> None:
    """Each answered request, with its model, the bytes of its inputs, and its seconds."""
    core.requests.infer(request_for("a", 1))
    core.requests.infer(request_for("b", 1, 2))
    with pytest.raises(InvalidRequest):
        core.requests.infer(InferRequest("a", {}))
    told = core.status.trace()
    assert [each[1:3] for each in told] == [(ModelId("a", 1), 4), (ModelId("b", 1), 8)]
    assert all(seconds > 0 for *_, seconds in told)
    assert told[0][0] <= told[1][0]


# ── more verbs ──────────────────────────────────────────────────────────────


def test_what_a_load_would_take(core: ServerCore) -> None:
    """It is told without a load, and without waiting for one; broken models say why."""
    assert core.models.estimate("a") == Need(40)
    assert loaded(core) == set()
    with pytest.raises(ModelNotFound):
        core.models.estimate("nobody")


def test_unload_all(core: ServerCore) -> None:
    """Afterwards nothing is in memory; functions come back with the next request."""
    core.models.register(ModelId("f", 1), double(10))
    core.models.pin("a")
    core.models.unload_all()
    assert core.status.snapshot().models == ()
    assert core.status.snapshot().held_nbytes == 0
    assert not core.models.load("a").pinned
    assert core.requests.infer(request_for("f", 1)).outputs["y"].array.tolist() == [2]


def test_unload_all_from_within_a_run(core: ServerCore) -> None:
    """It is refused, since the run would wait for its own end."""
    unload = FunctionModel(lambda x: core.models.unload_all() or x, SPECS[:1], SPECS[1:])
    core.models.register(ModelId("f", 1), unload)
    with pytest.raises(RunFailed, match="UsageError: 'f' cannot be unloaded from within its own"):
        core.requests.infer(request_for("f", 1))


def test_records_go_on(core: ServerCore, tmp_path: Path) -> None:
    """A core that is given the records of another one goes on with its numbers and counts."""
    core.requests.infer(request_for("a", 1))
    core.close()
    other = ServerCore(Settings.of(tmp_path, environ={}), records=core.records)
    assert other.events is core.events
    assert other.status.trace() == core.status.trace() != ()


@pytest.mark.parametrize("what", ["a folder", "a file"])
def test_a_model_from_anywhere(core: ServerCore, tmp_path: Path, what: str) -> None:
    """A folder of versions, or a file of any name, is served by the name that it is given."""
    place = tmp_path.parent / f"{tmp_path.name}-elsewhere"
    (place / "1").mkdir(parents=True)
    (place / "1" / "model.onnx").touch()
    core._files.loader.sizes["mine"] = 10  # type: ignore[union-attr]
    core.models.add("mine", place if what == "a folder" else place / "1" / "model.onnx")
    assert "mine" in core.status.names()
    assert core.requests.infer(request_for("mine", 1)).model == ModelId("mine", 1)
    core.models.add("mine", place)
    assert core.models.load("mine").state is ModelState.READY


def test_what_cannot_be_added(core: ServerCore, tmp_path: Path) -> None:
    """A name of the repository's folders, and a place where nothing is, are refused."""
    with pytest.raises(
        RepositoryError, match="a model that is of the repository: choose another name"
    ):
        core.models.add("a", tmp_path / "b")
    with pytest.raises(RepositoryError, match="there is no"):
        core.models.add("mine", tmp_path / "nowhere")
    with pytest.raises(RepositoryError, match="no model can be called"):
        core.models.add(".mine", tmp_path / "b")


def test_what_was_added_may_be_added_as_something_else(core: ServerCore, tmp_path: Path) -> None:
    """A function takes the place of a file that was added with its name, and the reverse."""
    core.models.add("mine", tmp_path / "a")
    core.models.register(ModelId("mine", 1), double())
    assert isinstance(core.status.source("mine").origin, FunctionModel)
    core._files.loader.sizes["mine"] = 10  # type: ignore[union-attr]
    core.models.serve("mine", tmp_path / "a")
    assert isinstance(core.status.source("mine").origin, Path)
    reasons = [e.event.reason for e in core.events.since(0) if isinstance(e.event, ModelUnloaded)]
    assert reasons == ["replaced by a new definition"]
    core.models.remove("mine")
    assert "mine" not in core.status.names()


def test_what_was_added_is_removed(core: ServerCore, tmp_path: Path) -> None:
    """After a removal the model is not in memory, not found, and its name is free again."""
    core._files.loader.sizes["mine"] = 10  # type: ignore[union-attr]
    core.models.add("mine", tmp_path / "a", url="/where/it/was")
    core.models.load("mine")
    assert core.models.added() == {"mine": "/where/it/was"}
    assert "mine" in core.status.loaded()
    core.models.remove("mine")
    assert (core.models.added(), core.status.loaded(), core.status.snapshot().held_nbytes) == (
        {},
        frozenset(),
        0,
    )
    with pytest.raises(ModelNotFound):
        core.requests.infer(request_for("mine", 1))
    with pytest.raises(ModelNotFound, match="no model was added as 'mine'"):
        core.models.remove("mine")
    core.models.add("mine", tmp_path / "b")
    assert core.models.load("mine").state is ModelState.READY


def test_what_was_removed_is_forgotten(core: ServerCore, tmp_path: Path) -> None:
    """Of names that never come again nothing is kept but events."""

    def kept() -> list[str]:
        records, machine = core.records, core._running().residency._machine
        models = [*records.models, *records.telemetry._pasts, *records.telemetry._thrash._evicted]
        residents = machine.residents
        models += [*residents.homes, *residents.usages, *machine._failures]
        return [model[0] for model in models if model[0].startswith("sagemaker/")]

    for number in range(3):
        name = f"sagemaker/{number}"
        core._files.loader.sizes[name] = 40  # type: ignore[union-attr]
        core.models.add(name, tmp_path / "a")
        core.requests.infer(request_for(name, 1))
        core.requests.infer(request_for("a", 1))
        core.requests.infer(request_for("b", 1))  # which evicts it
        core._files.loader.failures[name] = LoadFailed("broken")  # type: ignore[union-attr]
        with pytest.raises(LoadFailed):
            core.requests.infer(request_for(name, 1))
        assert kept() == [name] * 6
        core.models.remove(name)
    assert kept() == []


def test_a_function_that_was_refused_is_let_go(core: ServerCore) -> None:
    """Once its name is removed, nothing keeps a function that there was no room for."""
    core.models.pin("a")

    def serve() -> weakref.ref[object]:
        served = double(90)
        with pytest.raises(MemoryExhausted):
            core.models.register(ModelId("f", 1), served)
        return weakref.ref(served.function)

    served = serve()
    assert served() is not None
    core.models.remove("f")
    gc.collect()
    assert served() is None


def test_a_closed_session_does_not_wait_for_the_collector(core: ServerCore) -> None:
    """It does not refer to its runner any more, which refers to it."""
    core.models.load("a")
    session = core._running().residency.session(core.status.resolve("a"))
    assert session is not None
    core.models.unload("a", until_gone=True)
    assert session.runner is None


def test_nothing_is_kept_of_a_load_that_failed(core: ServerCore) -> None:
    """What was found of the model's files is looked up again the next time."""
    core._files.loader.failures["a"] = LoadFailed("broken")  # type: ignore[union-attr]
    with pytest.raises(LoadFailed):
        core.models.load("a")
    assert core._running().sources._coming == {}


def test_a_function_is_added_and_removed(core: ServerCore) -> None:
    """A function can be added as a folder can, and is loaded by a load."""
    core.models.add("sagemaker/f", double(), url="/f")
    assert core.models.load("sagemaker/f").state is ModelState.READY
    assert core.requests.infer(request_for("sagemaker/f", 1)).outputs["y"].array.tolist() == [2]
    core.models.remove("sagemaker/f")
    assert core.status.functions() == {}


def test_names_of_the_platform_are_taken_by_nobody_else(core: ServerCore) -> None:
    """No model that comes with its load begins with the prefix that is SageMaker's."""
    with pytest.raises(ModelNotFound):
        core.models.load_all("sagemaker/e", '{"platform": "ensemble"}')
    with pytest.raises(InvalidRequest, match="does not begin with 'sagemaker/'"):
        core.models.load_all("sagemaker/e", "{}", {"1/model.onnx": b""})


def test_an_added_ensemble_brings_its_parts(sample_models: Path) -> None:
    """The steps of an added ensemble find its own parts, whatever the repository has."""
    core = ServerCore(Settings.of(sample_models, environ={}, device="cpu"))
    with inside.opened(core):
        names = ("digits_pixels", "digits_conv", "digits_label")
        parts = {name: sample_models / name for name in names}
        core.models.add("mine", sample_models / "digits_reader", parts=parts)
        core.models.load("mine")
        assert core.status.loaded() == {"mine", *(f"mine/{name}" for name in names)}
        core.models.remove("mine")
        assert core.status.loaded() == frozenset()
        assert not [name for name in core.status.names() if name.startswith("mine")]


def test_what_is_estimated_is_what_is_loaded(core: ServerCore, tmp_path: Path) -> None:
    """A load looks its folder up once: what changes meanwhile is for the next load."""
    sources = core._running().sources
    model = ModelId("a", 1)
    sources.estimate(model)
    (tmp_path / "a").rename(tmp_path / "gone")
    sources.wake(model)
    session = sources.load(model, CancellationToken())
    sources.warm_up(model, session, unwatched(), CancellationToken())
    session.close()
    with pytest.raises(ModelNotFound):
        sources.load(model, CancellationToken())


def test_an_estimate_needs_no_engine(sample_models: Path) -> None:
    """What a model would take is read in its file's header: the engine is not even imported."""
    code = (
        "import sys; from workbench.core import ServerCore\n"
        "from workbench.settings import Settings\n"
        "core = ServerCore(Settings.of(sys.argv[1], environ={}, device='cpu')); core.open()\n"
        "print(core.models.estimate('digits').nbytes > 0, 'onnxruntime' in sys.modules)\n"
        "core.close()"
    )
    command = [sys.executable, "-c", code, str(sample_models)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert told.split() == ["True", "False"]
