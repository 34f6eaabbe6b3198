"""The data plane's own care, which a client cannot see."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from workbench.core import ServerCore
from workbench.http.infer import DataPlane, InferHead
from workbench.http.paths import Target
from workbench.settings import Settings

BODY = json.dumps(
    {"inputs": [{"name": "features", "datatype": "FP32", "shape": [1, 13], "data": [0] * 13}]}
).encode()
HEAD = InferHead(Target("wine", None, "infer"))


@pytest.fixture
def core(sample_models: Path) -> Iterator[ServerCore]:
    core = ServerCore(Settings.of(sample_models, environ={}, device="cpu"))
    core.open()
    yield core
    core.close()


class Never:
    """Threads that never begin what they are given."""

    def submit(self, work: Any, *args: object) -> Future[Any]:
        return Future()


def cancelled(core: ServerCore) -> None:
    """Ask for an inference, and go away while it waits."""

    async def ask() -> None:
        asking = asyncio.ensure_future(DataPlane(core).answer(HEAD, BODY))
        # a lease tells nobody that it was taken
        while not asking.done() and not any(m.leases for m in core.snapshot().models):  # noqa: ASYNC110
            await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    asyncio.run(ask())


def test_a_run_that_never_began_gives_its_lease_back(
    core: ServerCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that is cancelled before a thread takes it leaves no lease."""
    core.load("wine")
    monkeypatch.setattr(ServerCore, "running", Never())
    cancelled(core)
    assert [model.leases for model in core.snapshot().models] == [0]


def test_a_request_cancelled_while_its_model_loads(core: ServerCore) -> None:
    """A request that is cancelled while its model loads leaves no lease when it is loaded."""
    cancelled(core)
    core.load("wine")
    core.unload("wine")
    assert core.snapshot().models == ()
