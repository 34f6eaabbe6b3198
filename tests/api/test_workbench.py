"""The workbench as a Python object."""

import pydoc
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from inside import until
from onnx_models import ENDLESS, identity, loop

from doubles import FakeFiles, FakeLoader
from workbench import Workbench
from workbench.core import ServerCore
from workbench.errors import (
    InvalidRequest,
    MemoryExhausted,
    ModelNotFound,
    PortInUse,
    RepositoryError,
    RequestStopped,
    ServerNotRunning,
    SettingError,
    UsageError,
)
from workbench.events import ModelUnloading
from workbench.model import ModelId
from workbench.settings import declared

X = {"x": ("FP32", [-1])}
Y = {"y": ("FP32", [-1])}
BODY = {"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}]}


def test_import_has_no_side_effects() -> None:
    """What a start needs is imported when it is used; the package and its class start no thread."""
    heavy = [
        "uvicorn", "litestar", "matplotlib", "IPython", "ipywidgets", "onnxruntime", "httpx",
        "pynvml", "importlib.metadata", "workbench.annexes.conversion.convert", "workbench.http",
        "workbench.contracts", "workbench.host.server", "workbench.dashboard",
        "workbench.annexes.planner.plan", "workbench.grpc",
    ]  # fmt: skip
    code = (
        "import sys, threading; from workbench import Workbench\n"
        f"print(sys.modules.keys() & {set(heavy)}, threading.active_count())"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "set() 1\n"


def test_help_shows_each_setting() -> None:
    """``help(Workbench)`` says what each setting is."""
    shown = " ".join(pydoc.plain(pydoc.render_doc(Workbench)).replace(" |  ", "").split())
    for option in declared():
        assert f"{option.name}: {option.help}" in shown


def test_digits(server: Workbench, held_out: dict[str, Any]) -> None:
    """A real model answers numpy with numpy, correctly on data that it has not seen."""
    probabilities = server.infer("digits", held_out["digits_x"])
    assert isinstance(probabilities, np.ndarray)
    assert probabilities.shape == (450, 10)
    assert (probabilities.argmax(axis=1) == held_out["digits_y"]).mean() > 0.96


def test_the_same_as_over_http(server: Workbench, held_out: dict[str, Any]) -> None:
    """What infer returns is what HTTP returns, to the last bit."""
    images = held_out["digits_x"][:3]
    pixels = {"name": "pixels", "shape": [3, 64], "datatype": "FP32", "data": images.tolist()}
    body = {"inputs": [pixels]}
    answer = httpx.post(f"{server.url}/v2/models/digits/infer", json=body).json()
    over_http = np.float32(answer["outputs"][0]["data"]).reshape(3, 10)
    assert np.array_equal(over_http, np.asarray(server.infer("digits", images)))


def test_outputs_are_the_callers_own(server: Workbench, held_out: dict[str, Any]) -> None:
    """An output may be written to, and kept when the model is gone."""
    output = server.infer("wine", held_out["wine_x"][:1])
    assert isinstance(output, np.ndarray)
    assert output.flags.owndata
    output[0, 0] = 7


def test_lifecycle(sample_models: Path) -> None:
    """Start and stop may be called twice; a stopped workbench starts again."""
    workbench = Workbench(sample_models)
    assert not workbench.is_running
    assert "not running" in repr(workbench)
    with pytest.raises(ServerNotRunning, match=r"start\(\) it"):
        _ = workbench.url
    with pytest.raises(ServerNotRunning):
        workbench.infer("digits", np.zeros((1, 64), np.float32))
    for _ in range(2):
        assert workbench.start() is workbench.start()
        assert httpx.get(f"{workbench.url}/v2/health/ready").status_code == 200
        workbench.stop()
        workbench.stop()
    assert not workbench.is_running


def test_leaving_the_block_stops(sample_models: Path) -> None:
    """The end of the with block stops the server, also after an error."""
    with pytest.raises(ZeroDivisionError), Workbench(sample_models) as workbench:
        raise ZeroDivisionError
    assert not workbench.is_running


def test_a_mistake_raises_at_once(sample_models: Path, tmp_path: Path) -> None:
    """A bad repository or setting raises where it is written, before anything starts."""
    with pytest.raises(RepositoryError, match="does not exist"):
        Workbench(tmp_path / "none")
    with pytest.raises(SettingError, match="'64 mugs' is not an amount of memory"):
        Workbench(sample_models, budget="64 mugs")
    with pytest.raises(SettingError, match=r"no setting 'bugdet'; did you mean 'budget'\?"):
        Workbench(sample_models, bugdet="64MiB")


def test_attributes_that_do_not_exist() -> None:
    """An attribute that a workbench does not have cannot be set by a typo."""
    with pytest.raises(
        AttributeError, match="no attribute 'budgett' to set; did you mean 'budget'"
    ):
        Workbench().budgett = "1MiB"  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"'port' to set: wb\.restart\(port=...\) changes it"):
        Workbench().port = 9000  # type: ignore[attr-defined]


@pytest.mark.parametrize("repository", [5, [5], 0.5])
def test_what_is_no_folder(repository: Any) -> None:
    """It is told in one line, as other settings are."""
    with pytest.raises(SettingError, match=r"^repository: [0-9.]+ is not a folder$"):
        Workbench(repository)


def test_a_version_that_is_a_text(server: Workbench) -> None:
    """The error shows that it is one, since "1" is not 1."""
    with pytest.raises(UsageError, match=r"^the version of a model is an int, such as 1, not '1'$"):
        server.infer("wine", np.zeros((1, 13)), version="1")  # type: ignore[arg-type]


def test_a_taken_port_raises_in_start(server: Workbench, sample_models: Path) -> None:
    """A port in use raises in start, and leaves nothing running."""
    port = int(server.url.rpartition(":")[2])
    workbench = Workbench(sample_models, port=port)
    with pytest.raises(PortInUse):
        workbench.start()
    assert not workbench.is_running


@pytest.mark.parametrize(
    ("declaration", "message"),
    [
        ({"inputs": {}}, "inputs are declared as"),
        ({"inputs": {"x": "FP32"}}, r"input 'x' is declared as \(datatype, shape\)"),
        ({"inputs": {"x": ("float32", [1])}}, "datatype 'float32'; it is one of BOOL"),
        ({"outputs": {"y": ("FP32", [0])}}, "sizes from 1, or -1"),
        ({"outputs": {"y": ("FP32", ["2n"])}}, "sizes from 1, or -1"),
        ({"outputs": {"y": ("FP32", "n")}}, "declared as|sizes from 1"),
        ({"version": 0}, "a whole number from 1, not 0"),
        ({"name": None}, "needs name="),
        ({"name": "sagemaker/a"}, "are SageMaker's"),
        ({"memory": "lots"}, "not an amount of memory"),
        ({"batch": -1}, "batch= is a number, 0 or more, not -1"),
        ({"max_queue_delay": "1ms"}, "max_queue_delay= is for a model with batch="),
        ({"batch": 4, "outputs": {"y": ("FP32", [2])}},
         r"'y' has shape \[2\]: with batch= the first dimension is the batch, -1"),
    ],
)  # fmt: skip
def test_declarations_that_make_no_sense(declaration: dict[str, Any], message: str) -> None:
    """A declaration that makes no sense is a usage error that says how to write it."""
    given = {"inputs": X, "outputs": Y, "name": "f", **declaration}
    with pytest.raises(UsageError, match=message):
        Workbench().register(lambda x: x, **given)


def test_events_tell_the_story(sample_models: Path, held_out: dict[str, Any]) -> None:
    """Loading, eviction and stopping are in the events, in order, with reasons."""
    with Workbench(sample_models) as workbench:
        workbench.infer("digits", held_out["digits_x"][:1])
        workbench.unload("digits")
    kinds = [entry.event.kind for entry in workbench.events]
    assert kinds == ["device", "start", "loading", "load", "unloading", "unload", "stop"]
    assert [entry.number for entry in workbench.events] == list(range(1, 8))


def test_waiting_for_events(server: Workbench) -> None:
    """Waiting for events returns those after a number, or none when the time is over."""
    last = server.events[-1].number
    assert server.wait_for_events(last, 0.0) == ()
    assert server.wait_for_events(last - 1, 0.0)[-1].number == last


def test_everything_shows_itself() -> None:
    """Every object has a text and an HTML form, in which names from clients are escaped."""
    with Workbench() as workbench:
        workbench.register(lambda x: x, name="<script>", inputs=X, outputs=Y)
        shown = (workbench, workbench.models, workbench.models[0], workbench.events)
        for thing in (*shown, workbench.snapshot(), workbench.load("<script>")):
            assert "<script>" in repr(thing)
            assert "&lt;script&gt;" in thing._repr_html_()
            assert "<script>" not in thing._repr_html_()
    assert "not running" in workbench._repr_html_()


def test_the_picture_outlives_the_server(sample_models: Path) -> None:
    """What happened can still be looked at when the server is stopped."""
    with Workbench(sample_models, budget="64MiB") as workbench:
        workbench.load("wine")
    assert workbench.events
    texts = [text.get_text() for text in workbench.plot_memory().axes[0].texts]
    assert "budget 64.0 MiB" in texts


def test_the_budget_changes_while_it_runs(sample_models: Path) -> None:
    """What fits no more leaves, and settings, snapshot, picture and a restart have the new one."""
    workbench = Workbench(sample_models, budget="64MiB", device="cpu")
    assert workbench.budget == 64 * 2**20
    with workbench:
        workbench.load("wine")
        workbench.budget = "2KiB"
        with pytest.raises(MemoryExhausted, match=r"the budget is 2.0 KiB"):
            workbench.load("digits")
        gone = [entry for entry in workbench.events if isinstance(entry.event, ModelUnloading)]
        assert gone[-1].event.reason == "least recently used, to fit the budget of 2.0 KiB"
        workbench.budget = 32 * 2**20
        workbench.load("digits")
        for _ in range(2):
            assert workbench.settings.budget == workbench.budget == 32 * 2**20
            assert workbench.snapshot().budget_nbytes == 32 * 2**20
            texts = [text.get_text() for text in workbench.plot_memory().axes[0].texts]
            assert "budget 32.0 MiB" in texts
            workbench.restart()
    workbench.budget = "8MiB"
    with workbench:
        assert workbench.snapshot().budget_nbytes == 8 * 2**20


def test_policy_and_keep_alive_change_while_it_runs(server: Workbench) -> None:
    """They hold from then on, a restart keeps them, and wrong ones change nothing."""
    server.evict, server.keep_alive = "largest", "5min"
    for _ in range(2):
        assert (server.evict, server.settings.evict) == ("largest", "largest")
        assert server.keep_alive == server.settings.keep_alive == 300.0
        server.restart()
    for wrong in ("soon", -1, 0, True):
        with pytest.raises(SettingError, match="keep_alive: "):
            server.keep_alive = wrong
    for wrong in ("mru", None):
        with pytest.raises(SettingError, match="evict: "):
            server.evict = wrong  # type: ignore[assignment]
    assert (server.evict, server.keep_alive) == ("largest", 300.0)
    server.keep_alive = None
    assert server.keep_alive is None


def test_a_share_of_the_memory(sample_models: Path) -> None:
    """A budget of 50% is half of the device's memory, at the start and later."""
    with Workbench(sample_models, device="cpu", budget="25%") as workbench:
        total_nbytes = workbench.snapshot().devices[0].device.total_nbytes
        assert workbench.budget == total_nbytes // 4
        workbench.budget = "50%"
        assert workbench.budget == total_nbytes // 2
        workbench.restart()
        assert workbench.budget == total_nbytes // 2
    with pytest.raises(SettingError, match="64 has no unit"):
        workbench.budget = 64


def test_an_interrupt_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever interrupts the cell that waits for a run ends the run as well."""
    loop(tmp_path / "endless.onnx")
    runs: list[Any] = []
    with Workbench(tmp_path) as workbench, ThreadPoolExecutor(1) as pool:
        core = workbench._core

        def interrupted(verb: Any, *args: object) -> None:
            runs.append(pool.submit(verb, *args))
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(core._opened, "call", interrupted)
            with pytest.raises(KeyboardInterrupt):
                workbench.infer("endless", ENDLESS)
        with pytest.raises(RequestStopped, match="interrupted"):
            runs[0].result().get(timeout=30).result()


def test_an_interrupt_ends_the_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever interrupts the cell that waits for a load ends the load as well."""
    loader = FakeLoader({"slow": 10}, gates={"slow": threading.Event()})
    identity(tmp_path / "slow.onnx")
    loads: list[Any] = []
    workbench = Workbench(tmp_path)
    workbench._serving.core = ServerCore(workbench.settings, files=FakeFiles(loader))
    with workbench, ThreadPoolExecutor(1) as pool:

        def interrupted(verb: Any, *args: object, **_: object) -> None:
            loads.append(pool.submit(verb, *args))
            until(lambda: loader.live_nbytes > 0)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(workbench._core, "call", interrupted)
            with pytest.raises(KeyboardInterrupt):
                workbench.load("slow")
        with pytest.raises(RequestStopped, match="interrupted"):
            loads[0].result()
    assert [entry.event.kind for entry in workbench.events][-2:] == ["cancelled", "stop"]
    assert loader.live_nbytes == 0


def test_a_load_brings_a_model(tmp_path: Path, sample_models: Path) -> None:
    """A configuration and files make a model that no folder has, until it is unloaded."""
    file = sample_models / "wine" / "1" / "model.onnx"
    x = np.ones((2, 13), np.float32)
    with Workbench(tmp_path, device="cpu") as wb:
        by_path = wb.load("mine", config={}, files={"1/model.onnx": file})
        assert by_path.id == ModelId("mine", 1)
        expected = wb.infer("mine", x)
        wb.load("mine", config='{"max_batch_size": 4}', files={"2/model.onnx": file.read_bytes()})
        assert np.array_equal(wb.infer("mine", x), expected)
        assert wb.names == ("mine",)
        assert wb.unload("mine") is None
        assert wb.names == ()


def test_an_ensemble_without_a_folder(sample_models: Path) -> None:
    """It is made of a configuration alone, lasts as long as it is loaded, and loads again."""
    spec = {"data_type": "TYPE_FP32", "dims": [-1, 64]}
    config = {
        "platform": "ensemble",
        "input": [{"name": "ink", **spec}],
        "output": [{"name": "classes", "data_type": "TYPE_FP32", "dims": [-1, 10]}],
        "ensemble_scheduling": {"step": [
            {"model_name": "digits", "model_version": -1, "input_map": {"pixels": "ink"},
             "output_map": {"probabilities": "classes"}}
        ]},
    }  # fmt: skip
    x = np.ones((1, 64), np.float32)
    with Workbench(sample_models, device="cpu") as wb:
        wb.load("reader", config=config)
        assert np.array_equal(wb.infer("reader", x), wb.infer("digits", x))
        wb.load("reader")
        assert "reader" in wb.names
        wb.unload("reader", dependents=True)
        assert "reader" not in wb.names
        assert wb.snapshot().models == ()


@pytest.mark.parametrize(
    ("arguments", "error", "told"),
    [
        ({"config": {"a": object()}}, UsageError, "config is JSON, or a dict of what JSON can say"),
        ({"config": {}, "version": 1}, UsageError, "is of all versions: leave out the version"),
        ({"config": "{", "files": {}}, InvalidRequest, "load parameter 'config':"),
        ({"config": {}}, ModelNotFound, "there is no model 'mine'"),
        ({"config": {}, "files": {"1/model.onnx": "/nowhere.onnx"}}, UsageError,
         "the file '/nowhere.onnx' for '1/model.onnx': No such file or directory"),
        ({"files": {"1/model.onnx": b""}}, InvalidRequest, "files needs their configuration"),
    ],
)  # fmt: skip
def test_a_load_that_brings_what_cannot_be(
    tmp_path: Path, arguments: dict[str, Any], error: type[Exception], told: str
) -> None:
    """What is wrong is said in one line."""
    with Workbench(tmp_path, device="cpu") as wb, pytest.raises(error, match=told):
        wb.load("mine", **arguments)


@pytest.mark.parametrize("batches", [0, 4])
def test_an_input_with_a_default(batches: int) -> None:
    """A function's input may be left out where its parameter has a default."""
    workbench = Workbench(device="cpu")
    spec = ("FP32", [-1, 1])

    @workbench.model(inputs={"x": spec, "by": spec}, outputs={"y": spec}, batch=batches)
    def scaled(x: np.ndarray, by: np.ndarray | float = 3.0) -> np.ndarray:
        return x * by

    with workbench:
        x, by = np.ones((2, 1), np.float32), np.full((2, 1), 5, np.float32)
        assert np.asarray(workbench.infer("scaled", {"x": x})).tolist() == [[3], [3]]
        assert np.asarray(workbench.infer("scaled", {"x": x, "by": by})).tolist() == [[5], [5]]
        told = httpx.get(f"{workbench.url}/v2/models/scaled/config").json()["input"]
        assert [(each["name"], each["optional"]) for each in told] == [("x", False), ("by", True)]
        with pytest.raises(InvalidRequest, match="lacks input 'x'"):
            workbench.infer("scaled", {"by": by})


def test_a_function_without_a_signature() -> None:
    """What is written in C may tell nothing of its parameters: all inputs are needed."""
    workbench = Workbench(device="cpu")
    workbench.register(max, name="largest", inputs=X, outputs={"y": ("FP32", [])})
    with workbench, pytest.raises(InvalidRequest, match="lacks input 'x'"):
        workbench.infer("largest", {})


def test_no_thread_begins_while_the_process_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is collected while Python ends starts no thread, which Python 3.12 refuses."""
    workbench = Workbench(device="cpu").start()
    workbench.stop()
    monkeypatch.setattr(sys, "is_finalizing", lambda: True)
    monkeypatch.setattr(threading.Thread, "start", lambda thread: pytest.fail(thread.name))
    assert workbench._starter._finalizer is not None
    workbench._starter._finalizer()
