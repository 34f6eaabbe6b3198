"""Traces: made, saved, and read; those of other servers."""

import math
from pathlib import Path

import pytest

from workbench.annexes.planner.trace import Trace, TraceRequest
from workbench.errors import UsageError
from workbench.model import ModelId

A, B = ModelId("a", 1), ModelId("b", 2)
REQUESTS = [
    TraceRequest(1.0, A, 0.5),
    TraceRequest(2.5, B, 0.25),
    TraceRequest(1763632802.123456, A, 1.5),
    TraceRequest(1763632803.0, ModelId('a, "b"\nc', 3)),
]


def test_round_trip(tmp_path: Path) -> None:
    """A trace holds its requests, also after it was saved and read again, whatever the names."""
    trace = Trace.of(REQUESTS)
    trace.save(tmp_path / "trace.csv")
    for one in (trace, Trace.read(tmp_path / "trace.csv")):
        assert list(map(repr, one)) == list(map(repr, REQUESTS))  # NaN is not equal to itself
    assert repr(trace) == "<Trace: 4 requests for 3 models, 1763632802.0 s>"


def test_an_empty_trace(tmp_path: Path) -> None:
    """A trace without requests is one too."""
    Trace.of([]).save(tmp_path / "trace.csv")
    empty = Trace.read(tmp_path / "trace.csv")
    assert (list(empty), empty.span_s, empty.models) == ([], 0.0, ())


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
    trace = Trace.of(TraceRequest(at_s, A, seconds) for at_s, seconds in requests)
    assert trace.is_one_by_one == one_by_one


def test_an_access_log_of_a_spreadsheet(tmp_path: Path) -> None:
    """It may begin with a byte order mark, and names of columns are known in any case."""
    path = tmp_path / "log.csv"
    path.write_text(" Time ,MODEL\n1,a\n", encoding="utf-8-sig")
    assert list(Trace.read(path).models) == [A]


def test_an_access_log(tmp_path: Path) -> None:
    """A CSV file in any order, with more columns, and times of both kinds."""
    path = tmp_path / "log.csv"
    path.write_text(
        "time,status,model,seconds,version\n"
        "2026-11-20T10:00:02Z,200,b,0.25,2\n"
        "2026-11-20T10:00:01,200,a,,\n"
        "1.5,200,a\n"
    )
    first, second, third = Trace.read(path)
    assert (first.at_s, first.model) == (1.5, A)
    assert second.model == A
    assert math.isnan(second.seconds)
    assert third[1:] == (B, 0.25)
    assert third.at_s - second.at_s == 1.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("time,name\n1,a\n", "no column named 'model' among time, name$"),
        ("", "no column named 'time' among nothing$"),
        ("time,model\n1,a\nnoon,b\n", "line 3: 'noon' is not a time"),
        ("time,model\nnan,a\n", "line 2: 'nan' is not a time"),
        ("time,model\n1,\n", "line 2: names no model"),
        ("model,time\na\n", "line 2: '' is not a time"),
        ("time,model\ninf,a\n", "line 2: 'inf' is not a time"),
        ("time,model\n1e300,a\n", "line 2: '1e300' is not a time"),
        ("time,model,version\n1,a,-3\n", "line 2: '-3' is not a version"),
        ("time,model,version\n1,a,0\n", "line 2: '0' is not a version"),
        ("time,model,version\n1,a,x\n", "line 2: 'x' is not a version"),
        ("time,model,seconds\n1,a,soon\n", "line 2: 'soon' is not a number of seconds"),
        pytest.param(f"time,model\n1,{'a' * 200_000}\n", "is not a CSV file", id="long"),
    ],
)
def test_a_wrong_log(tmp_path: Path, text: str, message: str) -> None:
    """What cannot be read is told in one line, with the line of the file."""
    path = tmp_path / "log.csv"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        Trace.read(path)
    path.write_bytes(b"PK\x03\x04\xff")
    with pytest.raises(UsageError, match="is not a CSV file"):
        Trace.read(path)
    with pytest.raises(UsageError, match="no such file"):
        Trace.read(tmp_path / "none.csv")
    with pytest.raises(UsageError, match=r"^path: None is not a path"):
        Trace.read(None)  # type: ignore[arg-type]


def test_times_in_order() -> None:
    """A trace is in order of time, whatever the order of what it is made of."""
    late, early = TraceRequest(1.0, A), TraceRequest(0.5, A)
    assert list(Trace.of([late, early])) == [early, late]
