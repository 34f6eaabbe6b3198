"""Modules of PyTorch."""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from workbench.conversion.hints import Hint, datatype_named
from workbench.conversion.offer import Export, Offer
from workbench.errors import UsageError
from workbench.tensor import Array


def offer_of_module(module: Any, example: Any) -> Offer:
    """What *module* can be served as, in eval mode. Raises ``UsageError``."""
    module = getattr(module, "_orig_mod", module)  # of one that was compiled
    kind = type(module).__name__
    if example is None:
        raise UsageError(
            f"{kind} does not say what it takes: pass example=, such as torch.randn(2, 3, 224, 224)"
        )
    tensors = _tensors(module, example)
    with _in_eval_mode(module):
        answer = _named(_run(module, tensors))
    inputs = {name: _hint(name, tensor) for name, tensor in tensors.items()}
    outputs = {name: _hint(name, tensor) for name, tensor in answer.items()}

    def call(**arrays: Array) -> Mapping[str, Array]:
        import torch

        given = {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
        with _in_eval_mode(module):
            return {n: t.cpu().numpy() for n, t in _named(_run(module, given)).items()}

    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    write = partial(_export, module, tensors, tuple(answer))
    export = Export("torch.onnx", "serving-workbench[torch]", write)
    return Offer(
        kind,
        call,
        "the module",
        inputs,
        outputs,
        arrays,
        "the example",
        export,
        others=_of_other_rows(arrays),
    )


def _of_other_rows(arrays: Mapping[str, Array]) -> list[dict[str, Array]]:
    """The first row of *arrays* alone, and all rows and the first one again."""
    one = {name: array[:1] if array.ndim else array for name, array in arrays.items()}
    more = {n: np.concatenate([a, a[:1]]) if a.ndim else a for n, a in arrays.items()}
    return [one, more]


def _tensors(module: Any, example: Any) -> dict[str, Any]:
    """The tensors of *example*, by the parameters of ``forward``, on the CPU, of two rows or more.

    An export from one row would be of one row for ever.
    """
    import torch

    if isinstance(example, Mapping):
        given = dict(example)
    else:
        values = example if isinstance(example, tuple) else (example,)
        given = dict(zip(_parameters(module), values, strict=False))
    tensors = {name: torch.as_tensor(value).detach().cpu() for name, value in given.items()}
    return {
        name: torch.cat([tensor, tensor]) if tensor.ndim and len(tensor) == 1 else tensor
        for name, tensor in tensors.items()
    }


def _parameters(module: Any) -> list[str]:
    try:
        return list(inspect.signature(module.forward).parameters)
    except ValueError:  # one that was traced has only the signature of TorchScript
        return [argument.name for argument in module.forward.schema.arguments[1:]]


def _run(module: Any, tensors: Mapping[str, Any]) -> Any:
    import torch

    first = next(iter(module.parameters()), None)
    device = "cpu" if first is None else first.device
    with torch.inference_mode():
        return module(**{name: tensor.to(device) for name, tensor in tensors.items()})


def _named(answer: Any) -> dict[str, Any]:
    """The tensors that a module returned, by name. Raises ``UsageError`` for anything else."""
    if isinstance(answer, Mapping):
        named = {str(name): value for name, value in answer.items()}
    elif isinstance(answer, tuple | list):
        named = {f"output_{number}": value for number, value in enumerate(answer)}
    else:
        named = {"output": answer}
    if not named or not all(hasattr(value, "detach") for value in named.values()):
        raise UsageError("the module returns more than tensors: serve a function around it")
    return {name: value.detach() for name, value in named.items()}


def _hint(name: str, tensor: Any) -> Hint:
    datatype = datatype_named(tensor.dtype)
    if datatype in (None, "BF16"):
        raise UsageError(f"{name!r} is {tensor.dtype}: let the module cast it to torch.float32")
    return Hint(str(datatype), (-1, *tensor.shape[1:]) if tensor.ndim else ())


_eval_lock = threading.Lock()
_eval_runs: dict[int, tuple[int, list[Any]]] = {}  # by the id of a module; see _in_eval_mode


@contextmanager
def _in_eval_mode(module: Any) -> Iterator[None]:
    """Have *module* in eval mode; the last of several threads puts its parts back as they were."""
    with _eval_lock:
        runs, trained = _eval_runs.get(id(module), (0, []))
        if not runs and module.training:
            trained = [part for part in module.modules() if part.training]
            module.eval()
        _eval_runs[id(module)] = runs + 1, trained
    try:
        yield
    finally:
        with _eval_lock:
            runs, trained = _eval_runs.pop(id(module))
            if runs > 1:
                _eval_runs[id(module)] = runs - 1, trained
            else:
                for part in trained:
                    part.training = True


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """*logger* tells errors only: torch warns of what its exporter tries and could use."""
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _export(module: Any, tensors: Mapping[str, Any], outputs: tuple[str, ...], path: Path) -> None:
    """Write the model, with any number of rows where the module allows it; weights beside it."""
    import onnxscript  # noqa: F401  # so that what is missing is said
    import torch

    rows = {
        name: {0: torch.export.Dim.AUTO} if tensor.ndim else None
        for name, tensor in tensors.items()
    }
    first = next(iter(module.parameters()), None)
    device = "cpu" if first is None else first.device
    with _in_eval_mode(module), _quiet(logging.getLogger("torch")):
        torch.onnx.export(
            module,
            (),
            path,
            kwargs={name: tensor.to(device) for name, tensor in tensors.items()},
            input_names=list(tensors),
            output_names=list(outputs),
            dynamic_shapes=rows,
            dynamo=True,
            external_data=True,
            verbose=False,
        )
