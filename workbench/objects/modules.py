"""Modules of PyTorch."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import takewhile
from typing import Any

import numpy as np

from workbench.errors import UsageError, class_and_line_of, line_of
from workbench.model import TensorSpec
from workbench.objects.calling import by_position_only
from workbench.objects.eval_mode import in_eval_mode
from workbench.objects.hints import Hint, datatype_named, free_axes
from workbench.objects.servable import Servable
from workbench.tensor import Array, Tensor

OF_A_PROGRAM = (
    "a program of torch.export is served as ONNX: torch.onnx.export(program, f='m.onnx'), "
    "then wb.serve('m.onnx')"
)
"""The cure for a program, and for its module, whose mode cannot be changed any more."""

_WRAPPERS = {"DataParallel": "module", "DistributedDataParallel": "module"}

Tree = Any
"""A value that ``forward`` takes: the name of an input, or a tuple, list or dict of such trees."""


def unwrapped(module: Any) -> Any:
    """The module that *module* wraps: a compiled one, or one on several devices."""
    inner = getattr(module, "_orig_mod", None)  # of one that was compiled
    if inner is None and (wrapped := _WRAPPERS.get(type(module).__name__)):
        inner = getattr(module, wrapped, None)
    return module if inner is None else unwrapped(inner)


def servable_module(module: Any, example: Any, declared: Mapping[str, Hint]) -> Servable:
    """*module* as a model, in eval mode. Raises ``UsageError``.

    The first dimension of an input may have any size; *declared* inputs say which others may. An
    input within a tuple or dict of the *example*, such as the state of a recurrent net, may have
    any sizes.
    """
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
    values = _by_parameter(kind, module, example)
    trees = {name: _tree(value, name) for name, value in values.items()}
    given = _by_name(leaf for name, value in values.items() for leaf in leaves(value, name))
    tensors = _tensors(given)
    inputs = _inputs(kind, tensors, values, declared)
    run = ModuleRun(module, trees)
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    with _unchanged(module):
        try:
            answer = run.answer(arrays)
        except Exception as error:  # whatever a module raises
            told = class_and_line_of(error)
            raise UsageError(f"{kind}, called with the example, raised {told}") from error
        named = _named(answer)
        varying = _varying(run, named, _of_other_sizes(arrays, free_axes(inputs)))
    lost = ", ".join(_lost(answer))
    return Servable(
        thing=module,
        kind=f"{kind} (without {lost})" if lost else kind,
        library="torch",
        call=run,
        calls="forward",
        inputs=inputs,
        outputs={name: _output(name, tensor, varying[name]) for name, tensor in named.items()},
        rows=lambda rows: _arrays(kind, module, inputs, rows),
        example=arrays,
    )


class ModuleRun:
    """A module, called with arrays by input, as in the cell that served it.

    It is in eval mode, on its own device, with the cell's default datatype, grad mode and autocast.
    *trees*: what ``forward`` takes, by its parameters.
    """

    def __init__(self, module: Any, trees: Mapping[str, Tree]) -> None:
        import torch

        self.module = module
        self.trees = trees
        self.first = tuple(takewhile(trees.__contains__, by_position_only(module.forward, trees)))
        self._dtype = torch.get_default_dtype()
        self._has_grad = torch.is_grad_enabled()
        weight = next(iter(module.parameters()), None)
        self.device = "cpu" if weight is None else weight.device
        kind = torch.device(self.device).type
        self._autocast = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None

    def __call__(self, /, **arrays: Array) -> Mapping[str, Array]:
        answer = self.answer(arrays)
        return {name: tensor.cpu().numpy() for name, tensor in _named(answer).items()}

    def answer(self, arrays: Mapping[str, Array]) -> Any:
        """The module's outputs for *arrays*."""
        import torch

        tensors = {n: torch.from_numpy(np.array(a)).to(self.device) for n, a in arrays.items()}
        modes = torch.set_grad_enabled(self._has_grad), self._cast()
        with in_eval_mode(self.module), modes[0], modes[1], self._typed():
            return self.called(tensors)

    def called(self, tensors: Mapping[str, Any]) -> Any:
        """The module's answer to *tensors* by input; those it takes by place come first."""
        given = {name: _filled(tree, tensors) for name, tree in self.trees.items()}
        return self.module(*[given.pop(name) for name in self.first], **given)

    def _cast(self) -> AbstractContextManager[Any]:
        """The cell's autocast, which is one for each thread."""
        import torch

        if self._autocast is None:
            return nullcontext()
        kind = torch.device(self.device).type
        cast: AbstractContextManager[Any] = torch.autocast(kind, dtype=self._autocast)
        return cast

    def _typed(self) -> AbstractContextManager[None]:
        """The cell's default datatype, which is one for all threads."""
        import torch

        return nullcontext() if torch.get_default_dtype() == self._dtype else _typed(self._dtype)


@contextmanager
def _typed(dtype: Any) -> Iterator[None]:
    import torch

    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def _unchanged(module: Any) -> Iterator[None]:
    """Give the buffers and numbers of *module* back the values that they had."""
    import torch

    # lazy ones learn their sizes from the example
    parts = [part for part in module.modules() if not hasattr(part, "initialize_parameters")]
    kept = [
        (part, name, tensor, tensor.clone())
        for part in parts
        for name, tensor in part.named_buffers(recurse=False)
    ]
    numbers = [
        (part, name, value)
        for part in parts
        for name, value in vars(part).items()
        if isinstance(value, int | float) and name != "training"
    ]
    yield
    with torch.no_grad():
        for part, name, tensor, value in kept:
            if not tensor.is_inference():
                tensor.copy_(value)
            setattr(part, name, tensor)
    for part, name, number in numbers:
        setattr(part, name, number)


# ── what goes in ────────────────────────────────────────────────────────────


def _by_parameter(kind: str, module: Any, example: Any) -> dict[str, Any]:
    """The values of *example* by the parameters of ``forward``. Raises ``UsageError``."""
    if isinstance(example, Mapping):
        return dict(example)
    values = example if isinstance(example, tuple) else (example,)
    names = _parameters(kind, module)
    if len(values) > len(names):
        takes = ", ".join(names) or "none"
        raise UsageError(f"example= has {len(values)} values, and {kind} takes {takes}")
    return dict(zip(names, values, strict=False))


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


def _tree(value: Any, name: str) -> Tree:
    """*value* with the names of inputs in place of its tensors; its tuples stay such."""
    if isinstance(value, Mapping):
        return {key: _tree(each, f"{name}_{key}") for key, each in value.items()}
    if _is_nested(value):
        return type(value)(_tree(each, f"{name}_{place}") for place, each in enumerate(value))
    return name


def _is_nested(value: Any) -> bool:
    """True if *value* is a tuple or list with tensors in it; a list of numbers is a tensor."""
    return isinstance(value, tuple | list) and any(
        is_tensor(each) or isinstance(each, np.ndarray) or _is_nested(each) for each in value
    )


def _filled(tree: Tree, tensors: Mapping[str, Any]) -> Any:
    if isinstance(tree, str):
        return tensors[tree]
    if isinstance(tree, Mapping):
        return {key: _filled(each, tensors) for key, each in tree.items()}
    return type(tree)(_filled(each, tensors) for each in tree)


def _tensors(given: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors that *given* are, on the CPU. Raises ``UsageError``."""
    import torch

    try:
        return {name: torch.as_tensor(value).detach().cpu() for name, value in given.items()}
    except (TypeError, ValueError, RuntimeError) as error:
        raise UsageError(
            f"example= is a tensor, a tuple of them, or a dict of them: {line_of(error)}"
        ) from None


def _inputs(
    kind: str,
    tensors: Mapping[str, Any],
    values: Mapping[str, Any],
    declared: Mapping[str, Hint],
) -> dict[str, Hint]:
    """The hints of *tensors*, with any number of rows; *declared* ones as they are.

    Those that are not among *values* by themselves, but within one of these, have any sizes.
    """
    cure = "pass an example of torch.float32, and cast it in forward"
    found = {name: _hint(name, tensor, cure) for name, tensor in tensors.items()}
    for name, tensor in tensors.items():
        if 0 in tensor.shape:
            raise UsageError(f"the example of {name!r} is empty: its shape is {[*tensor.shape]}")
        if name not in values:
            found[name] = Hint(found[name].datatype, (-1,) * tensor.ndim)
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


def _arrays(kind: str, module: Any, inputs: Mapping[str, Hint], rows: Any) -> dict[str, Array]:
    """The arrays by input of *rows*, which are as an example is. Raises ``UsageError``."""
    values = _by_parameter(kind, module, rows)
    given = _by_name(leaf for name, value in values.items() for leaf in leaves(value, name))
    return {
        name: Tensor.cast(tensor.numpy(), inputs[name].datatype).array
        for name, tensor in _tensors(given).items()
    }


# ── other sizes than the example's ──────────────────────────────────────────


def _of_other_sizes(
    arrays: Mapping[str, Array], free: Mapping[str, tuple[int, ...]]
) -> list[dict[str, Array]]:
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


def leaves(answer: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """All values in *answer*, with names: of keys, or of places, as ``output_1_0``."""
    if isinstance(answer, Mapping):
        for key, value in answer.items():
            yield from leaves(value, f"{name}_{key}" if name else str(key))
    elif isinstance(answer, tuple | list) and (not name or _is_nested(answer)):
        for number, value in enumerate(answer):
            yield from leaves(value, f"{name or 'output'}_{number}")
    else:
        yield name or "output", answer


def _by_name(leaves: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """The values by their names. Raises ``UsageError`` where two have the same."""
    found: dict[str, Any] = {}
    for name, value in leaves:
        if name in found:
            raise UsageError(f"two tensors would be called {name!r}: give one another key")
        found[name] = value
    return found


def is_tensor(value: Any) -> bool:
    """True if *value* is a tensor of PyTorch."""
    return hasattr(value, "detach")


def _named(answer: Any) -> dict[str, Any]:
    """The tensors in *answer*, by name. Raises ``UsageError`` if it has none."""
    tensors = _by_name(leaf for leaf in leaves(answer) if is_tensor(leaf[1]))
    named = {n: each.detach().resolve_conj().resolve_neg() for n, each in tensors.items()}
    if not named:
        kind = type(answer).__name__
        raise UsageError(f"the module returns {kind}, not tensors: serve a function around it")
    return named


def _lost(answer: Any) -> list[str]:
    """The names of values that are no tensors, and so no outputs, such as a cache."""
    return [n for n, value in leaves(answer) if not is_tensor(value) and value is not None]


def _output(name: str, tensor: Any, axes: tuple[int, ...]) -> Hint:
    """The hint of an output, of any size on *axes*."""
    hint = _hint(name, tensor, "let the module cast it to torch.float32")
    sizes = (-1 if axis in axes else size for axis, size in enumerate(tensor.shape))
    return Hint(hint.datatype, tuple(sizes))


def _varying(
    run: ModuleRun, answer: Mapping[str, Any], others: list[dict[str, Array]]
) -> dict[str, tuple[int, ...]]:
    """The axes of *answer* that are of another size when *run* gets one of *others*.

    They are all of them where it takes none of these.
    """
    found: dict[str, set[int]] = {name: set() for name in answer}
    took_one = False
    for arrays in others:
        try:
            other = _named(run.answer(arrays))
        except Exception:  # noqa: S112  # whatever a module raises for sizes that it does not take
            continue
        took_one = True
        for name in answer.keys() & other.keys():
            sizes = enumerate(zip(answer[name].shape, other[name].shape, strict=False))
            found[name].update(axis for axis, (size, now) in sizes if size != now)
    if not took_one:
        return {name: tuple(range(tensor.ndim)) for name, tensor in answer.items()}
    return {name: tuple(axes) for name, axes in found.items()}
