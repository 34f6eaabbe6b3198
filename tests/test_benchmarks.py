"""The table of benchmarks/serving.py says what the figures say."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

PATH = Path(__file__).parent.parent / "benchmarks" / "report.py"


@pytest.fixture(scope="module")
def report() -> Any:
    spec = importlib.util.spec_from_file_location("benchmarks_report", PATH)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, spec.name, module)  # dataclasses look there
        spec.loader.exec_module(module)
    return module


@pytest.fixture
def rows(report: Any) -> dict[str, Any]:
    rates = (("≥ 10× Peer", 10, "peer"), ("≥ 2× Other", 2, "other"), ("≥ 900/s", 900))
    times = (("≤ 0.5× Peer", 2, "peer"), ("≤ 5 ms", 5e-3))
    rate, latency = (tuple(report.Target(*each) for each in told) for told in (rates, times))
    return {
        "rate": report.Row("requests/s", report.RATE, rate),
        "latency": report.Row("p50", report.LATENCY, latency),
    }


def test_table(report: Any, rows: dict[str, Any]) -> None:
    """A line has medians, how many times better ours is, and which targets were met."""
    titles = {"workbench": "Ours", "peer": "Peer", "other": "Other"}
    measured = {
        "rate": {"workbench": [1000, 9000, 500], "peer": [100, 90, 3000], "other": []},
        "latency": {"workbench": [0.0005, 0.0004], "peer": [0.0008, 0.0009], "other": [0.0009]},
    }
    _, _, *lines = report.table(rows, titles, measured).splitlines()
    assert lines == [
        (
            "| requests/s | 1,000/s | 100/s, ours 10.00× | – "
            "| ≥ 10× Peer: met<br>≥ 2× Other: not measured<br>≥ 900/s: met |"
        ),
        (
            "| p50 | 450 µs | 850 µs, ours 1.89× | 900 µs, ours 2.00× "
            "| ≤ 0.5× Peer: **missed**<br>≤ 5 ms: met |"
        ),
    ]
    least = {"latency": {"workbench": [0.5, 0.25, 0.3], "peer": []}}
    assert report.spreads({"latency": rows["latency"]}, titles, least).splitlines() == [
        "| case | Ours | Peer | Other |",
        "| --- | --- | --- | --- |",
        "| p50 | 250.00 ms – 500.00 ms | – | – |",
    ]


@pytest.mark.parametrize(
    ("ours", "told"),
    [([0.004], "met"), ([0.005], "met"), ([0.006], "**missed**"), ([], "not measured")],
)
def test_bounds(report: Any, rows: dict[str, Any], ours: list[float], told: str) -> None:
    """A bound itself is enough, and of what was not measured nothing is claimed."""
    latency, rate = rows["latency"], rows["rate"]
    assert report.verdict(latency, latency.targets[1], {"workbench": ours}) == f"≤ 5 ms: {told}"
    assert report.cell(rate, {"peer": [100]}, "peer") == "100/s"
    assert report.verdict(rate, rate.targets[0], {"peer": [100]}) == "≥ 10× Peer: not measured"


def test_put(report: Any) -> None:
    """A section takes the place of the one that was there; a new one comes last."""
    page = report.put("a", "old\n", "# Results\n")
    page = report.put("b", "other", page)
    page = report.put("a", "new", page)
    assert page.split() == [
        "#", "Results", "<!--", "a:begin", "-->", "new", "<!--", "a:end", "-->",
        "<!--", "b:begin", "-->", "other", "<!--", "b:end", "-->",
    ]  # fmt: skip
    assert report.put("a", "new", page) == page
    with pytest.raises(ValueError, match="of the section 'a' one mark is missing"):
        report.put("a", "new", page.replace("<!-- a:end -->", ""))


def test_page(report: Any) -> None:
    """The page says how it was made, where, with what, and who was left out."""
    versions = ["Ours: " + report.versions({"ours": "1", "numpy": "2"})]
    page = report.section(
        title="Ours beside peers", made="`make`, 2026-01-01", machine="a machine",
        versions=versions, table="| a |", spreads="| b |", left_out=["Left out: Peer: not ready"],
    )  # fmt: skip
    head = "## Ours beside peers\n\nMade by `make`, 2026-01-01.\n\na machine.\n\n"
    assert page.startswith(f"{head}- Ours: ours 1, numpy 2\n")
    assert page.index("| a |") < page.index("- Left out: Peer: not ready") < page.index("| b |")
    assert page.endswith("| b |\n")
