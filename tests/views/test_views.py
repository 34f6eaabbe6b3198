"""What people see: values in, text, HTML and figures out."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from workbench.core.status.snapshot import DeviceStatus, ModelStatus, Snapshot
from workbench.events import (
    Entry,
    MemoryRefused,
    ModelEvicted,
    ModelLoadCancelled,
    ModelLoaded,
    ModelLoadFailed,
    ModelLoading,
    ModelOutgrown,
    ModelUnloaded,
)
from workbench.memory.device import Device
from workbench.model import ModelId, ModelState, Signature, TensorSpec
from workbench.residency import LoadStatistics
from workbench.statistics import FailureReason, RequestStatistics
from workbench.views import board
from workbench.views.chart import memory_chart
from workbench.views.colours import INK, number_colour
from workbench.views.figures import memory_figure, memory_history
from workbench.views.history import History
from workbench.views.html import events_html, models_html, status_html
from workbench.views.objects import Model
from workbench.views.text import events_text, models_text, status_text
from workbench.views.times import show_age, show_seconds

A, B = ModelId("a", 1), ModelId("b", 2)
MIB = 2**20
CPU = Device("cpu", 0, "CPU", 8 * MIB)
REQUESTS = RequestStatistics()
for _duration_s in (0.0009, 0.0009, 0.0009, 0.0009, 2.0):
    REQUESTS.succeeded(0.0, 0.0, _duration_s, 0.0)
REQUESTS.failed(FailureReason.BACKEND, 0.5)
MODELS = (
    ModelStatus(A, ModelState.READY, 3 * MIB, 2, True, 0.5, "", REQUESTS.read(), run_nbytes=MIB),
    ModelStatus(B, ModelState.UNAVAILABLE, reason="asked <for>"),
)
SNAPSHOT = Snapshot(
    at_s=0.0,
    devices=(
        DeviceStatus(
            CPU,
            "no GPU is used: none",
            budget_nbytes=4 * MIB,
            claimed_nbytes=3 * MIB,
            held_nbytes=3 * MIB,
            surplus_nbytes=-MIB,
            base_nbytes=50 * MIB,
        ),
    ),
    models=MODELS,
)
STORY = [
    Entry(1, 10.0, ModelLoading(A, 3 * MIB)),
    Entry(2, 11.0, ModelLoaded(A, 2 * MIB, 1.0)),
    Entry(3, 12.0, ModelEvicted(A, 2 * MIB, "least recently used")),
    Entry(4, 12.0, ModelLoading(B, 4 * MIB)),
    Entry(5, 13.0, ModelLoadFailed(B, "broken")),
    Entry(6, 14.0, MemoryRefused(B, "b:2 needs too much")),
    Entry(7, 15.0, ModelUnloaded(A, 0, "unloaded by hand")),
]


class Balance(HTMLParser):
    """Every tag that opens, closes, in order; scripts are none."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        assert tag != "script"
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def assert_is_html(text: str) -> None:
    parser = Balance()
    parser.feed(text)
    assert parser.open == []


def test_models_text() -> None:
    """A model has a line; a pin is a star, numbers are at the right, in one unit a column."""
    head, first, second, legend = models_text(MODELS).splitlines()
    heads = ["model", "version", "state", "memory, MiB", "per run, MiB", "in flight", "requests"]
    assert re.split("  +", head) == [*heads, "failed", "p50, µs", "p99, s", "why"]
    assert re.split("  +", first) == [
        "a *",
        "1",
        "ready",
        "3.0",
        "1.0",
        "2",
        "5",
        "1",
        "962.9",
        "2.1",
    ]
    assert re.split("  +", second) == ["b", "2", "not loaded", "asked <for>"]
    assert first.index("3.0") + 3 == head.index("memory, MiB") + len("memory, MiB")
    assert legend == "* pinned: it is never evicted"
    assert "pinned" not in models_text(MODELS[1:])
    assert models_text(()) == "no models"


def test_what_models_take() -> None:
    """Inputs and outputs are columns where they are known; columns that say nothing are none."""
    x = {"x": TensorSpec("x", "FP32", (-1, 4)), "t": TensorSpec("t", "BYTES", ())}
    head, first, second, _ = models_text(MODELS, [None, Signature("p", x, {})]).splitlines()
    assert "takes" in head
    assert "gives" not in head
    assert "x FP32[-1,4], t BYTES[]" in second
    assert "[" not in first
    assert "x FP32[-1,4], t BYTES[]" in models_html(MODELS, [None, Signature("p", x, {})])
    nasty = Signature("p", {"x": TensorSpec("<i>", "FP32", ())}, {})
    assert "<i>" not in models_html(MODELS, [nasty, None])


def test_events_text() -> None:
    """A line an event, the newest first; below it those of the same model before, indented."""
    lines = events_text(STORY).splitlines()
    assert [line.split()[1:3] for line in lines] == [
        ["unload", "a:1,"], ["evict", "a:1,"], ["load", "a:1,"], ["loading", "a:1,"],
        ["refused", "b:2"], ["failed", "b:2:"], ["loading", "b:2,"],
    ]  # fmt: skip
    indented = [line.startswith("  ") for line in lines]
    assert indented == [False, True, True, True, False, True, True]
    assert events_text([]) == "no events"


def test_status_text() -> None:
    """The status names models, memory, device and why, in this order."""
    lines = status_text(SNAPSHOT).splitlines()
    assert lines[0] == "1 in memory, 3.0 MiB of 4.0 MiB, on cpu"
    assert lines[1] == "cpu: no GPU is used: none"
    books = "models: 3.0 MiB (measured 2.0 MiB); rest of the process: 50.0 MiB"
    assert lines[2] == f"cpu: {books}"
    assert lines[4].startswith("a *")
    over = replace(SNAPSHOT.devices[0], claimed_nbytes=6 * MIB, base_nbytes=None)
    lines = status_text(replace(SNAPSHOT, devices=(over,))).splitlines()
    books = "models: 3.0 MiB (measured 2.0 MiB); 2.0 MiB over the budget"
    assert lines[2] == f"cpu: {books}"


def test_several_devices() -> None:
    """With several devices the head line has their sums, and each has its own lines."""
    gpus = tuple(
        replace(SNAPSHOT.devices[0], device=Device("cuda", number, "H100", 8 * MIB), reason="there")
        for number in range(2)
    )
    lines = status_text(replace(SNAPSHOT, devices=gpus)).splitlines()
    assert lines[0] == "1 in memory, 6.0 MiB of 8.0 MiB, on cuda:0, cuda:1"
    assert [line.split(": ")[0] for line in lines[1:5]] == ["cuda:0"] * 2 + ["cuda:1"] * 2


@pytest.mark.parametrize(
    "text", [models_html(MODELS), events_html(STORY), status_html(SNAPSHOT, "http://<x>: ")]
)
def test_html_is_whole_and_escaped(text: str) -> None:
    """Every tag closes, nothing runs, and what comes from outside is escaped."""
    assert_is_html(text)
    assert "<for>" not in text
    assert "<x>" not in text


def test_newest_event_is_first_in_html() -> None:
    """In HTML events are folded by model; the newest comes first, of models and in each."""
    text = events_html(STORY)
    assert text.index("unloaded a:1") < text.index("evicted a:1") < text.index("loaded a:1, 2.0")
    assert text.index("unloaded a:1") < text.index("no memory: b:2")
    many = [Entry(n, 1.0, ModelLoading(ModelId(f"m{n}", 1), MIB)) for n in range(1, 41)]
    assert "loading m1:1" in events_html(many)


def test_model_keeps_its_values() -> None:
    """A model that shows itself has the values of the status that it was made of."""
    model = Model.of(MODELS[0])
    assert model.inputs == {}
    assert (model.id, model.nbytes, model.requests) == (A, 3 * MIB, MODELS[0].requests)
    assert repr(model) == models_text([MODELS[0]])


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.0, "-"), (25e-6, "25 µs"), (0.0012, "1.2 ms"), (0.5, "500.0 ms"), (2.0, "2.0 s")],
)
def test_show_seconds(seconds: float, shown: str) -> None:
    """Durations have the unit that fits them."""
    assert show_seconds(seconds) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.4, "0 s"), (59, "59 s"), (150, "2 min"), (7200, "2 h")]
)
def test_show_age(seconds: float, shown: str) -> None:
    """Ages are rounded to the unit that fits them."""
    assert show_age(seconds) == shown


def test_memory_history() -> None:
    """A model holds its claim while it loads, its measure once loaded, and nothing when gone."""
    history = memory_history(STORY)
    assert history.models == (A, B)
    assert history.times_s == (10.0, 11.0, 12.0, 12.0, 13.0, 14.0, 15.0)
    assert (history.held // MIB).tolist() == [[3, 2, 0, 0, 0, 0, 0], [0, 0, 0, 4, 0, 0, 0]]
    assert history.evictions == (12.0,)
    assert history.refusals == (14.0,)


def test_memory_history_of_surprises() -> None:
    """A model that outgrew its claim holds what it holds, and a load that was ended nothing."""
    history = memory_history([
        Entry(1, 10.0, ModelLoading(A, 3 * MIB)),
        Entry(2, 11.0, ModelOutgrown(A, 5 * MIB, 3 * MIB)),
        Entry(3, 12.0, ModelLoading(B, MIB)),
        Entry(4, 13.0, ModelLoadCancelled(B, "unloaded")),
    ])  # fmt: skip
    assert (history.held // MIB).tolist() == [[3, 5, 5, 5], [0, 0, 1, 0]]


def test_memory_history_of_a_reload() -> None:
    """While the next edition of a model comes and the old one goes, the model holds both."""
    new = A._replace(edition=1)
    history = memory_history([
        Entry(1, 10.0, ModelLoaded(A, 3 * MIB, 0.1)),
        Entry(2, 11.0, ModelLoading(new, 5 * MIB)),
        Entry(3, 12.0, ModelLoaded(new, 4 * MIB, 0.1)),
        Entry(4, 13.0, ModelUnloaded(A, 3 * MIB, "replaced")),
    ])  # fmt: skip
    assert history.models == (A,)
    assert (history.held // MIB).tolist() == [[3, 8, 7, 4]]


def test_memory_figure() -> None:
    """The figure has an area a model, the budget line at its height, and a mark an eviction."""
    figure = memory_figure(STORY, 4 * MIB, until_s=20.0)
    (axes,) = figure.axes
    assert len(axes.collections) == 2
    assert any(text.get_text() == "budget 4.0 MiB" for text in axes.texts)
    marks = {line.get_label(): line for line in axes.lines}
    assert np.asarray(marks["eviction"].get_xdata()).tolist() == [2.0]
    assert np.asarray(marks["refused"].get_ydata()).tolist() == [4.0]


def test_a_picture_of_many_events_is_small() -> None:
    """What is saved with a notebook grows with what a model does, not with all events by all."""
    entries = []
    for number in range(600):
        model = ModelId(f"m{number % 20}", 1)
        event = ModelLoaded(model, MIB, 0.1) if number % 40 < 20 else ModelUnloaded(model, MIB, "")
        entries.append(Entry(number + 1, 0.1 * number, event))
    figure = memory_figure(entries, 20 * MIB, until_s=60.0)
    assert len(figure.axes[0].collections) == 20
    assert len(figure._repr_html_()) < 400_000  # 1,300,000 with all edges at all events
    held = memory_history(entries).held.sum(axis=0) / MIB
    last = figure.axes[0].collections[-1].get_paths()[0].vertices  # the top of the last model
    assert last[:, 1].max() == held.max()


def test_memory_figure_of_nothing() -> None:
    """Without events there is an empty figure with the budget line."""
    figure = memory_figure([], 100, until_s=0.0)
    assert figure.axes[0].lines
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_the_card() -> None:
    """It leads to the server, has a segment a model with its name, and states as people say."""
    text = status_html(SNAPSHOT, "here: ", "http://there/")
    assert 'href="http://there/"' in text
    assert 'title="a: 3.0 MiB" style="width:75.00%' in text
    assert ">ready<" in text
    assert "Triton&#x27;s state: READY" in text
    assert "<details>" in text
    assert "per run, MiB" in text
    assert "in flight</th>" in text
    assert "in flight</th>" not in models_html([MODELS[1]])


def test_a_figure_has_the_colours_of_its_page() -> None:
    """Its text has the colour of the page's text; it has no background, and styles no page."""
    html = memory_figure(STORY, 4 * MIB, until_s=20.0)._repr_html_()
    svg = html[html.index("<svg") : html.index("</svg>")]
    assert svg.count("currentColor") > 10
    assert INK not in svg
    assert "#ffffff" not in svg
    assert "<style" not in svg
    assert "budget 4.0 MiB" in svg


def test_a_model_has_one_colour() -> None:
    """The bar of the card, the areas of both pictures and the dashboard's table agree."""
    third = replace(MODELS[0], device=CPU, load_statistics=LoadStatistics(loads=1, number=3))
    now = replace(SNAPSHOT, models=(third,))
    history = History()
    history.add(now)
    figure = memory_figure(STORY, 4 * MIB, 20.0, {A: 3})._repr_html_()
    chart = memory_chart(history, now.devices[0], [], 0.0)
    for view in (status_html(now), board.models_table(now, history), chart, figure):
        assert number_colour(3) in view
        assert number_colour(1) not in view
    assert number_colour(0) not in figure  # a model that is gone has one of its own
