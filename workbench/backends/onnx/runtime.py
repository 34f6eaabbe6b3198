"""The only module that imports ONNX Runtime.

Two of its defaults are not wanted here, each measured on 1.31:

- It sends telemetry unless an environment variable is set before its import.
- Asked for CUDA where CUDA does not work, it runs on the CPU and says so only
  on the C library's stderr. So fallback is off, and the provider that a session
  has is compared with the one it was to have.
"""

from __future__ import annotations

import os
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from workbench.backends.onnx.errors import first_line
from workbench.backends.onnx.options import cuda_options, session_options

# y = Relu(x), one float each: enough to see where a session really runs. Identity is only a copy,
# which also succeeds on GPUs for which ONNX Runtime has no code.
_TINY_MODEL = bytes.fromhex(
    "08083a330a0c0a0178120179220452656c751201745a0f0a0178120a0a08080112040a020801620f"
    "0a0179120a0a08080112040a02080142040a00100d"
)

NOT_IN_BUILD = "this build of ONNX Runtime has no CUDA: install onnxruntime-gpu instead"
LIBRARIES_MISSING = (
    "the CUDA 13 libraries or the driver do not load: "
    "pip install 'serving-workbench[gpu]', and use a driver of 580 or newer"
)


@cache
def engine() -> ModuleType:
    """The module ``onnxruntime``, imported when it is first needed."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    count_by_bus()
    import onnxruntime

    runtime: ModuleType = onnxruntime
    return runtime


def count_by_bus() -> None:
    """Make CUDA number GPUs by bus, as NVML does, unless the environment sets another order."""
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")


@cache
def wake(cuda_device: int | None) -> None:
    """Run a first model, so that ONNX Runtime and CUDA allocate the memory that they keep."""
    _first_run(cuda_device)


def find_cuda(device_index: int = 0) -> str | None:
    """Why models cannot run on GPU *device_index*; ``None`` if a small model ran there."""
    if "CUDAExecutionProvider" not in engine().get_available_providers():
        return NOT_IN_BUILD
    _preload_cuda()
    try:
        session = _first_run(device_index)
    except Exception as error:  # ONNX Runtime raises RuntimeError and its own kinds alike
        return f"a small model does not run on the GPU: {first_line(error)}"
    return None if runs_on_cuda(session) else LIBRARIES_MISSING


def _first_run(cuda_device: int | None) -> Any:
    """A session of a small model, after a run: CUDA loads code and makes handles only then."""
    cuda = None if cuda_device is None else cuda_options(cuda_device)
    session = new_session(_TINY_MODEL, session_options(engine()), cuda)
    session.run(None, {"x": np.zeros(1, np.float32)})
    return session


@cache
def _preload_cuda() -> None:
    """Load the CUDA libraries that were installed from the package index, if any were."""
    if hasattr(engine(), "preload_dlls"):
        engine().preload_dlls(directory="")


def new_session(model: str | bytes, options: Any, cuda: dict[str, str] | None = None) -> Any:
    """An ``InferenceSession`` of a path or of a model's bytes, on CUDA if *cuda* has options.

    Raises whatever ONNX Runtime raises; its exceptions have no base class below ``Exception``.
    """
    providers: list[Any] = ["CPUExecutionProvider"]
    if cuda is not None:
        providers.insert(0, ("CUDAExecutionProvider", cuda))
    return engine().InferenceSession(model, options, providers=providers, enable_fallback=0)


def runs_on_cuda(session: Any) -> bool:
    """True if *session* got CUDA as its first provider."""
    return bool(session.get_providers()[:1] == ["CUDAExecutionProvider"])
