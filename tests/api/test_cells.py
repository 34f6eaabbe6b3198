"""Cells that start a server and are run again, and servers that nothing holds."""

import gc
import re
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell

from workbench import Workbench, engines
from workbench.api import starting as module
from workbench.errors import PortInUse
from workbench.events import EventLog, ServerStopped
from workbench.repository import hidden_files, too_deep

CELL = "from workbench import Workbench\nwb = Workbench({!r}, device='cpu'{}).start()"


@pytest.fixture
def shell() -> Iterator[InteractiveShell]:
    """A shell of IPython, whose cells may be run several times."""
    shell = InteractiveShell.instance()
    yield shell
    for value in [*shell.user_ns.values()]:
        if isinstance(value, Workbench):
            value.stop()
    InteractiveShell.clear_instance()


def run(shell: InteractiveShell, cell: str) -> Workbench:
    shell.run_cell(cell, store_history=True).raise_error()
    workbench = shell.user_ns["wb"]
    assert isinstance(workbench, Workbench)
    return workbench


def stopped(log: EventLog) -> bool:
    """Whether its server stops, within a while."""
    seen = 0
    while entries := log.wait(seen, 30.0):
        seen = entries[-1].number
        if any(isinstance(entry.event, ServerStopped) for entry in entries):
            return True
    return False


def test_a_cell_that_is_run_again(
    shell: InteractiveShell, sample_models: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the same settings it gets the server that it started, and says since when that runs."""
    cell = CELL.format(str(sample_models), "")
    first = run(shell, cell)
    assert capsys.readouterr().out == ""
    assert run(shell, cell) is first
    assert run(shell, cell) is first
    out = capsys.readouterr().out.splitlines()
    assert [line.split(" for ")[0] for line in out] == [f"already running at {first.link}"] * 2


def test_other_settings(
    shell: InteractiveShell, sample_models: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The older server is named, with what differs and how it is stopped; unheld it stops."""
    monkeypatch.setattr(shell, "get_parent", lambda: {"metadata": {"cellId": "a"}}, raising=False)
    first = run(shell, CELL.format(str(sample_models), ", budget='64MiB'"))
    second = run(shell, CELL.format(str(sample_models), ", budget='32MiB'"))
    assert second is not first
    assert capsys.readouterr().out.strip() == (
        f"this cell started another server before, at {first.link}: "
        "budget is 64.0 MiB, not 32.0 MiB; it stops once no variable holds it (now: wb)"
    )
    log = first._core.events
    del first
    gc.collect()
    assert stopped(log)
    assert second.is_running


def test_a_port_that_the_older_server_has(
    shell: InteractiveShell, sample_models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says which server of this notebook has the port."""
    monkeypatch.setattr(shell, "get_parent", lambda: {"metadata": {"cellId": "a"}}, raising=False)
    first = run(shell, CELL.format(str(sample_models), ""))
    port = first.url.rpartition(":")[2]
    with pytest.raises(PortInUse, match=rf"at {first.link}: port is 0, not {port}; wb.stop\(\)"):
        run(shell, CELL.format(str(sample_models), f", port={port}"))
    assert shell.user_ns["wb"] is first


def test_several_servers_of_a_cell(shell: InteractiveShell, sample_models: Path) -> None:
    """A cell may start two that are equal; run again it gets the same two."""
    cell = (
        "from workbench import Workbench\n"
        f"pair = [Workbench({str(sample_models)!r}, device='cpu').start() for _ in range(2)]\n"
        "wb, other = pair\n"
    )
    first = run(shell, cell)
    second = shell.user_ns["other"]
    assert first is not second
    run(shell, cell)
    assert {id(shell.user_ns["wb"]), id(shell.user_ns["other"])} == {id(first), id(second)}


def test_an_error_says_its_line(shell: InteractiveShell, sample_models: Path) -> None:
    """In a cell of several lines the error names the line; in one of one line it does not."""
    shell.run_line_magic("load_ext", "workbench")
    shell.run_cell(f"from workbench import Workbench\nwb = Workbench({str(sample_models)!r})")

    def shown(cell: str) -> str:
        error = shell.run_cell(cell).error_in_exec
        assert error is not None
        render = getattr(error, "_render_traceback_", None)
        return "".join(render()) if render else str(error)

    for line in ("wb['vine']", "%workbench load vine", "x = %workbench lod"):
        assert "(line" not in shown(line)
        assert shown(f"a = 1\n\n{line}\nb = 2").endswith(" (line 3 of the cell)")
        assert shown(f"%%time\na = 1\n{line}\nb = 2").endswith(" (line 3 of the cell)")
        assert shown(f"%%time\na = 1\n{line}").endswith(" (line 3 of the cell)")
    inside = "def ask():\n    return wb['vine']\n\nask()"
    assert shown(inside).endswith(" (line 4 of the cell)")


def test_outside_of_a_notebook(sample_models: Path) -> None:
    """In a program two servers of the same settings are two; one that nothing holds stops."""
    first = Workbench(sample_models, device="cpu").start()
    second = Workbench(sample_models, device="cpu").start()
    first.register(lambda x: x, name="f", inputs={"x": ("FP32", [1])}, outputs={"y": ("FP32", [1])})
    assert first.url != second.url
    log = first._core.events
    del first
    gc.collect()
    assert stopped(log)
    assert second.is_running
    second.stop()


def test_a_folder_that_is_one_model(sample_models: Path) -> None:
    """A start warns of a folder whose versions would be served as models, unless it has a name."""
    above = re.escape(f"serve the folder above it, {sample_models}")
    with pytest.warns(UserWarning, match=above), Workbench(sample_models / "wine", device="cpu"):
        pass
    assert too_deep([sample_models, sample_models / "gone"]) == ""
    with Workbench(sample_models / "wine", name="red", device="cpu") as wb:  # and no warning
        assert wb.names == ("red",)
        assert f"1 model ('red' is served from {sample_models / 'wine'})" in repr(wb)


def test_a_file_beside_a_folder_of_its_name(sample_models: Path, tmp_path: Path) -> None:
    """A start warns of the file, which is not served, and names the folder, which is."""
    shutil.copytree(sample_models / "wine", tmp_path / "wine")
    assert hidden_files([tmp_path, tmp_path / "gone"]) == ""
    for name in ("wine", "other"):
        shutil.copy(tmp_path / "wine" / "1" / "model.onnx", tmp_path / f"{name}.onnx")
    told = re.escape(
        f"'wine' is served from the folder {tmp_path / 'wine'}, and {tmp_path / 'wine.onnx'} is "
        "not served: rename or remove one of them"
    )
    with pytest.warns(UserWarning, match=told), Workbench(tmp_path, device="cpu") as wb:
        assert wb.names == ("other", "wine")
    (tmp_path / "other").mkdir()
    assert "'other'" in hidden_files([tmp_path])
    assert "is not served (1 more like it): rename" in hidden_files([tmp_path])


def test_engines_over_each_other(sample_models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start warns of two packages of ONNX Runtime, with the command that repairs them."""
    both = {"onnxruntime": "1.24.0", "onnxruntime-gpu": "1.31.1"}
    problem = engines.overwritten(both.get)
    assert problem == (
        "onnxruntime 1.24.0 and onnxruntime-gpu 1.31.1 are installed over each other, and may fail "
        "or miss the GPU: pip uninstall -y onnxruntime onnxruntime-gpu && "
        "pip install onnxruntime-gpu"
    )
    assert engines.overwritten({"onnxruntime": "1.24.0"}.get) == ""
    monkeypatch.setattr(module, "overwritten", lambda: problem)
    with (
        pytest.warns(UserWarning, match="pip uninstall -y onnxruntime onnxruntime-gpu"),
        Workbench(sample_models, device="cpu"),
    ):
        pass
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert engines.overwritten() == ""
