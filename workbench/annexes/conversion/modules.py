"""Modules of PyTorch as ONNX, by torch.onnx."""

from __future__ import annotations

import copy
import logging
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from workbench.annexes.conversion.graph import with_any_sizes
from workbench.objects.eval_mode import in_eval_mode, is_switchable
from workbench.objects.hints import free_axes
from workbench.objects.modules import ModuleRun, is_tensor, leaves
from workbench.objects.servable import Servable
from workbench.tensor import Array


def write(servable: Servable, arrays: Mapping[str, Array], path: Path) -> tuple[int, ...]:
    """Write *servable*, a module, as a model at *path*, its weights beside it."""
    import onnx
    import onnxscript  # noqa: F401  # so that what is missing is said
    import torch

    run: Any = copy.copy(servable.call)  # a ModuleRun
    module, free = run.module, free_axes(servable.inputs)
    arrays = {name: _of_two(array, free[name]) for name, array in arrays.items()}
    sizes = {name: dict.fromkeys(axes, torch.export.Dim.AUTO) for name, axes in free.items()}
    with in_eval_mode(module), _quiet():
        if isinstance(module, torch.jit.RecursiveScriptModule) and is_switchable(module):
            run.module = torch.jit.freeze(module)  # PyTorch exports no other scripted module
        program = torch.onnx.export(
            _flat(run, tuple(arrays)),
            tuple(torch.from_numpy(np.array(array)).to(run.device) for array in arrays.values()),
            path,
            input_names=list(arrays),
            output_names=list(servable.outputs),
            dynamic_shapes=(tuple(sizes[name] for name in arrays),),
            dynamo=True,
            external_data=True,
            verbose=False,
        )
    model = onnx.load(path, load_external_data=False)
    # the exporter knows no free sizes behind an LSTM
    with_any_sizes(model, list(free_axes(servable.outputs).values()))
    path.write_bytes(model.SerializeToString())
    return _limits(getattr(program, "exported_program", None))


def _limits(program: Any) -> tuple[int, ...]:
    """Sizes beyond which *program* is not known to be right: the module looked at them."""
    ranges = getattr(program, "range_constraints", {}).values()
    bounds = [bound for each in ranges for bound in (each.lower, each.upper)]
    whole = [int(bound) for bound in bounds if str(bound).isdigit()]  # others are infinite
    return tuple(
        sorted({size for bound in whole for size in (bound - 1, bound, bound + 1) if size > 0})
    )


def _of_two(array: Array, axes: tuple[int, ...]) -> Array:
    """*array* with a size of two or more on *axes*: an export of size 1 is of that for ever."""
    for axis in axes:
        if array.shape[axis] == 1:
            array = np.concatenate([array, array], axis)
    return array


def _flat(run: ModuleRun, names: tuple[str, ...]) -> Any:
    """A module that takes the tensors *names* in order, and returns those of *run* in one tuple.

    The exporter knows neither caches nor all classes of what a module may return.
    """
    import torch

    class Flat(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.module = run.module

        def forward(self, *tensors: Any) -> tuple[Any, ...]:
            answer = run.called(dict(zip(names, tensors, strict=True)))
            return tuple(value for _, value in leaves(answer) if is_tensor(value))

    flat = Flat()
    flat.training = False
    return flat


class _OfOtherThreads:
    """A stream without the text of one thread: the thread that made the stream."""

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
