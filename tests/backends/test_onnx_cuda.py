"""How CUDA is asked for, over the real engine, which runs on the CPU whatever it is told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx_models import identity, source

from workbench.backends.onnx import runtime as onnx_runtime
from workbench.backends.onnx.backend import OnnxBackend
from workbench.backends.onnx.runtime import CudaAbsence, find_cuda
from workbench.errors import LoadFailed
from workbench.tensor import Tensor

CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"


class Claiming:
    """A session on the CPU that says that it is *on* what it was asked for; or does not."""

    def __init__(self, session: Any, on: list[str]) -> None:
        self._session = session
        self._on = on

    def get_providers(self) -> list[str]:
        return self._on

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


class FakeRuntime:
    """ONNX Runtime, but for what it says of CUDA; it takes note of what it is asked."""

    def __init__(self, *, has_cuda: bool = True, gives_cuda: bool = True) -> None:
        self.providers = [CUDA, CPU] if has_cuda else [CPU]
        self.given = [CUDA, CPU] if gives_cuda else [CPU]
        self.preloaded: list[str] = []
        self.asked: list[tuple[list[Any], int]] = []

    def get_available_providers(self) -> list[str]:
        return self.providers

    def preload_dlls(self, *, directory: str) -> None:
        self.preloaded.append(directory)

    def InferenceSession(  # noqa: N802
        self, model: object, options: Any, *, providers: list[Any], enable_fallback: int
    ) -> Claiming:
        self.asked.append((providers, enable_fallback))
        real = onnxruntime.InferenceSession(model, options, providers=[CPU])
        return Claiming(real, self.given)

    def __getattr__(self, name: str) -> Any:
        return getattr(onnxruntime, name)


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Any]:
    fake = FakeRuntime(**getattr(request, "param", {}))
    monkeypatch.setattr(onnx_runtime, "engine", lambda: fake)
    onnx_runtime._preload_cuda.cache_clear()
    yield fake
    onnx_runtime._preload_cuda.cache_clear()


def test_cuda_is_tried(runtime: FakeRuntime) -> None:
    """Its libraries are loaded first, and ONNX Runtime may not fall back to the CPU."""
    assert find_cuda(2) is None
    assert runtime.preloaded == [""]
    ((providers, fallback),) = runtime.asked
    (name, options), other = providers
    assert (name, options["device_id"], other) == (CUDA, "2", CPU)
    assert fallback == 0


@pytest.mark.parametrize("runtime", [{"has_cuda": False}], indirect=True)
def test_a_build_without_cuda(runtime: FakeRuntime) -> None:
    """Such a build is not even asked for a session."""
    assert find_cuda() is CudaAbsence.NOT_IN_BUILD
    assert not runtime.asked


@pytest.mark.parametrize("runtime", [{"gives_cuda": False}], indirect=True)
def test_cuda_that_does_not_come(runtime: FakeRuntime, tmp_path: Path) -> None:
    """A session that would run on the CPU in silence is no session on a GPU."""
    assert find_cuda() is CudaAbsence.LIBRARIES_MISSING
    with pytest.raises(
        LoadFailed, match="is meant for the GPU; ONNX Runtime would run it on the CPU"
    ):
        OnnxBackend(cuda_device=0).load(source(identity(tmp_path / "m.onnx")))


def test_a_model_on_cuda(runtime: FakeRuntime, tmp_path: Path) -> None:
    """It is loaded on the GPU that was asked for, and may not recover when memory runs out."""
    session = OnnxBackend(cuda_device=1).load(source(identity(tmp_path / "m.onnx")))
    ((name, options), _), fallback = runtime.asked[0]
    assert (name, options["device_id"], fallback) == (CUDA, "1", 0)
    (y,) = session.run({"x": Tensor("FP32", np.ones(2, np.float32))}, ["y"])
    assert y.array.tolist() == [1, 1]
    assert not session.recovers
    assert OnnxBackend().load(source(tmp_path / "m.onnx")).recovers
