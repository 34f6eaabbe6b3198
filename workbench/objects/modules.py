"""Modules of PyTorch."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import takewhile
from typing import Any

import numpy as np

from workbench.objects.calling import by_position_only
from workbench.objects.eval_mode import in_eval_mode
from workbench.objects.hints import Hint, datatype_named
from workbench.conversion.module_export import Axes, export_module
from workbench.objects.offer import Export, Offer
from workbench.errors import UsageError, class_and_line_of, line_of
from workbench.model import TensorSpec
from workbench.tensor import Array

OF_A_PROGRAM = (
    "a program of torch.export is served as ONNX: torch.onnx.export(program, f='m.onnx'), "
    "then wb.serve('m.onnx')"
)
"""The cure for a program, and for its module, whose mode cannot be changed any more."""


def offer_of_module(module: Any, example: Any, declared: Mapping[str, Hint]) -> Offer:
    """What *module* can be served as, in eval mode. Raises ``UsageError``.

    The first dimension of an input may have any size; *declared* inputs say which others may.
    """
    module = getattr(module, "_orig_mod", module)  # of one that was compiled
    kind = type(module).__name__
    try:
        with in_eval_mode(module):
            pass
    except NotImplementedError:  # of ``program.module()``
        raise UsageError(OF_A_PROGRAM) from None
    if example is None:
        raise UsageError(
            f"{kind} does not say what it takes: pass example=, such as torch.randn(2, 3, 224, 224)"
        )
    given = _tensors(kind, module, example)
    inputs = _inputs(kind, given, declared)
    free = {  # the axes that may have any size
        name: tuple(axis for axis, size in enumerate(hint.shape) if size == -1)
        for name, hint in inputs.items()
    }
    arrays = {name: _of_two(tensor.numpy(), free[name]) for name, tensor in given.items()}
    first = tuple(takewhile(given.__contains__, by_position_only(module.forward, given)))
    run = partial(_run, module, first)
    try:
        answer = run(arrays)
    except Exception as error:  # whatever a module raises
        told = class_and_line_of(error)
        raise UsageError(f"{kind}, called with the example, raised {told}") from error
    named = _named(answer)
    others = _of_other_sizes(arrays, free)
    varying = _varying(run, named, others)
    outputs = {name: _output(name, tensor, varying[name]) for name, tensor in named.items()}

    def call(**arrays: Array) -> Mapping[str, Array]:
        return {name: tensor.cpu().numpy() for name, tensor in _named(run(arrays)).items()}

    export = Export(
        "torch.onnx",
        "serving-workbench[torch]",
        partial(export_module, _flat(module, first, tuple(arrays)), arrays, free, varying),
    )
    lost = ", ".join(_lost(answer))
    return Offer(
        f"{kind} (without {lost})" if lost else kind,
        call,
        "the module",
        inputs,
        outputs,
        arrays,
        "the example",
        export,
        others=others,
    )


# ── what goes in ────────────────────────────────────────────────────────────


def _tensors(kind: str, module: Any, example: Any) -> dict[str, Any]:
    """The tensors of *example*, by the parameters of ``forward``, on the CPU."""
    import torch

    if isinstance(example, Mapping):
        given = dict(example)
    else:
        values = example if isinstance(example, tuple) else (example,)
        names = _parameters(kind, module)
        if len(values) > len(names):
            takes = ", ".join(names) or "none"
            raise UsageError(f"example= has {len(values)} values, and {kind} takes {takes}")
        given = dict(zip(names, values, strict=False))
    try:
        return {name: torch.as_tensor(value).detach().cpu() for name, value in given.items()}
    except (TypeError, ValueError, RuntimeError) as error:
        raise UsageError(
            f"example= is a tensor, a tuple of them, or a dict of them: {line_of(error)}"
        ) from None


def _parameters(kind: str, module: Any) -> list[str]:
    """The names of what ``forward`` takes. Raises ``UsageError`` for what has no name, ``*xs``."""
    try:
        parameters = inspect.signature(module.forward).parameters.values()
    except ValueError:  # one that was traced has only the signature of TorchScript
        return [argument.name for argument in module.forward.schema.arguments[1:]]
    for each in parameters:
        if each.kind is each.VAR_POSITIONAL:
            raise UsageError(
                f"{kind} takes any number of {each.name!r}, which have no names: serve a module "
                "around it whose forward names each input"
            )
    return [each.name for each in parameters if each.kind is not each.VAR_KEYWORD]


def _inputs(kind: str, tensors: Mapping[str, Any], declared: Mapping[str, Hint]) -> dict[str, Hint]:
    """The hints of *tensors*, with any number of rows; *declared* ones as they are."""
    cure = "pass an example of torch.float32, and cast it in forward"
    found = {name: _hint(name, tensor, cure) for name, tensor in tensors.items()}
    for name, tensor in tensors.items():
        if 0 in tensor.shape:
            raise UsageError(f"the example of {name!r} is empty: its shape is {[*tensor.shape]}")
    for name, hint in declared.items():
        if name not in found:
            has = ", ".join(found)
            raise UsageError(f"the example of {kind} has no input {name!r}; it has {has}")
        spec, shape = TensorSpec(name, hint.datatype, hint.shape), tensors[name].shape
        if hint.datatype != found[name].datatype or not spec.accepts(tuple(shape)):
            raise UsageError(
                f"input {name!r} is declared as {hint.datatype} {list(hint.shape)}, but its "
                f"example is {found[name].datatype} {list(shape)}"
            )
    return {**found, **declared}


def _hint(name: str, tensor: Any, cure: str) -> Hint:
    """The hint of *tensor*; *cure* is what to do if numpy lacks its datatype."""
    datatype = datatype_named(tensor.dtype)
    if datatype in (None, "BF16"):
        raise UsageError(f"{name!r} is {tensor.dtype}: {cure}")
    return Hint(str(datatype), (-1, *tensor.shape[1:]) if tensor.ndim else ())


# ── other sizes than the example's ──────────────────────────────────────────


def _of_two(array: Array, axes: tuple[int, ...]) -> Array:
    """*array* with a size of two or more on *axes*: an export of size 1 is of that for ever."""
    for axis in axes:
        if array.shape[axis] == 1:
            array = _one_more(array, axis)
    return array


def _of_other_sizes(arrays: Mapping[str, Array], free: Axes) -> list[dict[str, Array]]:
    """*arrays* with one row, and one more row; so with all other axes that are *free*."""
    rows = {name: tuple(axis for axis in axes if axis == 0) for name, axes in free.items()}
    rest = {name: tuple(axis for axis in axes if axis > 0) for name, axes in free.items()}
    return [
        {name: _changed(array, axes[name], change) for name, array in arrays.items()}
        for axes in (rows, rest)
        if any(axes.values())
        for change in (lambda array, axis: array.take([0], axis), _one_more)
    ]


def _changed(array: Array, axes: tuple[int, ...], change: Any) -> Array:
    for axis in axes:
        array = change(array, axis)
    return array


def _one_more(array: Array, axis: int) -> Array:
    return np.concatenate([array, array.take([0], axis)], axis)


# ── what comes out ──────────────────────────────────────────────────────────


def _run(module: Any, first: tuple[str, ...], arrays: Mapping[str, Array]) -> Any:
    """What *module* returns for *arrays*, on its own device and in eval mode.

    It takes those that are *first* by their places, and the others by their names.
    """
    import torch

    weight = next(iter(module.parameters()), None)
    device = "cpu" if weight is None else weight.device
    given = {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
    with in_eval_mode(module), torch.inference_mode():
        return _called(module, first, {name: value.to(device) for name, value in given.items()})


def _called(module: Any, first: tuple[str, ...], given: dict[str, Any]) -> Any:
    """What *module* returns for the tensors *given*, of which it takes the *first* by place."""
    return module(*[given.pop(name) for name in first], **given)


def _leaves(answer: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """All values in *answer*, with names: of keys, or of places, as ``output_1_0``."""
    if isinstance(answer, Mapping):
        for key, value in answer.items():
            yield from _leaves(value, f"{name}_{key}" if name else str(key))
    elif isinstance(answer, tuple | list):
        for number, value in enumerate(answer):
            yield from _leaves(value, f"{name or 'output'}_{number}")
    else:
        yield name or "output", answer


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "detach")


def _named(answer: Any) -> dict[str, Any]:
    """The tensors in *answer*, by name. Raises ``UsageError`` if it has none."""
    named = {name: value.detach() for name, value in _leaves(answer) if _is_tensor(value)}
    if not named:
        kind = type(answer).__name__
        raise UsageError(f"the module returns {kind}, not tensors: serve a function around it")
    return named


def _flat(module: Any, first: tuple[str, ...], names: tuple[str, ...]) -> Any:
    """A module that takes the tensors *names* in order, and returns those of *module* in one tuple.

    The exporter knows neither caches nor all classes of what a module may return.
    """
    import torch

    class Flat(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, *tensors: Any) -> tuple[Any, ...]:
            answer = _called(self.module, first, dict(zip(names, tensors, strict=True)))
            return tuple(value for _, value in _leaves(answer) if _is_tensor(value))

    flat = Flat()
    flat.training = False
    return flat


def _lost(answer: Any) -> list[str]:
    """The names of values that are no tensors, and so no outputs, such as a cache."""
    return [n for n, value in _leaves(answer) if not _is_tensor(value) and value is not None]


def _output(name: str, tensor: Any, axes: tuple[int, ...]) -> Hint:
    """The hint of an output, with any number of rows, and of any size on *axes*."""
    hint = _hint(name, tensor, "let the module cast it to torch.float32")
    sizes = (-1 if axis in axes else size for axis, size in enumerate(hint.shape))
    return Hint(hint.datatype, tuple(sizes))


def _varying(
    run: Callable[[dict[str, Array]], Any],
    answer: Mapping[str, Any],
    others: list[dict[str, Array]],
) -> dict[str, tuple[int, ...]]:
    """The axes of *answer* that are of another size when *run* gets one of *others*."""
    found: dict[str, set[int]] = {name: set() for name in answer}
    for arrays in others:
        try:
            other = _named(run(arrays))
        except Exception:  # noqa: S112  # whatever a module raises for sizes that it does not take
            continue
        for name in answer.keys() & other.keys():
            sizes = enumerate(zip(answer[name].shape, other[name].shape, strict=False))
            found[name].update(axis for axis, (size, now) in sizes if size != now)
    return {name: tuple(axes) for name, axes in found.items()}
