"""The host's memory and this process's, by the system's own files."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest

from workbench import host_memory
from workbench.host_memory import (
    anonymous_nbytes,
    available_nbytes,
    begin_peak,
    counted_nbytes,
    peak_nbytes,
    total_nbytes,
)

MIB = 2**20


def test_a_container_has_less_memory(tmp_path: Path) -> None:
    """What a cgroup leaves counts, in either of its versions; files that nobody reads make way."""
    free, machine = available_nbytes(tmp_path), psutil.virtual_memory().total
    assert total_nbytes(tmp_path) == machine
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("10\n")
    assert abs(available_nbytes(tmp_path) - free) < 2**30
    assert total_nbytes(tmp_path) == machine
    (tmp_path / "memory.max").write_text("1000\n")
    assert available_nbytes(tmp_path) == 990
    assert total_nbytes(tmp_path) == 1000
    (tmp_path / "memory.stat").write_text("anon 3\ninactive_file 7\n")
    assert available_nbytes(tmp_path) == 997
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text("500\n")
    (tmp_path / "memory" / "memory.usage_in_bytes").write_text("100\n")
    assert available_nbytes(tmp_path) == 400
    assert total_nbytes(tmp_path) == 500
    (tmp_path / "memory.max").unlink()
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert total_nbytes(tmp_path) == machine  # that number is no limit


@pytest.mark.parametrize("read", [anonymous_nbytes, counted_nbytes])
def test_anonymous_memory(read: Callable[[], int]) -> None:
    """Memory that this process fills is counted when it is there and not when it is gone."""
    size = 64 * MIB
    before = read()
    block = np.ones(size, np.uint8)
    during = read()
    del block
    after = read()
    assert before > 0
    assert during - before >= size * 0.8
    assert during - after >= size * 0.8


def test_the_peak() -> None:
    """What was taken and given back since the beginning is the peak, and what was before is not."""
    del [np.ones(96 * MIB, np.uint8)][0]
    before = begin_peak()
    del [np.ones(32 * MIB, np.uint8)][0]
    most = peak_nbytes()
    assert before is not None
    assert most is not None
    assert 30 * MIB < most - before < 40 * MIB


def test_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where the system has no such files, the resident set is counted, and no peak is known."""
    monkeypatch.setattr(host_memory, "_PROCESS", tmp_path / "nowhere")
    monkeypatch.setattr(host_memory, "_MACHINE", tmp_path / "nowhere")
    assert anonymous_nbytes() > MIB
    assert counted_nbytes() > MIB
    assert begin_peak() is None
    assert peak_nbytes() is None
    assert total_nbytes(tmp_path) == psutil.virtual_memory().total
    assert 0 < available_nbytes(tmp_path) < total_nbytes(tmp_path)
