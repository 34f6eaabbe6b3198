"""A loaded model describes itself until it leaves, whatever becomes of its folder."""

import html
import shutil
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from inside import until

from workbench import Workbench
from workbench.errors import RepositoryError

BODY = {"inputs": [{"name": "pixels", "shape": [1, 64], "datatype": "FP32", "data": [0.5] * 64}]}
Asked = tuple[int, object]  # a status and an answer
Change = Callable[[Path, Path], None]
PATHS = [f"{v}{verb}" for verb in ("", "/config", "/ready", "/infer") for v in ("", "/versions/1")]


def _removed(first: Path, second: Path) -> None:
    shutil.rmtree(first / "digits")


def _broken(first: Path, second: Path) -> None:
    (first / "digits" / "config.pbtxt").write_text("no configuration")


def _copied(first: Path, second: Path) -> None:
    shutil.copytree(first / "digits", second / "digits")


def _asked(url: str, path: str) -> Asked:
    where = f"{url}/v2/models/digits{path}"
    reply = httpx.post(where, json=BODY) if path.endswith("infer") else httpx.get(where)
    return reply.status_code, reply.json()


@pytest.fixture(scope="module")
def expected(sample_models: Path) -> list[Asked]:
    """What a server says of digits whose folder stays as it is, by PATHS."""
    with Workbench(sample_models, device="cpu") as workbench:
        workbench.load("digits", version=1)
        return [_asked(workbench.url, path) for path in PATHS]


@pytest.fixture
def roots(sample_models: Path, tmp_path: Path) -> list[Path]:
    """Two repositories, of which the first has digits."""
    shutil.copytree(sample_models / "digits", tmp_path / "first" / "digits")
    (tmp_path / "second").mkdir()
    return [tmp_path / "first", tmp_path / "second"]


@pytest.mark.parametrize("change", [_removed, _broken, _copied])
@pytest.mark.parametrize("load", ["all", "on-demand", "explicit", "watch"])
def test_a_loaded_model_describes_itself(
    roots: list[Path],
    expected: list[Asked],
    monkeypatch: pytest.MonkeyPatch,
    *,
    load: str,
    change: Change,
) -> None:
    """Metadata, configuration, readiness and answers stay as they were, with a version or not.

    They do so too once a load by hand has looked at the folder in vain.
    """
    monkeypatch.setattr("workbench.core.runtime.WATCH_EVERY_S", 3600.0)
    with Workbench(roots, load=load, device="cpu") as workbench:
        workbench.load("digits", version=1)
        change(*roots)
        assert [_asked(workbench.url, path) for path in PATHS] == expected
        reply = httpx.post(f"{workbench.url}/v2/repository/models/digits/load")
        assert reply.status_code in ({503} if load == "watch" else {400, 404})
        assert [_asked(workbench.url, path) for path in PATHS] == expected


@pytest.mark.parametrize("change", [_broken, _copied])
def test_a_watcher_that_finds_a_fault_changes_nothing(
    roots: list[Path],
    expected: list[Asked],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    change: Change,
) -> None:
    """With load="watch" it describes itself also once the watcher saw that its folder is wrong."""
    monkeypatch.setattr("workbench.core.runtime.WATCH_EVERY_S", 0.005)
    with Workbench(roots, load="watch", device="cpu") as workbench:
        change(*roots)
        until(lambda: "digits, whose files changed, is not loaded" in caplog.text)
        assert [_asked(workbench.url, path) for path in PATHS] == expected


def test_the_repository_goes(roots: list[Path]) -> None:
    """What is loaded is listed, answers and can be unloaded; all say that the folder is gone."""
    gone = f"the repository folder '{roots[0]}'"
    with Workbench(roots[0], device="cpu") as workbench:
        workbench.load("digits", version=1)
        expected = _asked(workbench.url, "/infer")
        shutil.rmtree(roots[0])
        assert _asked(workbench.url, "/infer") == expected
        assert _asked(workbench.url, "")[0] == 200
        assert httpx.get(f"{workbench.url}/v2/models").json() == {"models": ["digits"]}
        (row,) = httpx.post(f"{workbench.url}/v2/repository/index").json()
        assert (row["name"], row["state"]) == ("digits", "READY")
        assert "not in the repository any more" in repr(workbench.models)
        assert workbench["digits"](pixels=BODY["inputs"][0]["data"]) is not None
        for shown in (repr(workbench), workbench._repr_html_()):
            assert f"with 1 model ({gone} does not exist)" in html.unescape(shown)
        with pytest.raises(RepositoryError, match=f"{gone}: No such file"):
            workbench.load("wine")
        assert workbench.unload("digits") is None
        assert workbench.names == ()
        with pytest.raises(RepositoryError, match=f"{gone}: No such file"):
            workbench.unload("digits")
