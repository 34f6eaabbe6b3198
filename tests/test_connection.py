"""``workbench.connect``: a server of another process, as a Python object."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import workbench
from workbench.connection import Connection
from workbench.errors import (
    InvalidRequest,
    ModelNotFound,
    RunFailed,
    ServerNotRunning,
    TokenRequired,
)


@pytest.fixture(scope="module")
def elsewhere(sample_models: Path) -> Iterator[str]:
    """The url of a server in another process, which asks for a token."""
    command = [sys.executable, "-m", "workbench", "serve", str(sample_models), "--port", "0"]
    with subprocess.Popen(
        [*command, "--token", "the-token-of-this-test", "--device", "cpu"],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline().split()[1].rstrip(":")
        process.terminate()
        process.communicate(timeout=30)


@pytest.fixture
def wb(elsewhere: str) -> Iterator[Connection]:
    with workbench.connect(elsewhere) as connection:
        yield connection


def test_the_same_answers(wb: Connection, sample_models: Path, held_out: dict[str, Any]) -> None:
    """Arrays of any number type, lists and keywords are answered as in the server's process."""
    rows = held_out["wine_x"][:4]
    with workbench.Workbench(sample_models, device="cpu") as here:
        expected = here.infer("wine", rows)
    assert np.array_equal(wb.infer("wine", rows), expected)
    assert np.array_equal(wb.infer("wine", features=rows.astype(np.float64).tolist()), expected)
    assert np.array_equal(asyncio.run(wb.ainfer("wine", rows, version=1)), expected)


def test_several_outputs_with_text(wb: Connection, sample_models: Path) -> None:
    """Files go in as BYTES, text comes out as str or bytes; one output may be picked."""
    png = (sample_models / "digit.png").read_bytes()
    assert wb.infer("digits_reader", png)["label"].tolist() == ["2"]
    assert wb.infer("digits_reader", [png], output="label", raw=True).tolist() == [b"2"]


def test_models_come_and_go(wb: Connection) -> None:
    """Loads and unloads are the server's, and the list says so."""
    wb.load("wine")
    assert {row["name"]: row["state"] for row in wb.models}["wine"] == "READY"
    wb.unload("wine")
    assert {row["name"]: row["state"] for row in wb.models}["wine"] == "UNAVAILABLE"


def test_errors_are_the_same(wb: Connection) -> None:
    """What the server refuses is the error that a workbench raises."""
    with pytest.raises(ModelNotFound, match="'vine'"):
        wb.infer("vine", [[1.0]])
    with pytest.raises(InvalidRequest, match=r"takes shape \[-1, 13\], got \[1, 1\]"):
        wb.infer("wine", [[1.0]])


def test_the_token(elsewhere: str) -> None:
    """The token of one's own server is found; without it the server refuses."""
    with (
        pytest.raises(TokenRequired),
        workbench.connect(elsewhere, token="a-wrong-token-of-ours") as wb,
    ):
        _ = wb.models
    with workbench.connect(elsewhere) as wb:
        assert "workbench" in repr(wb)


def test_no_server() -> None:
    """Where nobody answers, that is said in one line."""
    with pytest.raises(ServerNotRunning, match="no server answers at http"):
        workbench.connect("127.0.0.1:9")


def test_a_server_without_binary_data(wb: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that does not tell of the extension is asked in plain JSON."""
    monkeypatch.setattr(wb, "_about", {})
    assert wb.infer("wine", np.zeros((2, 13))).shape[0] == 2


def test_answers_that_are_no_protocol() -> None:
    """An error page of something between is told as it is."""
    http = httpx.Client(
        base_url="http://proxy",
        transport=httpx.MockTransport(lambda _: httpx.Response(502, text="bad")),
    )
    connection = Connection.__new__(Connection)
    connection.url, connection._http, connection._signatures = "http://proxy", http, {}
    with pytest.raises(RunFailed, match="bad"):
        connection.load("m")
    connection.close()
