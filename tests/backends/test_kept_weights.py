"""Weights in a file of their own, which changes while their model is loaded."""

import mmap
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any
from unittest import mock

import numpy as np
import onnx
import pytest
from inside import until
from onnx_models import source, write_external, written
from other_process import python

from workbench import host_memory
from workbench.backends.onnx import kept_weights
from workbench.backends.onnx.backend import OnnxBackend
from workbench.backends.onnx.kept_weights import kept
from workbench.errors import MemoryExhausted, RequestStopped
from workbench.host_memory import begin_peak
from workbench.stop import CancellationToken
from workbench.tensor import Tensor

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="they are kept on Linux only")

X = {"x": Tensor.of(np.ones(1000, np.float32))}

_CHILD = """
import os, sys
from pathlib import Path
from onnx_models import source
from test_kept_weights import X
from workbench.backends.onnx.backend import OnnxBackend
model, weights = map(Path, sys.argv[1:])
session = OnnxBackend().load(source(model))
os.truncate(weights, 0)
print(session.run(X, ["y"])[0].array[0])
session.close()
"""


def mappings(path: Path) -> int:
    return Path("/proc/self/maps").read_text().count(f"{path}\n")


def test_weights_that_are_cut_off_once_they_are_loaded(tmp_path: Path) -> None:
    """A loaded model runs on as before if its weights are truncated on disk."""
    model, weights = write_external(tmp_path)
    assert python(_CHILD, model, weights).stdout == "2.0\n"


def test_weights_that_are_overwritten_once_they_are_loaded(tmp_path: Path) -> None:
    """A loaded model keeps its weights if others are written in their place."""
    model, weights = write_external(tmp_path)
    session = OnnxBackend().load(source(model))
    assert not mappings(weights)
    with weights.open("r+b") as file:
        file.write(np.full(1000, 5, np.float32).tobytes())
    (y,) = session.run(X, ["y"])
    assert y.array.tolist() == [2.0] * 1000
    session.close()


def test_what_others_mapped_stays(tmp_path: Path) -> None:
    """What somebody else mapped of the file, before the load or only to read it, is left alone."""
    model, weights = write_external(tmp_path)
    with weights.open("r+b") as file:
        before = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        shared = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    session = OnnxBackend().load(source(model))
    assert mappings(weights) == 2
    session.close()
    assert mappings(weights) == 2
    with kept(weights), weights.open("rb") as file:
        later = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    assert mappings(weights) == 3
    for each in (before, shared, later):
        each.close()


def test_one_load_of_a_file_at_a_time(tmp_path: Path) -> None:
    """A load waits for another one of the same file, also of other names, and for no others."""
    paths = [tmp_path / name for name in "abc"]
    for path in paths[:2]:
        path.touch()
    paths[2].symlink_to(paths[0])
    end, begun = Event(), Event()

    def load(*paths: Path) -> None:
        with kept(*paths):
            begun.set()
            end.wait(30)

    def wait() -> bool:
        with kept(paths[2]):
            return end.is_set()

    with ThreadPoolExecutor(2) as pool:
        loads = [pool.submit(load, *paths[:1])]
        assert begun.wait(30)
        with kept(paths[1]), kept():
            loads.append(pool.submit(wait))
        until(lambda: kept_weights._ended._waiters or loads[1].done())  # type: ignore[attr-defined]
        end.set()
        assert [each.result(30) for each in loads] == [None, True]


def test_a_wait_for_another_load_can_be_stopped(tmp_path: Path) -> None:
    """A load that is cancelled does not wait for another one of the same file."""
    stop = CancellationToken()
    stop.set(RequestStopped("enough"))
    with kept(tmp_path), pytest.raises(RequestStopped, match="enough"), kept(tmp_path, stop=stop):
        pass  # pragma: no cover
    assert not kept_weights._loading


def test_weights_that_are_replaced_during_the_load(tmp_path: Path) -> None:
    """They are copied, too: the old file may be truncated by a program that has it open."""
    _, weights = write_external(tmp_path)
    (tmp_path / "new").write_bytes(b"new")
    with weights.open("r+b") as file:
        with kept(weights):
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
            (tmp_path / "new").replace(weights)
        assert Path("/proc/self/maps").read_text().count(str(weights)) == 0
        before = mapped[:]
        file.truncate(0)
        assert mapped[:] == before
        mapped.close()


def test_no_memory_for_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A load without memory for its weights fails, and the next one is made."""
    model, weights = write_external(tmp_path)
    libc: Any = kept_weights._libc()
    for call in ("mmap", "mremap"):
        with monkeypatch.context() as patch:
            freed = mock.Mock(wraps=libc.munmap)
            patch.setattr(libc, "munmap", freed)
            patch.setattr(libc, call, lambda *_: kept_weights._FAILED)
            with pytest.raises(MemoryExhausted, match=r"^m:1 did not load, memory ran out: .*of w"):
                OnnxBackend().load(source(model))
            assert freed.call_count == (call == "mremap")  # the copy that found no place
    assert not mappings(weights)
    OnnxBackend().load(source(model)).close()


def test_the_peak_of_a_load_with_large_weights(tmp_path: Path) -> None:
    """Weights are not in memory twice while they are copied: a load takes little more than them."""
    nbytes = 128 << 20
    model = written(
        tmp_path / "m.onnx",
        "(int64[n] x) => (float[n, 1024] y) { y = Gather(w, x) }",
        weights={"w": np.zeros((nbytes // 4096, 1024), np.float32)},
    )
    place = {"save_as_external_data": True, "location": "w.bin"}
    onnx.save(onnx.load(model), model, **place)
    backend = OnnxBackend()
    backend.wake()
    before_nbytes = begin_peak()
    session = backend.load(source(model))
    peak_nbytes = host_memory.peak_nbytes()
    session.close()
    assert before_nbytes is not None
    assert peak_nbytes is not None
    assert nbytes < peak_nbytes - before_nbytes < 1.5 * nbytes
