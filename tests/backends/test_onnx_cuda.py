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
from workbench.backends.onnx.runtime import LIBRARIES_MISSING, NOT_IN_BUILD, find_cuda
from workbench.errors import LoadFailed, MemoryExhausted
from workbench.tensor import Tensor

CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"


class Claiming:
    """A session on the CPU that says that it is *on* what it was asked for; or does not."""

    def __init__(self, session: Any, on: list[str], runtime: FakeRuntime) -> None:
        self._session = session
        self._on = on
        self._runtime = runtime

    def get_providers(self) -> list[str]:
        return self._on

    def run(self, *arguments: Any) -> Any:
        self._runtime.runs += 1
        if self._runtime.failure:
            raise RuntimeError(self._runtime.failure)
        return self._session.run(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


class FakeRuntime:
    """ONNX Runtime, but for what it says of CUDA; it takes note of what it is asked."""

    def __init__(self, *, has_cuda: bool = True, gives_cuda: bool = True) -> None:
        self.providers = [CUDA, CPU] if has_cuda else [CPU]
        self.given = [CUDA, CPU] if gives_cuda else [CPU]
        self.preloaded: list[str] = []
        self.asked: list[tuple[list[Any], int]] = []
        self.runs = 0
        self.failure = ""

    def get_available_providers(self) -> list[str]:
        return self.providers

    def preload_dlls(self, *, directory: str) -> None:
        self.preloaded.append(directory)

    def InferenceSession(  # noqa: N802
        self, model: object, options: Any, *, providers: list[Any], enable_fallback: int
    ) -> Claiming:
        self.asked.append((providers, enable_fallback))
        real = onnxruntime.InferenceSession(model, options, providers=[CPU])
        return Claiming(real, self.given, self)

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
    assert runtime.runs == 1


def test_a_gpu_that_fails(runtime: FakeRuntime) -> None:
    """A GPU on which a session can be made but not run is not used; ONNX Runtime's reason is told.

    So it is with GPUs for which ONNX Runtime has no code, or whose memory is full.
    """
    runtime.failure = "CUDA failure 2: out of memory ; GPU=0 ; hostname=h"
    assert find_cuda() == ("a small model does not run on the GPU: CUDA failure 2: out of memory")


def test_the_first_run_belongs_to_no_model(runtime: FakeRuntime) -> None:
    """CUDA makes its handles in the first run, so that run is made before a model is measured."""
    onnx_runtime.wake.cache_clear()
    OnnxBackend(cuda_device=0).wake()
    assert runtime.runs == 1
    runtime.failure = "CUDA failure 2: out of memory"
    with pytest.raises(MemoryExhausted):
        OnnxBackend(cuda_device=1).wake()
    onnx_runtime.wake.cache_clear()


@pytest.mark.parametrize("runtime", [{"has_cuda": False}], indirect=True)
def test_a_build_without_cuda(runtime: FakeRuntime) -> None:
    """Such a build is not even asked for a session."""
    assert find_cuda() == NOT_IN_BUILD
    assert not runtime.asked


@pytest.mark.parametrize("runtime", [{"gives_cuda": False}], indirect=True)
def test_cuda_that_does_not_come(runtime: FakeRuntime, tmp_path: Path) -> None:
    """A session that would run on the CPU in silence is no session on a GPU."""
    assert find_cuda() == LIBRARIES_MISSING
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
