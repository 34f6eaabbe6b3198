"""``workbench.connect`` to Triton, KServe and MLServer, by answers that were recorded of them."""

import json
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from workbench.annexes.connect.connection import Connection

HERE = Path(__file__).parent
sys.path.append(str(HERE))

from record_answers import sent_by, walk  # noqa: E402

TWICE = [[2.0, 4.0, 6.0, 8.0]]
EXPECTED = {
    "list": TWICE,
    "named": TWICE,
    "models": {"twice": "READY"},
    "unknown": "ModelNotFound",
    "misfit": "InvalidRequest",
    "unload": None,
    "unloaded": "ModelNotFound",
    "events": "NotSupported",
}
DIFFERENCES: dict[str, dict[str, Any]] = {
    "triton": {},
    # it tells no inputs, so that what is given must have their names
    # and has no index of its models
    "kserve": {"list": "UsageError", "models": "NotSupported", "misfit": "RunFailed"},
    # its index leaves out models that were not loaded from its repository
    "mlserver": {"models": {}, "misfit": "RunFailed"},
}


class Replay:
    """Answers each request as it was answered when it was recorded; any other fails the test."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows

    def __call__(self, request: httpx.Request) -> httpx.Response:
        sent = sent_by(request)
        row = next(row for row in self.rows if sent.items() <= row.items())
        self.rows.remove(row)
        content = row["answer"].encode("latin-1")
        return httpx.Response(row["status"], headers=row["headers"], content=content)


@pytest.mark.parametrize("server", DIFFERENCES)
def test_what_others_answer(server: str) -> None:
    """Inference, lists, loads and errors are as of a workbench, as far as they are told."""
    replay = Replay(json.loads((HERE / "recorded" / f"{server}.json").read_text()))
    wb = Connection("http://elsewhere", "", 1.0, httpx.MockTransport(replay))
    assert server in repr(wb)
    assert walk(wb) == {**EXPECTED, **DIFFERENCES[server]}
    assert not replay.rows
    wb.close()
