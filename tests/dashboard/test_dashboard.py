"""The dashboard's widgets on a real server, without a kernel."""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from onnx_models import identity

from workbench import Workbench
from workbench.core.status.snapshot import Snapshot
from workbench.dashboard import controls, playground
from workbench.dashboard import feed as feed_module
from workbench.dashboard.controls import budget_steps
from workbench.dashboard.dashboard import Dashboard
from workbench.dashboard.feed import Feed
from workbench.errors import MemoryExhausted, WorkbenchError
from workbench.events import ModelEvicted
from workbench.memory import eviction
from workbench.views.calls import answer_html, calls
from workbench.views.pace import IDLE_S, Pace


@pytest.fixture
def server(sample_models: Path) -> Iterator[Workbench]:
    with Workbench(sample_models, budget="64MiB", device="cpu", port=0, grpc_port=0) as server:
        yield server


def after(dashboard: Dashboard, order: Callable[[], object]) -> None:
    """Give an *order*, and draw once it is carried out."""
    order()
    dashboard._executor.shutdown(wait=True)
    dashboard.draw()


def test_a_quiet_server_is_drawn_seldom() -> None:
    """A change is due at once; without one, five seconds pass."""
    pace = Pace()
    assert pace.is_due(1, 0.0, 0.0)
    assert not pace.is_due(1, 0.0, IDLE_S - 0.1)
    assert pace.is_due(2, 0.0, 1.0)
    assert pace.is_due(2, 0.0, 1.0 + IDLE_S)


def test_a_load_that_goes_on_is_drawn_again(
    server: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dashboard is due whenever the step of a load changes."""
    dashboard, steps = server.dashboard(), ["loading, 1 s"]
    dashboard.close()
    monkeypatch.setattr(server._core._running().progress, "all", lambda: tuple(steps))
    before = dashboard._mark()
    assert dashboard._mark() == before
    steps[0] = "loading, 2 s"
    assert dashboard._mark() != before


@pytest.mark.parametrize(
    ("spent_s", "pause_s"), [(0.0, 0.5), (0.001, 0.5), (0.0015, 0.75), (1, 1.0)]
)
def test_a_dear_draw_is_repeated_later(spent_s: float, pause_s: float) -> None:
    """For requests draws take at most a 500th of a processor; an event is drawn at once."""
    pace = Pace()
    assert pace.is_due("a", 1.0, 10.0)
    pace.spent(spent_s)
    assert not pace.is_due("a", 2.0, 10.0 + pause_s - 0.01)
    assert pace.is_due("a", 2.0, 10.0 + pause_s)
    assert not pace.is_due("a", 2.0, 10.0 + pause_s + 1.5)  # no request came since
    assert pace.is_due("b", 2.0, 10.0 + pause_s + 1.51)


def test_for_requests_alone_not_all_is_drawn() -> None:
    """All is drawn after an event and five seconds after the last time, else what they change."""
    pace, drawn = Pace(), []
    times = ((0.0, "a"), (1.0, "a"), (4.9, "a"), (5.0, "a"), (6.0, "b"), (10.9, "b"), (11.0, "b"))
    for at_s, mark in times:
        assert pace.is_due(mark, at_s, at_s)
        drawn.append(pace.is_whole)
    assert drawn == [True, False, False, True, True, False, True]


def test_requests_change_one_widget(server: Workbench) -> None:
    """Their update is one message."""
    server.infer("wine", np.zeros((1, 13), np.float32))
    dashboard = server.dashboard()
    dashboard.draw()
    sent: list[Any] = []
    for widget in (dashboard._live, dashboard._chart, dashboard._events, dashboard._panels):
        widget.observe(lambda change: sent.append(change["owner"]), "value")
    server.infer("wine", np.zeros((1, 13), np.float32))
    dashboard.draw(whole=False)
    assert sent == [dashboard._live]
    assert [m.requests.succeeded for m in dashboard._snapshot.models] == [2]


def test_the_feed_says_what_a_draw_took(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the CPU time of its own thread."""
    times_s, told = iter((1.0, 1.25)), []
    monkeypatch.setattr(feed_module.time, "thread_time", lambda: next(times_s))
    monkeypatch.setattr(Pace, "spent", lambda _, cpu_s: told.append(cpu_s))

    def draw(_whole: bool) -> None:
        feed._closed.set()

    feed = Feed(lambda: (None, 0.0), draw)
    feed._awake.set()
    feed._run()
    assert told == [0.25]


def test_a_feed_outlives_an_error() -> None:
    """A draw that fails is logged, and the next one comes."""
    drawn, again = [], threading.Event()

    def draw(_whole: bool) -> None:
        drawn.append(1)
        if len(drawn) == 1:
            feed.wake()
            raise RuntimeError("once")
        again.set()

    feed = Feed(lambda: (None, 0.0), draw)
    feed.start()
    assert again.wait(30)
    feed.close()


def test_all_parts_are_drawn(server: Workbench) -> None:
    """The head, the chart, the table and the events show a model after a request."""
    dashboard = server.dashboard()
    server.load("wine")
    dashboard.draw()
    assert f"{server.url} and gRPC at {server.grpc_url}" in dashboard._live.value
    assert "budget for models 64.0 MiB" in dashboard._chart.value
    assert "wine" in dashboard._live.value
    assert "loaded wine:1" in dashboard._events.value
    assert dashboard._controls.chooser.options == server.names
    assert dashboard._controls.keep_alive.label == "until room is needed"
    assert dashboard._marks.row.layout.display == "none"  # nothing was evicted or refused
    assert dashboard._panels.value == ""  # of a server without artifacts
    assert not dashboard._told


@pytest.mark.parametrize(
    ("before", "verb", "there", "pinned"),
    [
        (None, "load", True, False),
        ("load", "unload", False, False),
        (None, "pin", True, True),
        ("pin", "unpin", True, False),
    ],
)
def test_buttons_do_what_they_say(
    server: Workbench, before: str | None, verb: str, there: bool, pinned: bool
) -> None:
    """A click passes the order on for the chosen model, and the note says how it ended."""
    if before is not None:
        getattr(server, before)("wine")
    dashboard = server.dashboard()
    dashboard.draw()
    controls = dashboard._controls
    controls.chooser.value = "wine"
    (button,) = [each for each in controls.buttons if each.description.lower() == verb]
    after(dashboard, button.click)
    found = [(each.id.name, each.pinned) for each in server.snapshot().models]
    assert found == ([("wine", pinned)] if there else [])
    assert f"{verb} wine: done" in dashboard._note.value  # and not of the example for the choice


def test_a_model_that_works_is_chosen_at_first(tmp_path: Path) -> None:
    """It is one that is loaded, or else the first that is not known as broken."""
    (tmp_path / "a.onnx").write_bytes(b"no model")
    for name in ("b", "c"):
        identity(tmp_path / f"{name}.onnx")
    with Workbench(tmp_path, device="cpu", port=0) as server:
        with pytest.raises(WorkbenchError):
            server.load("a")
        for chosen in ("b", "c"):
            dashboard = server.dashboard()
            after(dashboard, dashboard.draw)
            assert dashboard._controls.chosen == chosen
            assert dashboard._note.value == ""
            server.load("c")


def test_broken_models_that_nobody_asked_for(tmp_path: Path) -> None:
    """They are listed as soon as the dashboard knows their names, until a request tells more."""

    def make(*names: str) -> None:
        for name in names:
            identity(tmp_path / name / "1" / "model.onnx")
            (tmp_path / name / "config.pbtxt").write_text("max_batch_size: many")

    make("a", "b", "c")
    with Workbench(tmp_path, device="cpu", port=0) as server:
        dashboard = server.dashboard()
        dashboard.draw()
        assert dashboard._live.value.count(">broken<") == 3
        dashboard._controls.find.value = "B"
        dashboard.draw()
        assert dashboard._live.value.count(">broken<") == 1
        dashboard._controls.find.value = ""
        (tmp_path / "a" / "config.pbtxt").unlink()
        make("d", "e")
        server.load("a")
        dashboard.draw()
        server.unload("a")
        dashboard.draw()
        assert dashboard._live.value.count(">broken<") == 4


def test_a_failed_order_is_one_line(server: Workbench) -> None:
    """The note says why a load failed."""
    dashboard = server.dashboard()
    after(dashboard, lambda: dashboard._act("load", "nobody"))
    assert "load nobody: " in dashboard._note.value


def test_the_slider_changes_the_budget_while_requests_run(server: Workbench) -> None:
    """A move of the slider is the server's budget: models that do not fit leave, none that runs."""
    runs, go = threading.Event(), threading.Event()

    def slow(x: np.ndarray) -> np.ndarray:
        runs.set()
        go.wait(60)
        return x

    declared = {"x": ("FP32", [-1])}
    server.register(slow, name="slow", inputs=declared, outputs=declared, memory="1MiB")
    server.register(lambda x: x, name="idle", inputs=declared, outputs=declared, memory="1MiB")
    server.load("idle")
    dashboard = server.dashboard()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(server.infer, "slow", [1.0])
        assert runs.wait(60)
        dashboard.draw()
        slider = dashboard._controls.slider

        def slide() -> None:
            slider.index = 0

        after(dashboard, slide)
        assert server.budget == slider.value == 2**20
        while any(m.nbytes for m in server.snapshot().models if m.id.name == "idle"):
            pass  # once its memory is free
        dashboard.draw()
        assert not answer.done()
        go.set()
        assert answer.result(60).tolist() == [1.0]
    assert "evicted idle:1, 1.0 MiB freed: " in dashboard._events.value
    assert "to fit the budget of 1.0 MiB" in dashboard._events.value
    assert server.snapshot().ready == 1


def test_policy_and_keep_alive_are_controls(server: Workbench) -> None:
    """They show the settings in use, and change them while the server runs."""
    server.load("wine")
    server.keep_alive = "7s"
    dashboard = server.dashboard()
    dashboard.draw()
    policy, keep_alive = dashboard._controls.policy, dashboard._controls.keep_alive
    assert (policy.value, keep_alive.value) == ("lru", 7.0)
    assert ("7 s", 7.0) in keep_alive.options

    def change() -> None:
        policy.value, keep_alive.value = "cost", 0.0

    after(dashboard, change)
    assert (server.evict, server.keep_alive) == ("cost", None)
    assert keep_alive.label == "until room is needed"
    assert server.settings.evict == "cost"
    assert ": done in " in dashboard._note.value


def test_each_policy_can_be_chosen() -> None:
    """The words of the control stand for all policies that there are."""
    assert [policy for _, policy in controls.POLICIES] == list(eviction.POLICIES)


def test_a_chosen_mark_tells_why(server: Workbench) -> None:
    """Evictions and refusals of the chart can be chosen; the reason stays while it is drawn."""
    dashboard = server.dashboard()
    server.load("wine")
    server.budget = "2KiB"
    with pytest.raises(MemoryExhausted):
        server.load("digits")
    while not any(isinstance(entry.event, ModelEvicted) for entry in server.events):
        pass  # once its memory is free
    dashboard.draw()
    chooser = dashboard._marks.chooser
    (_, none), *marks = chooser.options
    assert none == chooser.value
    told = {text.partition(" ")[2]: number for text, number in marks}  # without the time
    assert sorted(told) == ["evicted wine:1", "no memory for digits:1"]
    number = told["no memory for digits:1"]
    chooser.value = number
    for _ in range(2):
        dashboard.draw()
        assert "no memory: " in dashboard._marks._why.value
        assert "the budget is 2.0 KiB" in dashboard._marks._why.value
        server.budget = "64MiB"
        server.load("wine")
    assert chooser.value == number


def test_a_chart_is_drawn_for_what_is_new(
    server: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a third of an update: it is drawn when it moved and for an event, not for requests."""
    drawn: list[float] = []
    monkeypatch.setattr(
        "workbench.views.chart.memory_chart", lambda *now: drawn.append(now[3]) or "<svg/>"
    )
    core, beyond_s = server._core, 0.0

    def later(*_: Any, **options: Any) -> Snapshot:
        now = core.status.counted()
        return replace(now, at_s=now.at_s + beyond_s)

    monkeypatch.setattr(core.status, "glance", later)
    dashboard = server.dashboard()
    for beyond_s, count in ((0.0, 1), (0.1, 1), (4.0, 2), (4.1, 2)):
        dashboard.draw()
        assert len(drawn) == count, beyond_s
    server.load("wine")
    dashboard.draw()
    assert len(drawn) == 3


def test_finding_reads_few_models(server: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a text in the Find field, an update reads no more models than without one."""
    server.load("wine")
    dashboard = server.dashboard()
    monkeypatch.setattr(server._core.status, "counted", None)
    dashboard._controls.find.value = "WI"
    dashboard.draw()
    assert "wine:1" in dashboard._live.value
    assert not dashboard._told


def test_a_view_that_fails_is_one_line(server: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other parts are drawn, and the server answers."""

    def fail(*_: Any) -> str:
        raise RuntimeError("no picture")

    monkeypatch.setattr("workbench.views.chart.memory_chart", fail)
    dashboard = server.dashboard()
    dashboard.draw()
    assert "this part cannot be shown: RuntimeError: no picture" in dashboard._chart.value
    assert "Events" in dashboard._events.value
    assert httpx.get(f"{server.url}/v2/health/live").status_code == 200


@pytest.mark.parametrize(
    ("model", "words"),
    [("numbers", '"data": [0.0]'), ("text", '"data": ["text"]'), ("photo", '"base64"')],
)
def test_the_playground_sends_over_the_wire(tmp_path: Path, model: str, words: str) -> None:
    """The example of a model, a text or a picture too, is a valid request; its answer is shown."""
    identity(tmp_path / "numbers.onnx")
    identity(tmp_path / "text.onnx", "BYTES")
    identity(tmp_path / "photo.onnx", dims=("n", 3, 224, 224))
    with Workbench(tmp_path, device="cpu", port=0) as server:
        dashboard = server.dashboard()
        after(dashboard, lambda: dashboard._choose(model))
        body = dashboard._controls.request.value
        assert words in body
        assert len(body) < 3000
        answer = playground.send(server.url, server.token, model, body)
        assert answer.startswith("200 in ")
        assert playground.send(server.url, "", model, "{").startswith("400 in ")


def test_an_answer_is_shown_with_each_client(server: Workbench) -> None:
    """What is shown to be pasted is what the model's card shows; a token is never part of it."""
    body = playground.example(server._core.status.signature("wine"))
    shown = answer_html(server.settings, server.url, "wine", body, "200", token=True)
    for way, call in calls(
        server.settings, server.url, "wine", json.loads(body), token=True
    ).items():
        assert f"the same with {way}<" in shown
        assert escape(call) in shown
    assert shown.count("the same with ") == 5
    of_artifacts = server.settings.changed(artifacts="artifacts")  # whose endpoints have others
    assert "boto3" not in answer_html(of_artifacts, server.url, "wine", body, "200", token=True)


def test_an_answer_to_a_mistake_is_shown(server: Workbench) -> None:
    """Data of another shape: the server's answer is seen, and the clients that send it as it is."""
    tensor = {"name": "features", "shape": [2, 2], "datatype": "FP32", "data": [1, 2, 3]}
    body = json.dumps({"inputs": [tensor]})
    shown = answer_html(
        server.settings, server.url, "wine", body, "400: it has 3 elements", token=False
    )
    assert "400: it has 3 elements" in shown
    assert "the same with curl" in shown
    assert "tritonclient" not in shown


def test_a_stopped_server_is_said_to_be_stopped(server: Workbench) -> None:
    """The head says when it was seen, and a dashboard that was closed takes no more orders."""
    dashboard = server.dashboard()
    server.infer("wine", np.zeros((1, 13), np.float32))
    server.stop()
    dashboard.draw()
    assert "stopped at " in dashboard._live.value
    dashboard._act("load", "wine")
    assert set(dashboard._picture()) == {"text/html", "text/plain"}
    assert "data:image/svg+xml;base64," in dashboard._picture()["text/html"]


@pytest.mark.parametrize("way", ["stop", "snapshot"])
def test_the_last_picture_is_of_the_last_moment(server: Workbench, way: str) -> None:
    """It has what happened since the last update, and not that a stop unloaded all models."""
    dashboard = server.dashboard()
    server.infer("wine", np.zeros((1, 13), np.float32))
    if way == "stop":
        server.stop()
    else:
        server.close_dashboard()
    html = dashboard._picture()["text/html"]
    assert "<b>1 of 7</b> models ready" in html
    assert "loaded wine:1" in html
    assert ("stopped at " if way == "stop" else "as it was at ") in html


def test_all_drawings_of_the_picture_are_images(server: Workbench) -> None:
    """Readers of a file that nobody trusts take drawings out of HTML, and leave images."""
    dashboard = server.dashboard()
    server.infer("wine", np.zeros((1, 13), np.float32))
    dashboard.draw()
    assert "<svg" in dashboard._live.value
    html = dashboard._picture()["text/html"]
    assert "<svg" not in html
    assert html.count("data:image/svg+xml;base64,") == 2  # memory over time, requests over time


def test_one_dashboard_is_live(server: Workbench) -> None:
    """A new one closes the one before; a restart of the server keeps it."""
    first, second = server.dashboard(), server.dashboard()
    server.restart(budget="32MiB")
    assert first._closed
    assert not second._closed
    second.draw()
    assert "32.0 MiB" in second._live.value


def test_budgets_to_choose_have_the_present_one() -> None:
    """They go from 1 MiB to the memory of the device, and hold the budget itself."""
    steps = [nbytes for _, nbytes in budget_steps(5_000_000, 2**30)]
    assert steps == sorted(steps)
    assert 5_000_000 in steps
    assert steps[-1] == 2**30


def test_the_buttons_of_a_model_are_in_one_row() -> None:
    """Beside the search, with long names to choose from, in the 730 pixels that JupyterLab leaves.

    A dropdown is as wide as its longest option unless it says how narrow it may be.
    """

    def nothing(*_: object) -> None:
        pass

    shown = controls.Controls(nothing, nothing, nothing, nothing, nothing)
    row = [shown.find, shown.chooser, *shown.buttons]
    assert shown.bar.children[0].children == tuple(row)
    least = [each.layout.min_width or each.layout.width for each in row]
    margins = 4 * len(row)
    assert sum(int(each.removesuffix("px")) for each in least) + margins <= 698
