"""Writes modules of PyTorch as ONNX models."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from workbench.conversion.onnx_outputs import with_any_sizes
from workbench.objects.eval_mode import in_eval_mode, is_switchable
from workbench.tensor import Array

Axes = Mapping[str, tuple[int, ...]]


def export_module(
    flat: Any, arrays: Mapping[str, Array], free: Axes, outputs: Axes, path: Path
) -> None:
    """Write *flat* to *path*, its weights beside it. Raises whatever PyTorch does.

    It takes *arrays*, of any size on their *free* axes where the module allows that, and gives
    *outputs*, which have any size on the axes that are given by their names.
    """
    import onnxscript  # noqa: F401  # so that what is missing is said
    import torch

    first = next(iter(flat.parameters()), None)
    device = "cpu" if first is None else first.device
    sizes = {name: dict.fromkeys(axes, torch.export.Dim.AUTO) for name, axes in free.items()}
    with in_eval_mode(flat.module), _quiet():
        if isinstance(flat.module, torch.jit.RecursiveScriptModule) and is_switchable(flat.module):
            flat.module = torch.jit.freeze(flat.module)  # PyTorch exports no other scripted module
        torch.onnx.export(
            flat,
            tuple(torch.from_numpy(np.array(array)).to(device) for array in arrays.values()),
            path,
            input_names=list(arrays),
            output_names=list(outputs),
            dynamic_shapes=(tuple(sizes[name] for name in arrays),),
            dynamo=True,
            external_data=True,
            verbose=False,
        )
    # the exporter knows no free sizes behind an LSTM
    path.write_bytes(with_any_sizes(path.read_bytes(), outputs.values()))


class _OfOtherThreads:
    """A stream that drops what the thread that made it writes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._thread = threading.get_ident()

    def write(self, text: str) -> int:
        return len(text) if threading.get_ident() == self._thread else self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide what torch tells of its tries: warnings, and graphs that it could not finish."""
    logger = logging.getLogger("torch")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with redirect_stderr(_OfOtherThreads(sys.stderr)):
            yield
    finally:
        logger.setLevel(level)
