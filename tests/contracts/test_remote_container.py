"""Another container: what is asked of it, and for how long."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from workbench.contracts.sagemaker.endpoint import containers
from workbench.contracts.sagemaker.endpoint.containers import ContainerReply, RemoteContainer


def test_an_unload_is_over_in_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loads that failed before are unloaded in what is left of it, all of them together."""
    now_s, asked = 0.0, []

    def ask(method: str, path: str, body: bytes, headers: Any, timeout_s: float) -> ContainerReply:
        nonlocal now_s
        if method == "POST":
            return ContainerReply(500)
        asked.append((path, timeout_s))
        now_s += min(4.0, timeout_s)  # it hangs
        return ContainerReply(0)

    container = RemoteContainer("http://there", lambda work: Future[Any]())
    monkeypatch.setattr(container, "_ask", ask)
    monkeypatch.setattr(containers, "time", SimpleNamespace(monotonic=lambda: now_s))
    for name in ("a", "b", "c", "d"):
        container.load(name, "", f"{name}.tar.gz")
    asked.clear()
    begun_s = now_s
    container.unload("m", "m.tar.gz", 10.0)
    assert asked == [("/models/m", 10.0), ("/models/a", 6.0), ("/models/b", 2.0)]
    assert now_s - begun_s == 10.0
