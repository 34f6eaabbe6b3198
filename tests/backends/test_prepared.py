"""Models that were loaded before load faster: what is kept on disk for that, and when it is not."""

import json
import os
import queue
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx as onnx_proto
import pytest
from onnx_models import identity
from other_process import python

from workbench import Workbench, samples
from workbench.backends.onnx import runtime
from workbench.backends.onnx.backend import OnnxBackend
from workbench.backends.onnx.header.file import read_onnx_file
from workbench.backends.onnx.session import OnnxSession
from workbench.backends.onnx_tiers import folder as prepared_folder
from workbench.backends.onnx_tiers import prepare, prepared, write
from workbench.errors import LoadFailed
from workbench.events import EventLog, ModelNotPrepared, ModelPrepared
from workbench.model import ModelConfig, ModelId, ModelSource
from workbench.samples import write_models
from workbench.tensor import Tensor

A, LARGE = ModelId("a", 1), ModelId("large", 1)
GIB = 2**30
MODEL_NBYTES = 2**20


class Rig:
    """A backend with prepared models of its own, over one model of a MiB."""

    def __init__(self, root: Path) -> None:
        (folder,) = write_models(root / "models", 1, MODEL_NBYTES)
        self.path = folder / "1" / "model.onnx"
        self.cache = root / "cache"
        self.log = EventLog()
        self.begin()

    def begin(self, limit_nbytes: int = GIB) -> None:
        """Another server with the same folders."""
        self.prepared = prepared.PreparedModels(self.cache, limit_nbytes, self.log)
        self.backend = OnnxBackend(prepared=self.prepared, log=self.log)

    def source(self, **parameters: str) -> ModelSource:
        """The model, with these parameters in its configuration."""
        return ModelSource(A, ModelConfig("a", parameters=parameters), self.path)

    def entries(self) -> list[Path]:
        """The folders of the prepared models."""
        return sorted((self.cache / "entries").glob("*"))

    def load(self, tier: str = "prepared") -> OnnxSession:
        return self.backend.load(self.source(tier=tier))

    def told(self, count: int = 1) -> list[object]:
        """What was told of the preparing, once there are *count* of it."""
        cursor, told = 0, []
        while len(told) < count:
            entries = self.log.wait(cursor, 60)
            assert entries, f"only {told} was told"
            told += [entry.event for entry in entries]
            cursor = entries[-1].number
        return told


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    yield rig
    rig.prepared.close()


@pytest.fixture
def ready(rig: Rig) -> Rig:
    """What was prepared is there."""
    rig.load().close()
    (event,) = rig.told()
    assert isinstance(event, ModelPrepared)
    assert event.model == A
    assert 2 * MODEL_NBYTES <= event.nbytes <= 2.2 * MODEL_NBYTES
    return rig


def answer(session: OnnxSession) -> np.ndarray:
    width = session.signature.inputs["x"].shape[1]
    x = np.random.default_rng(0).random((3, width), dtype=np.float32)
    (y,) = session.run({"x": Tensor("FP32", x)}, ("y",))
    session.close()
    return y.array


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that ONNX Runtime loaded since."""
    loads: list[str] = []
    new_session = runtime.new_session

    def session(model: str, *more: object) -> object:
        loads.append(model)
        return new_session(model, *more)

    monkeypatch.setattr(runtime, "new_session", session)
    return loads


def test_what_was_prepared_is_loaded(ready: Rig, loads: list[str]) -> None:
    """The next load takes what was prepared, in this server and in others, and answers the same."""
    before = answer(ready.load("plain"))
    assert loads.pop() == str(ready.path)
    assert np.array_equal(answer(ready.load()), before)
    ready.begin()
    assert np.array_equal(answer(ready.load("auto")), before)
    (entry,) = ready.entries()
    assert loads == [str(entry / "model.onnx")] * 2


def test_mapped(ready: Rig, loads: list[str]) -> None:
    """A mapped model computes with the weights as they lie in the file."""
    before = answer(ready.load("plain"))
    np.testing.assert_allclose(answer(ready.load("mapped")), before, rtol=1e-4)
    assert loads[1] == str(ready.entries()[0] / "model.onnx")


def test_users_files_are_left_alone(ready: Rig) -> None:
    """Nothing is written beside the model, and the cache is the user's alone."""
    assert [path.name for path in ready.path.parent.iterdir()] == ["model.onnx"]
    assert ready.cache.stat().st_mode & 0o077 == 0
    assert list((ready.cache / "parts").iterdir()) == []


def test_another_file_is_another_model(ready: Rig, loads: list[str]) -> None:
    """A file that changed is loaded as it is now, and prepared anew."""
    write_models(ready.path.parent.parent.parent, 1, 2 * MODEL_NBYTES)
    now = answer(ready.load())
    assert loads == [str(ready.path)]
    assert isinstance(ready.told(2)[-1], ModelPrepared)
    assert np.array_equal(answer(ready.load()), now)
    assert len(ready.entries()) == 2


def test_the_same_content_is_prepared_once(ready: Rig, loads: list[str]) -> None:
    """A copy of a model shares what was prepared of it."""
    copy = ready.path.with_name("copy.onnx")
    copy.write_bytes(ready.path.read_bytes())
    ready.path = copy
    ready.load().close()
    event = ready.told(2)[-1]
    assert isinstance(event, ModelPrepared)
    assert event.nbytes == 0
    ready.load().close()
    (entry,) = ready.entries()
    assert loads == [str(copy), str(entry / "model.onnx")]


def fill(part: Path, content: bytes = b"some bytes") -> None:
    for name in ("model.onnx", "weights.bin"):
        (part / name).write_bytes(content)


DAMAGES = {
    "a byte changed": lambda path: path.write_bytes(b"x" + path.read_bytes()[1:]),
    "cut off": lambda path: os.truncate(path, path.stat().st_size // 2),
    "empty": lambda path: path.write_bytes(b""),
    "gone": Path.unlink,
}


@pytest.mark.parametrize("name", ["model.onnx", "weights.bin", "entry.json"])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_entry(rig: Rig, damage: Callable[[Path], object], name: str) -> None:
    """An entry that was changed since it was written is not found, and the finder is told."""
    folder = prepared_folder.PreparedFolder(rig.cache, GIB)
    file = read_onnx_file(rig.path)
    folder.create()
    folder.write("content", fill)
    folder.note(prepared_folder.file_key(file, "1"), "content")
    found = folder.find(file, "1")
    assert found is not None
    damage(found.with_name(name))
    with pytest.raises(LoadFailed, match="its files are not as they were written"):
        folder.find(file, "1")


def test_a_damaged_entry_is_replaced(ready: Rig, loads: list[str]) -> None:
    """The model is loaded as the first time, with an event, and prepared anew."""
    before = answer(ready.load("plain"))
    os.truncate(ready.entries()[0] / "weights.bin", MODEL_NBYTES)
    ready.begin()
    assert np.array_equal(answer(ready.load()), before)
    assert loads == [str(ready.path)] * 2
    dropped, prepared = ready.told(3)[1:]
    told = "what was prepared is not used: its files are not as they were written"
    assert dropped == ModelNotPrepared(A, told)
    assert isinstance(prepared, ModelPrepared)
    assert np.array_equal(answer(ready.load()), before)
    assert loads[2] == str(ready.entries()[0] / "model.onnx")


def test_an_entry_that_does_not_load(ready: Rig, loads: list[str]) -> None:
    """It goes, an event says so, and the model is loaded as the first time."""
    (entry,) = ready.entries()
    (entry / "model.onnx").write_bytes(b"not ONNX")
    (entry / "entry.json").write_text(json.dumps(prepared_folder.stamps_of(entry)))
    ready.load().close()
    event = ready.told(2)[1]
    assert isinstance(event, ModelNotPrepared)
    assert event.reason.startswith("what was prepared is dropped: a:1 does not load")
    assert loads == [str(entry / "model.onnx"), str(ready.path)]


@pytest.mark.parametrize("known", [b"", b"\xff", b"../../elsewhere", b"none"])
def test_nonsense_in_the_index(rig: Rig, known: bytes) -> None:
    """A note that leads nowhere is ignored."""
    folder = prepared_folder.PreparedFolder(rig.cache, GIB)
    file = read_onnx_file(rig.path)
    folder.note(prepared_folder.file_key(file, "1"), "content")
    (note,) = (rig.cache / "known").iterdir()
    note.write_bytes(known)
    assert folder.find(file, "1") is None


def test_small_and_new_models_are_not_prepared(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """By itself only a large model is prepared, and only once it returned."""
    asked: list[ModelId] = []
    monkeypatch.setattr(rig.prepared, "_prepare", lambda model, *_: asked.append(model))
    file = read_onnx_file(rig.path)
    large = replace(file, weights_nbytes=prepared._WORTHWHILE_NBYTES)
    for expected in ([], [LARGE], [LARGE], [LARGE]):
        rig.prepared.loaded(A, file, "1", wanted=False)
        rig.prepared.loaded(LARGE, large, "2", wanted=False)
        rig.prepared._threads.submit(lambda: None).result(30)
        assert asked == expected


def test_plain_is_plain(ready: Rig, loads: list[str]) -> None:
    """A model can be kept from it, and a server too."""
    ready.load("plain").close()
    ready.backend = OnnxBackend()
    ready.load("prepared").close()
    assert loads == [str(ready.path)] * 2


def refused(rig: Rig) -> str:
    rig.load().close()
    event = rig.told()[-1]
    assert isinstance(event, ModelNotPrepared)
    return event.reason


def test_over_the_limit(rig: Rig) -> None:
    """What would never fit is not prepared."""
    rig.begin(limit_nbytes=MODEL_NBYTES)
    assert refused(rig) == "it would take 2.1 MiB of disk, the setting cache allows 1.0 MiB"


def test_the_last_used_ones_stay(ready: Rig) -> None:
    """Where there is room for one, the next takes the place of the one before."""
    (first,) = ready.entries()
    write_models(ready.path.parent.parent.parent, 1, MODEL_NBYTES + 2**18)
    ready.begin(limit_nbytes=3 * MODEL_NBYTES)
    ready.load().close()
    ready.told(2)
    (second,) = ready.entries()
    assert second != first


def used_in_turn(rig: Rig, *names: str) -> None:
    """Entries of 100 bytes, of which the first was used last."""
    for age, name in enumerate(names):
        entry = rig.cache / "entries" / name
        entry.mkdir(parents=True)
        (entry / "weights.bin").write_bytes(bytes(100))
        (entry / "entry.json").touch()
        os.utime(entry / "entry.json", (1000 - age, 1000 - age))


def test_make_room(rig: Rig) -> None:
    """The entries that were used longest ago go first, and no more than must."""
    used_in_turn(rig, "new", "old", "oldest")
    file = replace(read_onnx_file(rig.path), weights_nbytes=40)  # which takes 84 bytes
    assert prepared_folder.PreparedFolder(rig.cache, 300).make_room(file, 0.0) is None
    assert [path.name for path in rig.entries()] == ["new", "old"]


def test_a_tenth_of_the_free_disk(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the setting allows, prepared models take a tenth of the free disk at most."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=800))
    used_in_turn(rig, "new", "old")
    folder = prepared_folder.PreparedFolder(rig.cache, GIB)
    file = replace(read_onnx_file(rig.path), weights_nbytes=48)  # which takes 100 bytes
    assert folder.make_room(file, 0.0) is None
    assert rig.entries() == []
    told = folder.make_room(replace(file, weights_nbytes=50), 0.0)
    assert told == "it would take 105 B of disk, a tenth of the free disk is 80 B"


def test_too_little_memory(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the memory for it is not there, nothing is begun."""
    monkeypatch.setattr(prepared, "_MEMORY_FACTOR", 2**40)
    assert refused(rig).startswith("preparing it takes ")
    monkeypatch.undo()
    rig.load().close()
    assert isinstance(rig.told(2)[-1], ModelPrepared)  # there is enough now


def test_a_folder_that_cannot_be_written(rig: Rig) -> None:
    """The reason is told, and the model is served."""
    rig.cache.write_text("in the way")
    assert refused(rig) == f"File exists: {str(rig.cache)!r}"
    rig.load().close()
    assert len(rig.log.since()) == 1, "it is not tried again and again"


def test_what_a_crash_left_goes(rig: Rig) -> None:
    """Parts of a process that died a day ago are removed, those of others that write are not."""
    for name, age_s in (("old", 2 * 86400.0), ("new", 0.0)):
        part = rig.cache / "parts" / name
        part.mkdir(parents=True)
        os.utime(part, (1e9 - age_s, 1e9 - age_s))
    prepared_folder.PreparedFolder(rig.cache, GIB).make_room(read_onnx_file(rig.path), 1e9)
    assert [part.name for part in (rig.cache / "parts").iterdir()] == ["new"]


@pytest.mark.parametrize("keys", ["12", "112"], ids=["while it is read", "while it is loaded"])
def test_a_file_that_changes_meanwhile(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, keys: str
) -> None:
    """What was made of a file that is another now is not taken for it, nor for what it was."""
    made = iter(keys)
    monkeypatch.setattr(prepare, "file_key", lambda *_: next(made))
    with pytest.raises(LoadFailed, match="the file changed meanwhile"):
        prepare.main(str(rig.path), prepared_folder.PreparedFolder(rig.cache, GIB), "1")
    assert rig.entries() == list(rig.cache.glob("known/*")) == list(rig.cache.glob("parts/*")) == []


def test_times_that_are_set(ready: Rig, loads: list[str]) -> None:
    """A file of the same size, number and set times is another all the same."""
    before = ready.path.stat()
    changed = bytearray(ready.path.read_bytes())
    changed[-1000] ^= 1
    with ready.path.open("r+b") as file:
        file.write(changed)
    os.utime(ready.path, ns=(before.st_atime_ns, before.st_mtime_ns))
    ready.load().close()
    assert loads == [str(ready.path)]


def begin_endless(
    monkeypatch: pytest.MonkeyPatch, begun: Callable[[list[str], Any], object]
) -> None:
    """Let the process that prepares be one that never ends, and tell *begun* of it."""
    popen = subprocess.Popen

    def endless(command: list[str], **more: Any) -> Any:
        waits = [sys.executable, "-c", "import signal; signal.pause()"]
        process = popen(waits, **(more | {"stdin": subprocess.PIPE}))
        begun(command, process)
        return process

    monkeypatch.setattr(subprocess, "Popen", endless)


def test_stopping_ends_it(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that prepares ends with the server, and nothing is told of it."""
    started: queue.Queue[Any] = queue.Queue()
    begin_endless(monkeypatch, lambda _, process: started.put(process))
    rig.load().close()
    process = started.get(timeout=30)
    rig.prepared.close()
    assert process.wait(30) != 0
    rig.prepared._threads.close()
    assert rig.log.since() == ()


def test_a_crash_while_preparing(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ends the process that prepares ends nothing else, and is told."""
    monkeypatch.setenv("PYTHONPATH", str(rig.path.parent))
    (rig.path.parent / "sitecustomize.py").write_text("import os; os.abort()")
    assert refused(rig) == "the process that prepares it ended with -6"


def test_modules_beside_the_notebook(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies in the working directory is not taken for Python's own modules."""
    monkeypatch.chdir(rig.path.parent)
    Path("queue.py").write_text("raise SystemExit('taken')")
    rig.load().close()
    assert isinstance(rig.told()[-1], ModelPrepared)


def test_what_cannot_be_started(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no process can be started, that is told."""
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    assert "No such file or directory" in refused(rig)


@pytest.mark.parametrize(
    ("cpuinfo", "told"),
    [
        ("processor\t: 0\nmodel name\t: X\nflags\t\t: a b\n\nflags\t: c", "flags\t\t: a b"),
        (
            "processor\t: 0\nFeatures\t: fp\nCPU part\t: 0xd0c\n",
            "Features\t: fp\nCPU part\t: 0xd0c",
        ),
    ],
    ids=["x86", "ARM"],
)
def test_processors_are_told_apart(cpuinfo: str, told: str) -> None:
    """By what Linux says of the first one's abilities."""
    assert prepared_folder.processor_of(cpuinfo) == told


@pytest.mark.parametrize("width", [255, 257, 362])
def test_weights_of_odd_sizes(tmp_path: Path, width: int) -> None:
    """Packed weights lie where a processor can read them, whatever the sizes of others."""
    folder = samples._write_model(tmp_path, samples._Chain("odd", 4, width, seed=0))
    file = read_onnx_file(folder / "1" / "model.onnx")
    out = tmp_path / "out"
    out.mkdir()
    write.write_prepared(file, out)  # which also tries it
    made = onnx_proto.load(out / "model.onnx", load_external_data=False)
    for tensor in made.graph.initializer:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        places = [entries["offset"], entries["prepacked_0"].split("|")[1].split(";")[0]]
        assert [int(place) % 4096 for place in places] == [0, 0]


def test_what_answers_otherwise_is_not_kept(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written is tried beside the model itself, and must answer the same to the bit."""

    def spoil(_model: Path, weights: Path) -> None:
        weights.write_bytes(bytes(weights.stat().st_size))

    monkeypatch.setattr(write, "realign", spoil)
    with pytest.raises(LoadFailed, match="its answers would differ from those of the model itself"):
        write.write_prepared(read_onnx_file(rig.path), rig.cache.parent)


@pytest.mark.parametrize(
    ("datatype", "dims", "told"),
    [
        ("BYTES", ("n",), "it cannot be tried on made-up inputs: there are none of type"),
        ("FP32", ("n", 2**29), "input 'x' is too large"),
    ],
)
def test_what_cannot_be_tried_is_not_kept(
    tmp_path: Path, datatype: str, dims: tuple[object, ...], told: str
) -> None:
    """A model of text, or of inputs beyond the memory that was asked for, stays as it is."""
    path = identity(tmp_path / "m.onnx", datatype, dims)
    with pytest.raises(LoadFailed, match=told):
        write.write_prepared(read_onnx_file(path), tmp_path)


@pytest.mark.parametrize("datatype", ["FP32", "INT64", "BOOL", "FP16", "UINT8"])
def test_scalars_are_made_up(tmp_path: Path, datatype: str) -> None:
    """A model of scalars can be tried as any other."""
    path = identity(tmp_path / "m.onnx", datatype, ())
    (tmp_path / "out").mkdir()
    write.write_prepared(read_onnx_file(path), tmp_path / "out")
    assert (tmp_path / "out" / "model.onnx").exists()


def test_a_model_that_fails_is_tried_thrice(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was refused may do the next time, but it is not tried for ever."""
    monkeypatch.setattr(prepared, "available_nbytes", lambda: 0)
    for count in range(1, 6):
        rig.load().close()
        rig.told(min(count, 3))
        rig.prepared._threads.submit(lambda: None).result(30)
    assert len(rig.log.since()) == 3


def test_no_thread_to_prepare_in(rig: Rig) -> None:
    """Where no thread can be started the model is served as it is; the next load tries again."""

    def fail(_: object) -> None:
        raise RuntimeError("can't start new thread")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        for _ in range(5):
            rig.load().close()
    rig.load().close()
    assert isinstance(rig.told()[-1], ModelPrepared)


def test_what_was_removed_is_prepared_again(ready: Rig) -> None:
    """A cache that the user emptied fills again."""
    shutil.rmtree(ready.cache)
    ready.load().close()
    assert isinstance(ready.told(2)[-1], ModelPrepared)


def test_one_that_takes_too_long(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is ended, and its beginnings are removed."""
    monkeypatch.setattr(prepared, "_LONGEST_S", 0.0)
    part = rig.cache / "parts"
    theirs: list[str] = []

    def begun(command: list[str], process: Any) -> None:
        (part / f"{command[-2]}-x").mkdir(parents=True)
        theirs.append(f"{process.pid}-x")  # of another container, with processes of its own
        (part / theirs[0]).mkdir()

    begin_endless(monkeypatch, begun)
    assert "timed out" in refused(rig)
    assert [left.name for left in part.iterdir()] == theirs


@pytest.mark.parametrize("late", [False, True], ids=["while it writes", "in the last moment"])
def test_two_servers_write_the_same(rig: Rig, monkeypatch: pytest.MonkeyPatch, late: bool) -> None:
    """Whoever comes second leaves the entry of the first as it is, and nothing else."""
    folder = prepared_folder.PreparedFolder(rig.cache, GIB)
    rename = Path.rename

    def rename_late(part: Path, entry: Path) -> None:
        monkeypatch.undo()
        folder.write("same", fill)
        rename(part, entry)

    def fill_late(part: Path) -> None:
        fill(part, b"others")
        if late:
            monkeypatch.setattr(Path, "rename", rename_late)
        else:
            folder.write("same", fill)

    nbytes = folder.write("same", fill_late)
    assert (rig.cache / "entries" / "same" / "model.onnx").read_bytes() == b"some bytes"
    assert folder.write("same", fill) == nbytes > 0
    assert folder.has("same")
    assert [path.name for path in rig.entries()] == ["same"]
    assert list((rig.cache / "parts").iterdir()) == []


def preparing(rig: Rig, write: str) -> subprocess.CompletedProcess[str]:
    """The process that prepares, in which *write* takes the place of writing."""
    code = f"""
import runpy
from workbench.backends.onnx_tiers.folder import PreparedFolder
{write}
PreparedFolder.write = write
runpy.run_module("workbench.backends.onnx_tiers.prepare", run_name="__main__")
"""
    return python(code, rig.path, rig.cache, str(GIB), "writer", "1", check=False)


def test_the_process_that_prepares_writes_under_its_name(rig: Rig) -> None:
    """That which its server gave it, so that the server can clean up what it leaves."""
    run = preparing(rig, "write = lambda folder, *_: print(folder._writer) or 0")
    assert (run.returncode, run.stdout.splitlines()[0]) == (0, "writer")


def test_a_full_disk_is_told_with_the_folder(rig: Rig) -> None:
    """The system names no file when a write fails: the folder of prepared models is named."""
    run = preparing(rig, 'def write(*_):\n    raise OSError(28, "No space left on device")')
    assert (run.returncode, run.stderr) == (1, f"No space left on device: {str(rig.cache)!r}\n")


WRITER = """
import os
import time
os.getpid = lambda: 7
time.time = lambda: 0.0
from workbench.backends.onnx_tiers.folder import new_writer
print(new_writer())
"""


def test_writers_do_not_touch_each_other(rig: Rig) -> None:
    """Two of the same process number, in containers that share a cache, keep their work."""
    names = [python(WRITER).stdout.strip() for _ in range(2)]
    ours, theirs = (prepared_folder.PreparedFolder(rig.cache, GIB, name) for name in names)
    file = read_onnx_file(rig.path)
    told: list[Path] = []

    def fill_theirs(part: Path) -> None:
        fill(part)
        ours.write("ours", fill_ours)
        ours.clean(names[0])  # our process has ended, theirs goes on
        ours.make_room(file, time.time())
        assert part.is_dir()
        told.append(part)

    def fill_ours(part: Path) -> None:
        fill(part, b"others")
        theirs.clean(names[1] + "x")
        theirs.make_room(file, time.time())
        assert part.is_dir()
        told.append(part)

    assert theirs.write("theirs", fill_theirs) > 0
    assert sorted(path.name for path in rig.entries()) == ["ours", "theirs"]
    assert len({part.name for part in told}) == 2


def test_one_writer_at_two_models(rig: Rig) -> None:
    """Its incomplete entries have names of their own; its end removes all of them."""
    folder = prepared_folder.PreparedFolder(rig.cache, GIB, "writer")

    def fill_first(part: Path) -> None:
        fill(part)
        with pytest.raises(FileNotFoundError):
            folder.write("second", fill_and_end)
        assert not part.is_dir()

    def fill_and_end(part: Path) -> None:
        assert len(list((rig.cache / "parts").iterdir())) == 2
        folder.clean("writer")

    with pytest.raises(FileNotFoundError):
        folder.write("first", fill_first)


@pytest.mark.parametrize("cache", ["1GiB", "off"])
def test_the_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: str) -> None:
    """A server prepares what its models' configuration asks for, in the user's cache, or never."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (folder,) = write_models(tmp_path / "models", 1, MODEL_NBYTES)
    with (folder / "config.pbtxt").open("a") as config:
        config.write('parameters { key: "tier" value { string_value: "prepared" } }')
    with Workbench(tmp_path / "models", device="cpu", cache=cache) as workbench:
        workbench.load(folder.name)
        cursor = 0
        while cache != "off" and "prepare" not in {e.event.kind for e in workbench.events}:
            came = workbench.wait_for_events(cursor, 60)
            assert came, "nothing was prepared"
            cursor = came[-1].number
    found = list((tmp_path / "cache").glob("workbench/models/entries/*/model.onnx"))
    assert len(found) == (0 if cache == "off" else 1)
