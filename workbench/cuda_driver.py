"""The CUDA driver's library, libcuda: the only module that loads it.

The driver comes with the GPU, unlike the CUDA runtime, and it counts GPUs as ONNX Runtime
in this process does.
"""

from __future__ import annotations

import ctypes
from typing import Any


def load_driver() -> Any:
    """The driver's library, initialized by nobody yet. Raises ``OSError`` where there is none."""
    return ctypes.CDLL("libcuda.so.1")
