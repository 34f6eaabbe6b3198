"""Files that nobody cuts off while they are mapped."""

import fcntl
import os
import signal
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from onnx_models import source, write_external

from workbench.backends.onnx import backend as module
from workbench.backends.onnx import file_lease, runtime
from workbench.backends.onnx.backend import OnnxBackend
from workbench.backends.onnx.file_lease import held
from workbench.backends.onnx.header import file as onnx_file
from workbench.backends.onnx.header.file import read_onnx_file
from workbench.errors import LoadFailed
from workbench.tensor import Tensor

NBYTES = 1000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file on which the system gives leases."""
    made = tmp_path / "file"
    made.write_bytes(b"x" * NBYTES)
    with made.open("rb") as file:
        try:
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        except OSError as error:
            pytest.skip(f"the system gives no lease on files there: {error.strerror}")
    return made


def waits(future: Future[Any]) -> bool:
    with pytest.raises(TimeoutError):
        future.result(0.05)
    return not future.done()


def test_who_would_cut_it_off_waits(path: Path) -> None:
    """A file is whole as long as it is held, also for who holds it; then whoever waited goes on."""
    with ThreadPoolExecutor(2) as pool:
        with held(path), held(path):
            cuts = [pool.submit(os.truncate, path, 10), pool.submit(path.open, "r+b")]
            assert all(map(waits, cuts))
            assert path.stat().st_size == NBYTES
            assert path.read_bytes() == b"x" * NBYTES
        cuts[0].result(30)
        cuts[1].result(30).close()
    assert path.stat().st_size == 10


def test_another_file_in_its_place(path: Path) -> None:
    """Who renames another file there does not wait: what is held stays as it is."""
    other = path.with_name("other")
    other.write_bytes(b"y")
    with path.open("rb") as old, held(path):
        other.replace(path)
        assert old.read() == b"x" * NBYTES
    assert path.read_bytes() == b"y"


def test_nobody_hears_of_it(path: Path) -> None:
    """That somebody waits is told by a signal that does nothing."""
    assert signal.getsignal(signal.SIGURG) in (signal.SIG_DFL, signal.SIG_IGN)
    with ThreadPoolExecutor(1) as pool, held(path):
        assert waits(pool.submit(os.truncate, path, 0))


def test_a_file_that_is_opened_for_a_moment(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that somebody just writes, and could still truncate, is held once that is done."""
    with path.open("r+b") as file, ThreadPoolExecutor(1) as pool:
        monkeypatch.setattr(file_lease, "_PATIENCE_S", 60.0)
        monkeypatch.setattr(file_lease, "sleep", lambda _: file.close())
        with held(path):
            assert waits(pool.submit(os.truncate, path, 0))


def test_what_cannot_be_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is gone, or being written, or lies where there are no leases, is left alone."""
    path = tmp_path / "file"
    with held(path), path.open("wb") as file, held(path):
        file.write(b"x")
    monkeypatch.setattr(file_lease, "_HAS_LEASES", False)
    with held(path):
        os.truncate(path, 0)


def watched(
    monkeypatch: pytest.MonkeyPatch, where: ModuleType, name: str, path: Path
) -> list[threading.Thread]:
    """Has a thread cut *path* off while the function of that *name* is called: it waits."""
    real, whole_nbytes = getattr(where, name), path.stat().st_size
    cutting: list[threading.Thread] = []

    def called(*given: Any) -> Any:
        cutting.append(threading.Thread(target=os.truncate, args=(path, 0)))
        cutting[0].start()
        cutting[0].join(0.05)
        assert path.stat().st_size == whole_nbytes
        return real(*given)

    monkeypatch.setattr(where, name, called)
    return cutting


def test_weights_that_are_cut_off_while_they_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who cuts them off waits until the model is loaded, instead of ending the process."""
    model, weights = write_external(tmp_path)
    cutting = watched(monkeypatch, runtime, "new_session", weights)
    session = OnnxBackend().load(source(model))
    cutting[0].join(30)
    assert weights.stat().st_size == 0
    session.close()


def test_weights_that_changed_since_they_were_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load of files that are not what was read of them says so, and the next one is right."""
    model, weights = write_external(tmp_path)
    backend = OnnxBackend()
    real = module.held

    def changed(*paths: Path) -> Any:
        weights.write_bytes(np.full(NBYTES, 2, np.float32).tobytes())
        return real(*paths)

    monkeypatch.setattr(module, "held", changed)
    with pytest.raises(LoadFailed, match=r"^the files of m:1 changed while it was loaded$"):
        backend.load(source(model))
    monkeypatch.undo()
    (y,) = backend.load(source(model)).run({"x": Tensor.of(np.ones(NBYTES, np.float32))}, ["y"])
    assert y.array[0] == 3.0


def test_a_large_header_is_read_while_its_file_is_held(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large file is mapped to be looked at, and nobody cuts it off meanwhile."""
    os.truncate(path, 8 << 20)
    cutting = watched(monkeypatch, onnx_file, "_model", path)
    with pytest.raises(LoadFailed, match="is not an ONNX model"):
        read_onnx_file(path)
    cutting[0].join(30)
    assert path.stat().st_size == 0
