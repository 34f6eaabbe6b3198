"""Traces: made, saved, loaded, renamed; those of other servers."""

import math
from pathlib import Path

import numpy as np
import pytest

from workbench.errors import UsageError
from workbench.model import ModelId
from workbench.planner import Trace, TraceRequest, read_csv, read_metrics

A, B = ModelId("a", 1), ModelId("b", 2)
REQUESTS = [
    TraceRequest(1.0, A, 64, 0.5),
    TraceRequest(2.5, B, 0, 0.25),
    TraceRequest(2.5, A, 8, 1.5),
]


def test_round_trip(tmp_path: Path) -> None:
    """A trace holds its requests, also after it was saved and loaded again."""
    trace = Trace.of(REQUESTS)
    trace.save(tmp_path / "trace.npz")
    for one in (trace, Trace.load(tmp_path / "trace.npz")):
        assert list(one) == REQUESTS
        assert (len(one), one.models, one.span_s) == (3, (A, B), 1.5)
        assert one.run_s() == {A: 0.75, B: 0.25}
    assert repr(trace) == "<Trace: 3 requests for 2 models, 1.5 s>"


def test_an_empty_trace(tmp_path: Path) -> None:
    """A trace without requests is one too."""
    Trace.of([]).save(tmp_path / "trace.npz")
    empty = Trace.load(tmp_path / "trace.npz")
    assert (list(empty), empty.span_s, list(empty.only([A]))) == ([], 0.0, [])


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04 cut"])
def test_not_a_trace(tmp_path: Path, content: bytes) -> None:
    """Any other file is refused by its name, in one line, without words of numpy."""
    path = tmp_path / "trace.npz"
    path.write_bytes(content)
    refusal = r"trace\.npz: is not a trace that save\(\) wrote; read_csv reads access logs$"
    with pytest.raises(UsageError, match=refusal):
        Trace.load(path)
    np.save(tmp_path / "array.npy", [1.0])
    with pytest.raises(UsageError, match=r"array\.npy: is not a trace"):
        Trace.load(tmp_path / "array.npy")
    with pytest.raises(UsageError, match=r": Is a directory$"):
        Trace.load(tmp_path)
    with pytest.raises(UsageError, match="no such file"):
        Trace.load(tmp_path / "other.npz")


def test_a_trace_that_contradicts_itself(tmp_path: Path) -> None:
    """A file whose columns do not belong together is refused."""
    trace = Trace.of(REQUESTS)
    wrong = Trace((A,), trace.at_s, trace.which, trace.nbytes, trace.seconds)
    wrong.save(tmp_path / "trace.npz")
    with pytest.raises(UsageError, match="a model that it does not name"):
        Trace.load(tmp_path / "trace.npz")
    short = Trace(trace.models, trace.at_s[:1], trace.which, trace.nbytes, trace.seconds)
    short.save(tmp_path / "trace.npz")
    with pytest.raises(UsageError, match="do not belong together"):
        Trace.load(tmp_path / "trace.npz")


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"form": np.array(2)}, "a later version of workbench wrote this trace"),
        ({"nbytes": np.zeros(3)}, "its columns do not belong together"),
        ({"nbytes": np.zeros(2, np.int64)}, "its columns do not belong together"),
        ({"which": np.array([0, -1, 0], np.int32)}, "for a model that it does not name"),
        ({"which": np.array([0, 2, 0], np.int32)}, "for a model that it does not name"),
        ({"at_s": np.array([1.0, 3.0, 2.0])}, "request 2 of the trace is not after"),
        ({"at_s": np.array([1.0, np.nan, 2.0])}, "request 1 of the trace is not after"),
        (
            dict.fromkeys(("at_s", "seconds"), np.zeros((1, 3)))
            | {"which": np.zeros((1, 3), np.int32), "nbytes": np.zeros((1, 3), np.int64)},
            "its columns do not belong together",
        ),
    ],
)
def test_a_trace_that_was_changed(
    tmp_path: Path, columns: dict[str, np.ndarray], told: str
) -> None:
    """Columns that cannot be those of a trace are refused in one line."""
    path = tmp_path / "trace.npz"
    Trace.of(REQUESTS).save(path)
    with np.load(path) as file:
        saved = dict(file)
    np.savez(path, **(saved | columns))
    with pytest.raises(UsageError, match=told):
        Trace.load(path)


def test_a_trace_that_is_damaged(tmp_path: Path) -> None:
    """Wherever that is, it is refused in one line, or is not of the requests."""
    path = tmp_path / "trace.npz"
    Trace.of(REQUESTS).save(path)
    content = path.read_bytes()
    refused = 0
    for place in range(0, len(content), 7):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :])
        try:
            assert list(Trace.load(path)) == REQUESTS
        except UsageError:
            refused += 1
    assert refused > 20


@pytest.mark.parametrize(
    ("requests", "one_by_one"),
    [
        ([(0.0, 1.0)], False),
        ([(0.0, 1.0), (1.0, 1.0)], True),
        ([(0.0, 1.0), (0.9995, 1.0)], True),
        ([(0.0, 1.0), (0.99, 1.0)], False),
        ([(0.0, math.nan), (5.0, 1.0)], False),
    ],
)
def test_requests_one_after_another(requests: list[tuple[float, float]], one_by_one: bool) -> None:
    """Each comes after the answer to the one before, by clocks that may differ by a millisecond."""
    trace = Trace.of(TraceRequest(at_s, A, 0, seconds) for at_s, seconds in requests)
    assert trace.is_one_by_one == one_by_one


def test_an_access_log_of_a_spreadsheet(tmp_path: Path) -> None:
    """It may begin with a byte order mark, and names of columns are known in any case."""
    path = tmp_path / "log.csv"
    path.write_text(" Time ,Who\n1,a\n", encoding="utf-8-sig")
    assert list(read_csv(path, {"model": "WHO"}).models) == [A]


def test_models_are_renamed_and_left_out() -> None:
    """A version that is not known is taken for the only known one; models can be left out."""
    trace = Trace.of([TraceRequest(0.0, ModelId("a", 7)), TraceRequest(1.0, ModelId("b", 2))])
    assert trace.named([A, B]).models == (A, B)
    assert trace.named([A, ModelId("a", 2)]).models == (ModelId("a", 7), B)
    assert [request.model for request in trace.named([A, B]).only([B])] == [B]
    merged = Trace.of([TraceRequest(0.0, ModelId("a", 7)), TraceRequest(1.0, A)]).named([A])
    assert (merged.models, merged.which.tolist()) == ((A,), [0, 0])


def test_an_access_log(tmp_path: Path) -> None:
    """A CSV file in any order, with usual names of columns and times of any kind."""
    path = tmp_path / "log.csv"
    path.write_text(
        "@timestamp,Status,TargetModel,latency_ms,Bytes\n"
        "2026-11-20T10:00:02Z,200,b.tar.gz,250,10\n"
        "2026-11-20T10:00:01,200,a.tar.gz,,\n"
    )
    first, second = read_csv(path)
    assert first.model == ModelId("a.tar.gz", 1)
    assert second[1:] == (ModelId("b.tar.gz", 1), 10, 0.25)
    assert second.at_s - first.at_s == 1.0
    assert math.isnan(first.seconds)
    path.write_text("when,which,model_version\n1763632802500,a,3\n1763632801.5,b,\n")
    trace = read_csv(path, {"time": "when", "model": "which"})
    assert [request.model for request in trace] == [ModelId("b", 1), ModelId("a", 3)]
    assert trace.at_s.tolist() == [1763632801.5, 1763632802.5]


@pytest.mark.parametrize("between", [",", ";", "\t"])
def test_what_stands_between_columns(tmp_path: Path, between: str) -> None:
    """A comma, a semicolon or a tab, whichever the line of names has most of."""
    path = tmp_path / "log.csv"
    rows = (("time", "model", "note"), ("1", "a", '"b, c"'), ("2", "b", '"d; e"'))
    path.write_text("\ufeff" + "\n".join(map(between.join, rows)), encoding="utf-8")
    assert [(each.at_s, each.model.name) for each in read_csv(path)] == [(1.0, "a"), (2.0, "b")]


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        ("time,name\n1,a\n", None, "no column for the model among time, name: say columns="),
        ("time,model\n1,a\n", {"time": "when"}, "no column for the time among"),
        ("time,model\n1,a\n", {"day": "time"}, "'day' is none of time, model"),
        ("time,model\n1,a\nnoon,b\n", None, "line 3: "),
        ("time,model\nnan,a\n", None, "line 2: 'nan' is not a time"),
        ("time,model\n1,\n", None, "line 2: names no model"),
        ("model,time\na\n", None, "line 2: '' is not a time"),
        ("time,model\ninf,a\n", None, "line 2: 'inf' is not a time"),
        ("time,model\n1e300,a\n", None, "line 2: '1e300' is not a time"),
        ("time,model,bytes\n1,a,1e30\n", None,
         "in the column for the bytes is not a number from 0"),
        ("time,model,bytes\n1,a,inf\n", None, "in the column for the bytes is not a number from 0"),
        ("time,model,bytes\n1,a,-1\n", None, "in the column for the bytes is not a number from 0"),
        ("time,model,version\n1,a,-3\n", None,
         "line 2: '-3' in the column for the version is not a number from 1"),
        ("time,model,version\n1,a,x\n", None,
         "line 2: 'x' in the column for the version is not a number"),
        ("time,model,seconds\n1,a,soon\n", None,
         "line 2: 'soon' in the column for the seconds is not a number"),
        ("", None, "no column for the time among nothing"),
        ("time,model\n1,a\n", {"bytes": "size"}, "no column for the bytes among time, model"),
        ("time,model,bytes\n1,a,1e19\n", None,
         "'1e19' in the column for the bytes is not a number"),
        pytest.param(f"time,model\n1,{'a' * 200_000}\n", None, "is not a CSV file", id="long"),
    ],
)  # fmt: skip
def test_a_wrong_log(
    tmp_path: Path, text: str, columns: dict[str, str] | None, message: str
) -> None:
    """What cannot be read is told in one line, with the line of the file."""
    path = tmp_path / "log.csv"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        read_csv(path, columns)
    with pytest.raises(UsageError, match="no such file"):
        read_csv(tmp_path / "none.csv")
    with pytest.raises(UsageError, match=r"^path: None is not a path"):
        read_csv(None)  # type: ignore[arg-type]


def scrape(**counts: int) -> str:
    lines = [
        f'nv_inference_request_success{{model="{name}",version="1"}} {count}.000000'
        for name, count in counts.items()
    ]
    return "# HELP nv_inference_request_success ...\n" + "\n".join(lines) + "\n"


def test_metrics_of_several_series() -> None:
    """Those of one model are added; what is no count is left out, and an odd version is 1."""
    name = "nv_inference_request_success"
    series = ('model="a",version="1",gpu="0"', 'model="a",version="1",gpu="1"')
    series += ('model="b",version="latest"', 'model="c",version="1"')
    first, second = (
        "".join(
            f"{name}{{{labels}}} {value}\n"
            for labels, value in zip(series, (count, count, count, odd), strict=True)
        )
        for count, odd in ((1, "NaN"), (2, "+Inf"))
    )
    trace = read_metrics([(10.0, first), (12.0, second)])
    assert sorted(request.model for request in trace) == [A, A, ModelId("b", 1)]


def test_times_of_an_access_log(tmp_path: Path) -> None:
    """Seconds, or milliseconds from 1973 on."""
    path = tmp_path / "log.csv"
    path.write_text("time,model\n200000000000,a\n1e11,a\n")
    assert read_csv(path).at_s.tolist() == [2e8, 1e11]


def test_metrics() -> None:
    """Requests are counted between scrapes and spread evenly; a counter may begin again."""
    trace = read_metrics(
        [(10.0, scrape(a=5)), (12.0, scrape(a=7, b=1)), (14.0, scrape(a=1, b=1)), (15.0, "")]
    )
    assert [(at_s, model.name) for at_s, model, *_ in trace] == [
        (10.0, "a"), (10.0, "b"), (11.0, "a"), (12.0, "a"),
    ]  # fmt: skip
    odd = 'nv_inference_request_success{model="a}\\\\b",version="1"} '
    trace = read_metrics([(1.0, f"{odd}0\n"), (2.0, f"{odd}1\n"), (3.0, f"{odd}NaN\n")])
    assert [request.model.name for request in trace] == ["a}\\b"]
    with pytest.raises(UsageError, match="no scrape has nv_inference_request_success"):
        read_metrics([(1.0, "up 1\n")])
    with pytest.raises(UsageError, match="not after"):
        read_metrics([(1.0, scrape(a=1)), (1.0, scrape(a=1))])


def test_times_in_order() -> None:
    """A request before the one before it is named by its number."""
    with pytest.raises(UsageError, match="request 1 of the trace is not after"):
        Trace.of([TraceRequest(1.0, A), TraceRequest(0.5, A)])
    assert np.isnan(TraceRequest(0.0, A).seconds)
