"""The demo, from its first line to its last."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from workbench.commands.cli import main

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def told(sample_models: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the demo printed, with its picture in place."""
    out = tmp_path_factory.mktemp("demo")
    result = CliRunner().invoke(main, ["demo", str(sample_models), "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert (out / "memory.png").read_bytes().startswith(b"\x89PNG")
    assert f"drawn in {out / 'memory.png'}" in result.output.splitlines()[-1]
    return result.output


def test_accuracy_is_told(told: str) -> None:
    """Each model's score on held-out data is told, and good."""
    for model, floor in (("digits", 96.0), ("digits_conv", 97.5), ("wine", 95.0)):
        match = re.search(rf" {model}: \d+ of \d+ right \(([\d.]+)%\)", told)
        assert match is not None
        assert float(match[1]) >= floor
    match = re.search(r"diabetes: R² ([\d.]+)", told)
    assert match is not None
    assert float(match[1]) > 0.4


def test_latency_is_told(told: str) -> None:
    """The latency of a digit over HTTP is told as p50 and p99."""
    assert re.search(r"p50 \d.* [µm]s, p99 \d.* [µm]s", told)


def test_loads_and_evictions_are_told_with_reasons(told: str) -> None:
    """Every load has its size, every eviction its reason; what is pinned stays."""
    assert re.search(r"load +heavy_0:1, 18\.\d MiB in \d+ ms", told)
    assert "evict    heavy_0:1" in told
    assert "least recently used, to make room for heavy_3:1" in told
    assert "evict    heavy_4" not in told


def test_memory_never_exceeds_the_budget(told: str) -> None:
    """Each bar of memory is within the budget, and names who is in it."""
    bars = re.findall(r"([\d.]+) of 64 MiB: (.*)", told)
    assert len(bars) > 5
    assert all(float(held) <= 64 for held, _ in bars)
    assert any("heavy_4" in names for _, names in bars)


def test_too_large_is_refused(told: str) -> None:
    """The model that never fits is refused with status and numbers."""
    assert re.search(r"HTTP 507: too_large:1 needs \d+\.\d MiB \(", told)
    assert "MiB more while loading), the budget is 64.0 MiB; a budget of" in told


def without_numbers(line: str) -> str:
    """The line with its numbers and bars taken out, which differ from run to run."""
    return re.sub(r"[\d.:#]+|[µm]s", "_", line).strip()


def test_it_prints_what_the_readme_shows(told: str) -> None:
    """Each line that README shows of the demo is one that the demo prints, numbers aside."""
    readme = (ROOT / "README.md").read_text("utf-8")
    (shown,) = re.findall(r"^```text\n([^`]*450 handwritten[^`]*)^```", readme, re.MULTILINE)
    printed = {without_numbers(line) for line in told.splitlines()}
    assert [line for line in shown.splitlines() if without_numbers(line) not in printed] == []
