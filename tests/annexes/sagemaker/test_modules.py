"""The modules of artifacts, of which each has its own under names that others have too."""

import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import pytest

from workbench.annexes.sagemaker import modules
from workbench.annexes.sagemaker.modules import OwnModules
from workbench.errors import WaitedTooLong

SCRIPT = """
import helper
def now(): return helper.NAME
def later():
    import late
    from late import NAME
    import package.inner
    from package import second
    from package.third import NAME as third
    return NAME, late.helper.NAME, package.inner.NAME + second.NAME + third
"""


def written(folder: Path, script: str = SCRIPT) -> Path:
    (folder / "package").mkdir(parents=True)
    for name, text in (
        ("inference", script),
        ("helper", f"NAME = {folder.name!r}"),
        ("late", "import helper\nNAME = 'late ' + helper.NAME"),
        ("package/__init__", ""),
        ("package/inner", "from late import NAME"),
        ("package/second", "NAME = ' 2'"),
        ("package/third", "NAME = ' 3'"),
        ("random", "1 / 0"),
        ("time", "1 / 0"),
        ("__main__", "1 / 0"),
    ):
        (folder / f"{name}.py").write_text(text)
    return folder / "inference.py"


def test_each_has_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules come from the artifact's folder, whatever a notebook has imported by their names."""
    monkeypatch.setitem(sys.modules, "helper", ModuleType("helper"))
    monkeypatch.setitem(sys.modules, "late", ModuleType("late"))
    vars(sys.modules["late"])["__file__"] = vars(sys.modules["helper"])["__file__"] = "x.py"
    before, path = dict(sys.modules), list(sys.path)
    scripts = [written(tmp_path / name) for name in "ab"]
    a, b = (OwnModules(each.parent).import_script(each) for each in scripts)
    for _ in range(2):
        assert a.later() == ("late a", "a", "late a 2 3")
        assert b.later() == ("late b", "b", "late b 2 3")
    assert (a.now(), b.now()) == ("a", "b")
    assert sys.path == path
    added = set(sys.modules) - set(before)
    assert not added & {"inference", "helper", "late", "package", "package.inner"}
    assert sys.modules["helper"] is before["helper"]


def test_installed_modules_stay(tmp_path: Path) -> None:
    """A file called as a module of Python, or of a package, that is imported takes no place."""
    script = written(tmp_path / "a", "import random, time\ndef now(): return random, time")
    assert OwnModules(script.parent).import_script(script).now() == (random, time)


def test_the_main_module_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's main module is found while an artifact is loaded that has one as well."""
    monkeypatch.setitem(sys.modules, "__main__", main := ModuleType("__main__"))
    main.__file__ = "x.py"
    own = OwnModules(written(tmp_path / "a").parent)
    with own.importable():
        assert sys.modules.get("__main__") is main


def test_a_script_that_fails(tmp_path: Path) -> None:
    """What a script imported before it failed is gone, and the next one can be imported."""
    for name in "ab":
        script = written(tmp_path / name, "import helper\n1 / 0")
        with pytest.raises(ZeroDivisionError):
            OwnModules(script.parent).import_script(script)
    assert "inference" not in sys.modules
    assert "helper" not in sys.modules


def test_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules of two artifacts are not importable at once; who waits too long is told so."""
    monkeypatch.setattr(modules, "_LONGEST_S", 0.0)
    folders = [written(tmp_path / name).parent for name in "ab"]
    with (
        OwnModules(folders[0]).importable(),
        pytest.raises(WaitedTooLong, match="another artifact"),
        OwnModules(folders[1]).importable(),
    ):
        raise AssertionError("both are importable")


def test_threads_of_the_artifact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that model_fn starts and waits for import the artifact's modules as it does."""
    monkeypatch.setattr(modules, "_LONGEST_S", 0.0)
    own = OwnModules(written(tmp_path / "a").parent)
    module = own.import_script(tmp_path / "a" / "inference.py")
    with own.importable(), ThreadPoolExecutor(1) as pool:
        assert pool.submit(module.later).result() == ("late a", "a", "late a 2 3")


class Importing(str):
    """A name in ``sys.modules`` that is looked at just when another thread imports a module."""

    __slots__ = ()

    def partition(self, sep: str) -> tuple[str, str, str]:
        sys.modules["imported_meanwhile"] = ModuleType("imported_meanwhile")
        return super().partition(sep)


def test_others_may_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While an artifact's modules come and go, other threads may import theirs."""
    monkeypatch.setitem(sys.modules, "imported_meanwhile", ModuleType("x"))
    monkeypatch.delitem(sys.modules, "imported_meanwhile")
    monkeypatch.setitem(sys.modules, Importing("imported"), ModuleType("imported"))
    monkeypatch.setitem(sys.modules, "last", ModuleType("last"))
    script = written(tmp_path / "a")
    assert OwnModules(script.parent).import_script(script).now() == "a"
