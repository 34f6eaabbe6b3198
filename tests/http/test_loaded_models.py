"""A loaded model describes itself until it leaves, whatever becomes of its folder."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from inside import until

from workbench import Workbench

BODY = {"inputs": [{"name": "pixels", "shape": [1, 64], "datatype": "FP32", "data": [0.5] * 64}]}
PATHS = [f"{v}{verb}" for verb in ("", "/config", "/ready", "/infer") for v in ("", "/versions/1")]


def _removed(first: Path, second: Path) -> None:
    shutil.rmtree(first / "digits")


def _broken(first: Path, second: Path) -> None:
    (first / "digits" / "config.pbtxt").write_text("no configuration")


def _copied(first: Path, second: Path) -> None:
    shutil.copytree(first / "digits", second / "digits")


def _asked(url: str, path: str) -> tuple[int, object]:
    where = f"{url}/v2/models/digits{path}"
    reply = httpx.post(where, json=BODY) if path.endswith("infer") else httpx.get(where)
    return reply.status_code, reply.json()


@pytest.fixture(scope="module")
def expected(sample_models: Path) -> list[tuple[int, object]]:
    """What a server says of digits whose folder stays as it is, by PATHS."""
    with Workbench(sample_models, device="cpu") as workbench:
        workbench.load("digits", version=1)
        return [_asked(workbench.url, path) for path in PATHS]


@pytest.mark.parametrize("change", [_removed, _broken, _copied])
@pytest.mark.parametrize("load", ["all", "on-demand", "explicit", "watch"])
def test_a_loaded_model_describes_itself(
    sample_models: Path,
    tmp_path: Path,
    expected: list[tuple[int, object]],
    load: str,
    change: Callable[[Path, Path], None],
) -> None:
    """Metadata, configuration, readiness and answers stay as they were, with a version or not."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    shutil.copytree(sample_models / "digits", first / "digits")
    second.mkdir()
    server = Workbench([first, second], load=load, watch_every="1h", device="cpu")
    with server as workbench:
        workbench.load("digits", version=1)
        change(first, second)
        assert [_asked(workbench.url, path) for path in PATHS] == expected


@pytest.mark.parametrize("change", [_removed, _broken, _copied])
@pytest.mark.parametrize("load", ["all", "on-demand", "explicit"])
def test_a_load_that_fails_changes_nothing(
    sample_models: Path,
    tmp_path: Path,
    expected: list[tuple[int, object]],
    load: str,
    change: Callable[[Path, Path], None],
) -> None:
    """A loaded model describes itself also once its folder was looked at in vain."""
    first, second = tmp_path / "first", tmp_path / "second"
    shutil.copytree(sample_models / "digits", first / "digits")
    second.mkdir()
    with Workbench([first, second], load=load, device="cpu") as workbench:
        workbench.load("digits", version=1)
        change(first, second)
        reply = httpx.post(f"{workbench.url}/v2/repository/models/digits/load")
        assert reply.status_code in {400, 404}
        assert [_asked(workbench.url, path) for path in PATHS] == expected


@pytest.mark.parametrize("change", [_broken, _copied])
def test_a_watcher_that_finds_a_fault_changes_nothing(
    sample_models: Path,
    tmp_path: Path,
    expected: list[tuple[int, object]],
    caplog: pytest.LogCaptureFixture,
    change: Callable[[Path, Path], None],
) -> None:
    """With load="watch" it describes itself also once the watcher saw that its folder is wrong."""
    first, second = tmp_path / "first", tmp_path / "second"
    shutil.copytree(sample_models / "digits", first / "digits")
    second.mkdir()
    with Workbench([first, second], load="watch", watch_every="5ms", device="cpu") as workbench:
        change(first, second)
        until(lambda: "digits, whose files changed, is not loaded" in caplog.text)
        assert [_asked(workbench.url, path) for path in PATHS] == expected
