"""The thresholds of the process's heap, while models are loaded and after."""

import ctypes
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from onnx_models import identity, source
from other_process import python, ran

from workbench.backends.onnx import heap
from workbench.backends.onnx.backend import OnnxBackend

MIB = 1 << 20
TRIM, MAPPED = -1, -3


class Allocator:
    """glibc's, as far as the thresholds go: it maps blocks from *mapped* bytes on."""

    def __init__(self, mapped: int) -> None:
        self.thresholds = {MAPPED: mapped, TRIM: 128 << 10}
        self._blocks: list[Any] = []

    def mallopt(self, which: int, nbytes: int) -> int:
        self.thresholds[which] = nbytes
        return 1

    def malloc(self, nbytes: int) -> int:
        flag = 2 if nbytes >= self.thresholds[MAPPED] else 0
        self._blocks.append((ctypes.c_size_t * 2)(flag, 0))
        return ctypes.addressof(self._blocks[-1]) + ctypes.sizeof(ctypes.c_size_t)

    def free(self, block: int) -> None:
        assert block == ctypes.addressof(self._blocks[-1]) + ctypes.sizeof(ctypes.c_size_t)

    def malloc_trim(self, pad: int) -> int:
        return pad

    @property
    def state(self) -> tuple[int, int]:
        return self.thresholds[MAPPED], self.thresholds[TRIM]


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Has the heap begin anew with an allocator."""

    def begin(mapped: int) -> Allocator:
        allocator = Allocator(mapped)
        monkeypatch.setattr(heap, "_glibc", lambda: allocator)
        monkeypatch.setattr(heap, "_loads", heap.Counter())
        monkeypatch.setattr(heap, "_loaded", heap.WeakSet())
        return allocator

    return begin


# what was mapped, and what of it is found and what goes with it
FOUND = [
    (128 << 10, (128 << 10, 128 << 10)),
    (3 * MIB, (4 * MIB, 8 * MIB)),
    (32 * MIB, (32 * MIB, 64 * MIB)),
    (64 * MIB, (32 * MIB, 64 * MIB)),
]


@pytest.mark.parametrize(("mapped", "before"), FOUND)
def test_the_last_model_restores_what_was_there(
    fresh: Any, tmp_path: Path, mapped: int, before: tuple[int, int]
) -> None:
    """The thresholds are ours from the first load to the last close, and then as before."""
    allocator = fresh(mapped)
    path = identity(tmp_path / "m.onnx")
    first, second = (OnnxBackend().load(source(path)) for _ in range(2))
    assert allocator.state == (4 * MIB, 8 * MIB)
    first.close()
    assert allocator.state == (4 * MIB, 8 * MIB)
    second.close()
    assert allocator.state == before
    OnnxBackend().load(source(path)).close()
    assert allocator.state == before


def test_a_load_has_its_own(fresh: Any) -> None:
    """While a model loads, and no longer, smaller blocks are mapped; of several the least."""
    allocator = fresh(128 << 10)
    with heap.large_blocks_kept():
        assert allocator.state == (32 * MIB, 128 * MIB)
        with heap.large_blocks_mapped():
            assert allocator.state == (MIB, 8 * MIB)
            heap.trim()
            assert allocator.state == (MIB, 8 * MIB)
    assert allocator.state == (128 << 10, 128 << 10)


def test_the_environment_sets_what_is_trimmed(fresh: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who set the threshold of trimming by the environment has that again."""
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "12345678")
    allocator = fresh(MIB)
    heap.trim()
    assert allocator.state == (MIB, 12345678)


on_glibc = pytest.mark.skipif(heap._glibc() is None, reason="the C library is not glibc")

_CHILD = """
import ctypes, json, sys
from workbench import Workbench
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
def is_mapped(nbytes):
    block = libc.malloc(nbytes)
    flag = ctypes.c_size_t.from_address(block - 8).value & 2
    libc.free(block)
    return bool(flag)
libc.free(libc.malloc(20 << 20))  # after which glibc maps only what is larger
seen = [is_mapped(18 << 20)]
for _ in range(2):
    with Workbench(sys.argv[1], port=0, device="cpu", cache=0) as wb:
        wb.load("m")
        seen.append(is_mapped(18 << 20))
    seen.append(is_mapped(18 << 20))
print(json.dumps(seen))
"""


@on_glibc
def test_a_server_that_stops_leaves_the_heap_as_it_was(tmp_path: Path) -> None:
    """In a process whose heap kept blocks of 18 MiB it does so again after the server."""
    identity(tmp_path / "m" / "1" / "model.onnx")
    assert json.loads(python(_CHILD, tmp_path).stdout) == [False, True, False, True, False]


@on_glibc
def test_the_systems_python_has_glibcs_malloc() -> None:
    """Also if the program has an address of its own for ``malloc``, as Debian's python3."""
    system = shutil.which("python3", path="/usr/bin") or sys.executable
    code = f"import runpy; print(runpy.run_path({heap.__file__!r})['_glibc']())"
    assert ran(system, "-c", code).stdout.startswith("<CDLL ")


@on_glibc
def test_another_malloc_is_left_alone() -> None:
    """Where another library took the place of glibc's ``malloc``, its blocks are not looked into.

    The word before such a block may belong to nobody, and reading it end the process.
    """
    code = "from workbench.backends.onnx import heap; print(heap._glibc())"
    assert python(code, LD_PRELOAD="libmemusage.so").stdout == "None\n"
