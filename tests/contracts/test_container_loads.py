"""SageMaker's container over the core: loads and invocations that come at the same time."""

from pathlib import Path
from typing import Any

import pytest
from inside import opened
from onnx_models import scaled

from workbench.contracts.sagemaker.container import Asked, Container, Invocation
from workbench.contracts.sagemaker.names import core_name
from workbench.core import ServerCore
from workbench.errors import ModelNotFound
from workbench.settings import Settings


def test_an_invocation_before_a_load_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that is not loaded is not found, also if its load begins a moment later.

    Else the invocation would load it, and be refused if no model may leave for it (507).
    """
    scaled(tmp_path / "model.onnx", 2)
    settings = Settings.of(environ={}, device="cpu", budget="1KiB", evict="never")
    with opened(ServerCore(settings)) as core:
        container, name, start = Container(core), core_name("a"), core.requests.start

        def later(*given: Any, **more: Any) -> Any:
            core.models.add(name, tmp_path)  # with which a load begins
            return start(*given, **more)

        monkeypatch.setattr(core.requests, "start", later)
        invocation = Invocation(Asked(name, container.max_nbytes), b"[1]")
        for invoke in (container.invoke_now, container.invoke):
            with pytest.raises(ModelNotFound, match=r"^Model not found: a$"):
                invoke(invocation)
