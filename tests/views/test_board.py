"""The parts of the dashboard: pure functions of snapshots, history and events."""

import re
from dataclasses import replace

import pytest

from workbench.core.status.snapshot import DeviceStatus, LeftOut, ModelStatus, Snapshot
from workbench.events import (
    Entry,
    Event,
    MemoryRefused,
    ModelEvicted,
    ModelLoaded,
    ModelLoadFailed,
    ServerStarted,
)
from workbench.memory.device import Device, GpuReading, MemoryReading
from workbench.model import ModelId, ModelState
from workbench.residency import Absence, AbsenceKind, LoadStatistics
from workbench.statistics import BUCKETS_S, FailureReason, RequestCounts
from workbench.views import board
from workbench.views.chart import as_image, legend, memory_chart, memory_charts
from workbench.views.colours import BLUE, GREEN, GREY, ORANGE, RED
from workbench.views.history import NO_TRAFFIC, History
from workbench.views.page import page_parts
from workbench.views.times import clock_time

MIB = 2**20
CPU = Device("cpu", 0, "CPU", 1024 * MIB)
GPU = Device("cuda", 0, "NVIDIA H200", 1024 * MIB)
BROKEN = ModelId("d", 1)
NASTY = "<script>alert(1)</script>" + "x" * 175


def counts(ended: int, at_s: float) -> RequestCounts:
    """*ended* requests of about a millisecond each, the last one at *at_s*."""
    bucket = next(index for index, bound_s in enumerate(BUCKETS_S) if bound_s >= 0.001)
    buckets = [0] * (len(BUCKETS_S) + 1)
    buckets[bucket] = ended
    return RequestCounts(ended, last_at_s=at_s, buckets=tuple(buckets))


def ready(name: str, nbytes: int = MIB, device: Device = CPU, ended: int = 0) -> ModelStatus:
    model = ModelStatus(ModelId(name, 1), ModelState.READY, nbytes, device=device)
    return replace(model, requests=counts(ended, 999.0 if ended else 0.0))


def snapshot(*models: ModelStatus, at_s: float = 1000.0, device: Device = CPU) -> Snapshot:
    status = DeviceStatus(device, "a reason", 10 * MIB, base_nbytes=MIB)
    return Snapshot(at_s, (status,), models)


def seen(*snapshots: Snapshot) -> History:
    history = History()
    for each in snapshots:
        history.add(each)
    return history


def test_events_say_what_was_before_the_first_look() -> None:
    """The chart begins with what models held by the events, also after a pause of the looking."""
    a, b = ModelId("a", 1), ModelId("b", 1)
    told: list[tuple[float, Event]] = [
        (980.0, ServerStarted("")),
        (982.5, ModelLoaded(a, MIB, 0.1)),
        (990.5, ModelEvicted(a, MIB, "for b")),
        (991.5, ModelLoaded(b, 2 * MIB, 0.1)),
        (1001.0, ModelEvicted(b, 2 * MIB, "after the look")),
    ]
    entries = [Entry(number, *each) for number, each in enumerate(told, 1)]
    history = History()
    for begin_s in (0.0, 900.0):  # the events of the second look are as those of the first
        moved = [entry._replace(at_s=entry.at_s + begin_s) for entry in entries]
        history.add(snapshot(ready("b", 2 * MIB), at_s=1000.0 + begin_s), moved)
        held = {sample.at_s - begin_s: sample.held for sample in history.samples("cpu")}
        assert min(held) == 980.0
        assert [held[at_s] for at_s in (982.0, 983.0, 990.0, 991.0)] == [
            {}, {"a:1": MIB}, {"a:1": MIB}, {},
        ]  # fmt: skip
        assert held[992.0] == held[1000.0] == {"b:1": 2 * MIB}


def test_rates_are_of_the_last_seconds() -> None:
    """Ten requests within the last second, after a quiet one, are some each second."""
    history = seen(
        snapshot(ready("a", ended=5), at_s=990.0),
        snapshot(ready("a", ended=5), at_s=998.0),
        snapshot(replace(ready("a"), requests=counts(15, 999.5)), at_s=1000.0),
    )
    traffic = history.traffic(ModelId("a", 1))
    assert traffic.rate == 10 / 5
    assert 0.00084 < traffic.p99_s < 0.0013
    assert sum(traffic.recent) == 10
    assert history.all_traffic == traffic


def test_p99_is_of_the_slowest_in_a_hundred() -> None:
    """Of 100 requests, 97 in a millisecond and 3 in longer than any bound, it is the highest."""
    buckets = list(counts(97, 999.0).buckets)
    buckets[-1] = 3
    slow = RequestCounts(100, last_at_s=1000.0, buckets=tuple(buckets))
    history = seen(snapshot(at_s=999.0), snapshot(replace(ready("a"), requests=slow)))
    assert history.traffic(ModelId("a", 1)).p99_s == slow.p99_s == BUCKETS_S[-1]


def test_old_requests_are_no_traffic() -> None:
    """What was counted before the first snapshot, and what is long past, has no rate."""
    busy = snapshot(replace(ready("a"), requests=counts(9, 1000.0)), at_s=1000.0)
    history = seen(snapshot(ready("a", ended=5), at_s=999.0), busy, replace(busy, at_s=1400.0))
    assert history.traffic(ModelId("a", 1)).rate == 0
    assert not any(history.traffic(ModelId("a", 1)).recent)


def test_history_ends_after_its_window() -> None:
    """Samples older than the window are dropped."""
    history = seen(*(snapshot(ready("a"), at_s=float(at_s)) for at_s in range(0, 1000, 4)))
    samples = history.samples("cpu")
    assert samples[0].at_s == 996 - 300
    assert samples[-1].held == {"a:1": MIB}


def test_history_begins_again_after_a_gap() -> None:
    """What was not seen, as nobody looked, is not drawn as if memory had not changed."""
    history = seen(*(snapshot(ready("a"), at_s=at_s) for at_s in (1.0, 4.0, 100.0, 103.0)))
    assert [sample.at_s for sample in history.samples("cpu")] == [100.0, 103.0]


def test_a_clock_that_is_set_back() -> None:
    """The history begins again: later samples and requests would hide the present for as long."""
    at = (9000.0, 9010.0, 100.0, 103.0, 104.0)
    history = seen(*(snapshot(ready("a", ended=int(at_s)), at_s=at_s) for at_s in at[:2]))
    for ended, at_s in enumerate(at[2:], 9012):
        history.add(snapshot(replace(ready("a"), requests=counts(ended, at_s)), at_s=at_s))
    assert [sample.at_s for sample in history.samples("cpu")] == [100.0, 103.0]
    assert history.all_traffic.rate == 2 / 4
    assert len(history.all_traffic.recent) == len(history.traffic(ModelId("a", 1)).recent) == 30
    assert history.colour("a:1") == seen(snapshot(ready("a"))).colour("a:1")


@pytest.mark.parametrize(
    ("second", "changed"),
    [
        ({}, False),
        ({"base_nbytes": 2 * MIB - 10}, False),  # less than a hundredth of 100 MiB
        ({"base_nbytes": 3 * MIB}, True),
        ({"held_nbytes": 2}, True),
    ],
)
def test_a_chart_changes_when_that_is_seen(second: dict[str, int], changed: bool) -> None:
    """With the models' memory, with a hundredth of the budget, or each three seconds."""
    status = DeviceStatus(CPU, "a reason", 100 * MIB, base_nbytes=MIB, held_nbytes=1)
    history = History()

    def add(at_s: float, **figures: int) -> bool:
        return history.add(Snapshot(at_s, (replace(status, **figures),), ()))  # type: ignore[arg-type]

    assert [at_s for at_s in range(1000, 1300) if add(at_s)][-2:] == [1294, 1297]
    assert not add(1299.0)
    assert add(1299.5, **second) is changed


def test_everything_is_escaped() -> None:
    """A name with a script is text in all parts, and is cut in a table."""
    model = replace(ready(NASTY), reason=NASTY)
    now = snapshot(model)
    entry = Entry(1, 999.0, ModelEvicted(model.id, MIB, NASTY))
    history = seen(now)
    parts = (
        board.models_table(now, history),
        board.events_list([entry]),
        memory_chart(history, now.devices[0], [entry], now.at_s),
        board.head(now, history.all_traffic, names=1, link=f'"{NASTY}', title=NASTY),
        board.one_line(NASTY),
    )
    for part in parts:
        assert "<script" not in part
        assert "&lt;script" in part


def test_long_names_and_paths_lack_their_middle() -> None:
    """In events and reasons; the end is kept, a pointer shows all, and sentences stay whole."""
    path = f"/models/{'m' * 200}/1/model.onnx"
    broken = ModelStatus(ModelId("m" * 200, 1), ModelState.UNAVAILABLE, reason=f"{path} is empty")
    entry = Entry(1, 999.0, ModelEvicted(broken.id, MIB, "in use " * 20 + NASTY, 3.0))
    now = snapshot(broken)
    for html in (
        board.events_list([entry]),
        board.models_table(now, seen(now)).split("</table>")[1],
    ):
        shown = re.sub(r"<[^>]*>", "", html)
        assert max(map(len, shown.split())) < 100
        assert "m" * 200 in html
    assert f"...{'m' * 7}/1/model.onnx is empty" in shown
    assert "in use in use" in board.events_list([entry])


def test_names_that_begin_alike_are_told_apart() -> None:
    """A row shows both ends of a long name, and a pointer all of it; a short one is whole."""
    names = [f"churn-{'gradient-boosting-' * 4}{day}" for day in ("monday", "tuesday")]
    short = f"team/{'x' * 35}"
    now = snapshot(*map(ready, (*names, short)))
    page = page_parts(now, [], [], seen(now))["models"]
    for table in (board.models_table(now, seen(now)), page):
        shown = re.sub(r"<[^>]*>", " ", table.replace("<wbr>", ""))
        for name in (*names, short):
            assert name in table
        assert "boosting-monday " in shown
        assert "boosting-tuesday " in shown
        assert f"{short} " in shown
        assert shown.count("…") == 2


def test_evictions_and_refusals_are_marked_with_their_reason() -> None:
    """The chart has a mark at each, whose title is the reason."""
    model = ModelId("yolo", 1)
    events = [
        Entry(1, 998.0, ModelEvicted(model, MIB, "to make room for whisper")),
        Entry(2, 999.0, MemoryRefused(model, "needs 9 GiB, 6 are free")),
    ]
    now = snapshot(ready("a"))
    chart = memory_chart(seen(now), now.devices[0], events, now.at_s)
    assert "evicted: yolo:1, 1.0 MiB freed: to make room for whisper" in chart
    assert "refused: needs 9 GiB, 6 are free" in chart
    assert ">budget for models 10.0 MiB" in chart
    assert as_image(chart, "memory").startswith('<img alt="memory"')


def test_a_mark_is_in_the_band_of_its_gpu() -> None:
    """Of two, only that on which the eviction or refusal happened has it."""
    gpus = [replace(GPU, index=index) for index in range(2)]
    devices = tuple(DeviceStatus(gpu, "a reason", 10 * MIB) for gpu in gpus)
    now = replace(snapshot(ready("a", device=gpus[0])), devices=devices)
    model = ModelId("yolo", 1)
    events = [
        Entry(1, 998.0, ModelEvicted(model, MIB, "for room", device_number=1)),
        Entry(2, 999.0, MemoryRefused(model, "needs 9 GiB", device_number=0)),
    ]
    first, second = memory_charts(seen(now), now, events)
    assert "needs 9 GiB" in first
    assert "for room" not in first
    assert "for room" in second
    assert "needs 9 GiB" not in second


def test_a_model_on_a_gpu_says_on_which() -> None:
    """So does the table of the status page; on the CPU there is only one device to name."""
    gpus = [replace(GPU, index=index) for index in range(2)]
    models = [ready(name, device=gpu) for name, gpu in zip("ab", gpus, strict=True)]
    devices = tuple(DeviceStatus(gpu, "a reason", 10 * MIB) for gpu in gpus)
    now = replace(snapshot(*models), devices=devices)
    for html in (
        page_parts(now, ["a", "b"], [], History())["models"],
        board.models_table(now, History()),
    ):
        assert ">cuda:0<" in html
        assert ">cuda:1<" in html
    assert "device" not in page_parts(snapshot(ready("a")), ["a"], [], History())["models"]


def test_each_band_of_several_gpus_has_its_name() -> None:
    """The chart of a GPU says of which it is, and the legend whose the grey memory is."""
    now = snapshot(ready("a"), device=GPU)
    chart = memory_chart(seen(now), now.devices[0], [], now.at_s)
    assert ">cuda:0: budget for models 10.0 MiB" in chart
    assert "other programs" in legend(seen(now), now)
    assert "the rest of this process" in legend(History(), snapshot())


def test_the_legend_names_the_area_of_all_others() -> None:
    """With more models than have an area of their own, the legend says which area is the rest."""
    some, others = (snapshot(*(ready(f"{name}{i}") for i in range(6))) for name in "ab")
    many = snapshot(*(ready(f"m{i}") for i in range(11)))
    assert "the other models" not in legend(seen(some), some)
    assert "the other models" in legend(History(), many)
    assert "the other models" in legend(seen(some, replace(others, at_s=1001.0)), others)


def test_the_page_has_the_columns_of_the_dashboard() -> None:
    """Its rows say of a model what those of the dashboard do, and its names lead to its page."""
    before = snapshot(ready("a"))
    now = snapshot(ready("a", ended=50), at_s=1001.0)
    history = seen(before, now)
    live, page = board.models_table(now, history), page_parts(now, ["a"], [], history)["models"]
    assert "<svg" in live
    assert page == "<h2>Models</h2>" + live.replace("> a <", '> <a href="v2/models/a/docs">a</a> <')


def test_budget_and_capacity_are_lines() -> None:
    """The memory of the card is a line too, if it is not more than twice the budget."""
    for capacity, line in ((12, True), (20, True), (1000, False)):
        gpu = replace(GPU, total_nbytes=capacity * MIB)
        now = snapshot(ready("a"), device=gpu)
        chart = memory_chart(seen(now), now.devices[0], [], now.at_s)
        assert ">cuda:0: budget for models 10.0 MiB<" in chart
        assert (f">capacity {capacity}.0 MiB<" in chart) == line, capacity


def test_a_row_says_all_of_a_model() -> None:
    """Its state, memory with a bar, requests, their time, its last use, loads and evictions."""
    before = snapshot(ready("a"))
    model = replace(
        ready("a", ended=50), pinned=True, leases=3, pending=2,
        load_statistics=LoadStatistics(loads=7, evictions=6),
    )  # fmt: skip
    now = snapshot(model, at_s=1001.0)
    table = board.models_table(now, seen(before, now))
    names = re.findall("<th[^>]*>(.*?)</th>", table)
    cells = re.findall("<td[^>]*>(.*?)</td>", table)
    row = dict(zip(names, cells, strict=True))
    texts = {name: re.sub("<[^>]*>", "", cell).strip() for name, cell in row.items()}
    assert texts == {
        "model": "&#9733; a 1", "state": "ready", "memory, MiB": "1.0",
        "in flight": "3 + 2", "requests/s": "50", "p99, ms": texts["p99, ms"],
        "last used": clock_time(999.0), "loads": "7", "evicted": "6",
    }  # fmt: skip
    assert 0.5 < float(texts["p99, ms"]) < 2
    assert "width:10.0%" in row["memory, MiB"]
    assert "<svg" in row["requests/s"]


def test_a_large_model_has_a_row() -> None:
    """Also if so many others were used later that only the largest of the rest are seen."""
    others = (ready(f"m{number:02}", 1024) for number in range(board.MODELS))
    now = snapshot(*others, ready("large"), ready("small", 1024))
    html = board.models_table(now, seen(now))
    assert ' title="large:1"' in html
    assert ' title="small:1"' not in html
    assert "1 more model is" in html


def test_rows_that_did_not_change_are_taken_again() -> None:
    """With the rows of the table before, a table is as without them, and only new rows are made."""
    a, b = ready("a"), ready("b")
    used = replace(b, requests=counts(3, 1001.0))
    small = tuple(replace(each, budget_nbytes=2 * MIB) for each in snapshot().devices)
    steps = [
        (snapshot(a, b), "", set()),
        (snapshot(a, used, at_s=1001.0), "", {"a"}),
        (snapshot(a, used, at_s=1001.0), "a", {"b"}),
        (snapshot(replace(a, pinned=True), used, at_s=1001.0), "a", {"b"}),
        (replace(snapshot(a, used, at_s=1001.0), devices=small), "", set()),
        (snapshot(used, at_s=1009.0), "", set()),
    ]
    history, kept = History(), board.ShownRows()
    for now, chosen, same in steps:
        history.add(now)
        before = dict(kept)
        table = board.models_table(now, history, chosen, kept=kept)
        assert table == board.models_table(now, history, chosen)
        assert kept.keys() == {model.id for model in now.models}
        taken = {model.name for model, row in kept.items() if row is before.get(model)}
        assert taken == same


def test_models_in_trouble_are_first() -> None:
    """All tables have one order: broken models, those that take memory, functions, all others."""
    evicted = replace(ready("a", 0), state=ModelState.UNAVAILABLE, device=None)
    failed = Absence(AbsenceKind.FAILED, "no such operator")
    now = snapshot(evicted, ready("b", 0), ready("c"), replace(evicted, id=BROKEN, absence=failed))
    page = page_parts(now, [], [], History())["models"]
    for view in (board.models_table(now, History()), page):
        places = [view.index(f'title="{name}') for name in "dcba"]
        assert places == sorted(places)


def asked(name: str, ended: int, failed: int) -> ModelStatus:
    """A model with requests until a second after the first look."""
    failures = {FailureReason.BACKEND: failed} if failed else {}
    return replace(ready(name), requests=replace(counts(ended, 1001.0), failures=failures))


P99 = ("1.0 ms", "p99 of the last minute")
NO_REQUESTS = ("no", "requests in the last minute")


@pytest.mark.parametrize(
    ("second", "at_s", "told"),
    [
        (ready("a"), 1001.0, [("0", "requests/s"), NO_REQUESTS]),
        (asked("a", 3, 3), 1001.0,
         [("6.0", "requests/s"), P99, ("3", "requests failed in the last minute")]),
        (asked("a", 3, 1), 1001.0,
         [("4.0", "requests/s"), P99, ("1", "request failed in the last minute")]),
        (asked("a", 40_000, 12_345), 1001.0,
         [("52,345", "requests/s"), P99, ("12,345", "requests failed in the last minute")]),
        (asked("a", 0, 2), 1001.0,
         [("2.0", "requests/s"), ("2", "requests failed in the last minute")]),
        (asked("a", 3, 3), 1062.0, [("0", "requests/s"), NO_REQUESTS]),
    ],
)  # fmt: skip
def test_the_figures_of_the_head(
    second: ModelStatus, at_s: float, told: list[tuple[str, str]]
) -> None:
    """Rate, p99 and failures of the last minute, if there are any; or that nobody asked."""
    looks = [snapshot(ready("a")), snapshot(second, at_s=1001.0), snapshot(second, at_s=at_s)]
    figures = board.figures(looks[-1], seen(*looks).all_traffic, 2)
    assert figures == [("1 of 2", "models ready"), ("0 B", "of 10.0 MiB budget in use"), *told]


def test_requests_before_the_first_look_are_not_denied() -> None:
    """The head does not say that there were none while a model was used in the last minute."""
    for at_s, told in ((1000.0, []), (1059.5, [NO_REQUESTS])):
        now = snapshot(ready("a"), ready("b", ended=2), at_s=at_s)
        assert board.figures(now, seen(now).all_traffic, 2)[3:] == told


def test_a_row_tells_failed_requests() -> None:
    """How many of its model's failed in the last minute, with separators."""
    looks = (
        snapshot(ready("a"), ready("b")),
        snapshot(asked("a", 40_000, 12_345), ready("b"), at_s=1001.0),
    )
    rows = board.models_table(looks[-1], seen(*looks)).split("<tr>")[2:]
    assert [(">12,345 failed</b>" in row, " 52,345<" in row) for row in rows] == [
        (True, True),
        (False, False),
    ]


def test_models_left_out_are_only_counted() -> None:
    """Those below broken models may have been used more recently: the table says how many only."""
    failed = Absence(AbsenceKind.FAILED, "no such operator")
    absent = replace(ready("a", 0), state=ModelState.UNAVAILABLE, device=None, absence=failed)
    broken = (replace(absent, id=ModelId(f"b{number}", 1)) for number in range(board.MODELS))
    now = snapshot(*broken, ready("used", 1, ended=2))
    assert "<small>1 more model is not shown</small>" in board.models_table(now, History())
    now = replace(now, left_out=LeftOut(models=2))
    assert "<small>3 more models are not shown</small>" in board.models_table(now, History())


@pytest.mark.parametrize(
    ("age_s", "ticks"),
    [
        (0, ["-20 s", "now"]),
        (75, ["-60 s", "-40 s", "-20 s", "now"]),
        (150, ["-2 min", "-1 min", "now"]),
        (900, ["-5 min", "-4 min", "-3 min", "-2 min", "-1 min", "now"]),
    ],
)
def test_the_chart_begins_with_the_server(age_s: int, ticks: list[str]) -> None:
    """It shows as much as there is: 30 seconds at least, five minutes at most."""
    now = snapshot(ready("a"))
    history = History()
    for second in range(age_s + 1):
        history.add(replace(now, at_s=now.at_s - age_s + second))
    chart = memory_chart(history, now.devices[0], [], now.at_s)
    assert re.findall(r">(-\d+ (?:s|min)|now)<", chart)[::-1] == ticks


def test_memory_that_is_not_ours_is_grey() -> None:
    """On a GPU it is what the card has in use, less the models' memory."""
    status = DeviceStatus(
        GPU, "NVIDIA H200", 500 * MIB, held_nbytes=100 * MIB,
        system=MemoryReading(1024 * MIB, 300 * MIB),
        gpu=GpuReading(0.5, 200.0, 700.0, temperature_celsius=41.0),
    )  # fmt: skip
    now = Snapshot(1000.0, (status,), (ready("a", 100 * MIB, GPU),))
    chart = memory_chart(seen(now), status, [], now.at_s)
    assert "not the models&#x27;, now 200.0 MiB" in chart
    assert "50% busy · 200 of 700 W · 41 °C" in board.device_words(status)
    assert "300.0 MiB of the card's 1.0 GiB in use" in board.device_words(status)


def test_a_device_that_says_nothing_is_still_a_sentence() -> None:
    """Where the driver's calls fail, the figures are left out."""
    assert board.device_words(DeviceStatus(GPU, "a card", MIB)) == (
        "cuda:0: a card · the driver does not report its memory in use"
    )


def test_events_are_folded_by_model() -> None:
    """The latest of each model is shown, newest first; those before it are inside."""
    a, b, c, d = (ModelId(name, 1) for name in "abcd")
    entries = [
        Entry(1, 1.0, ModelLoaded(a, MIB, 0.04)),
        Entry(2, 2.0, ModelLoadFailed(b, "no such operator")),
        Entry(3, 3.0, ModelEvicted(a, MIB, "least recently used, to make room for b:1", 41.2)),
        Entry(4, 4.0, ModelEvicted(c, MIB, "least recently used")),
        Entry(5, 5.0, ModelEvicted(d, MIB, "least recently used", 0.01)),
    ]
    html = board.events_list(entries)
    told = "evicted a:1, 1.0 MiB freed: least recently used, to make room for b:1 (idle 41 s)"
    evicted = html.index(told)
    assert html.index("evicted c:1, 1.0 MiB freed: least recently used (in use)") < evicted
    assert "evicted d:1, 1.0 MiB freed: least recently used (just used)" in html
    loaded = html.index("loaded a:1, 1.0 MiB in 40 ms")
    assert evicted < html.index("1 before it") < loaded
    assert loaded < html.index("could not load b:1: no such operator")


def test_a_thousand_models_stay_readable() -> None:
    """The table ends after some rows, and says how many models follow; so does the head."""
    models = tuple(ready(f"m{number:03}", 1024) for number in range(40))
    now = replace(snapshot(*models), left_out=LeftOut(models=960, ready=900))
    table = board.models_table(now, seen(now), chosen="m007")
    assert table.count("<tr") == 1 + 30
    assert '<tr class="c"><td><span title="m007:1">' in table
    assert "970 more models" in table
    assert "<b>940 of 1000</b>" in board.head(now, NO_TRAFFIC, names=1000, link="", title="")
    assert len(table) < 40_000


def test_reasons_stand_below_the_table() -> None:
    """They are whole, and no row is higher for one."""
    gone = ModelStatus(ModelId("b", 1), ModelState.UNAVAILABLE, reason="a reason " * 40)
    now = snapshot(ready("a"), gone)
    table, _, below = board.models_table(now, seen(now)).partition("</table>")
    assert table.count("<tr") == 3
    assert "a reason" not in table
    assert gone.reason in below


def test_the_head_tells_when_it_is_stale() -> None:
    """Its badge is hidden until no new head came for a while; a stopped server has no link."""
    now = snapshot(ready("a"))
    traffic = seen(now).all_traffic
    live = board.head(now, traffic, names=3, link="http://here/", title="here")
    assert 'class="stale"' in live
    assert "<b>1 of 3</b> models ready" in live
    stopped = board.head(now, traffic, names=3, link="", title="here", note="stopped at 17:42:00")
    assert "stopped at 17:42:00" in stopped
    assert "href" not in stopped
    assert "stale" not in stopped


def test_words_in_white_have_contrast() -> None:
    """Each colour behind white words has a contrast of 4.5 at least."""
    for shade in (GREEN, BLUE, ORANGE, RED, GREY):
        parts = [int(shade[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        light = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
        assert 1.05 / (light + 0.05) >= 4.5
