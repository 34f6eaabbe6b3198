"""One inference: what is asked, what is answered, and whether it fits the model."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
from msgspec import Struct, field

from workbench import rows
from workbench.errors import InvalidRequest
from workbench.model import ModelId, Signature, TensorSpec
from workbench.spelling import meant
from workbench.stop import CancellationToken
from workbench.tensor import DATATYPES, Array, Tensor, has_missing

_MANY_ZEROS = 1 << 24  # elements

Parameter = str | int | float | bool


class Fit(Struct, eq=False):  # equal only to itself: comparing signatures takes long
    """A check that a request passed: the *signature* it fits, and the outputs *to_compute*.

    It holds for all requests that differ in their elements and ids only.
    """

    signature: Signature
    to_compute: tuple[str, ...]


class InferRequest(Struct):  # as all that each request makes: see ``Tensor``
    """A client's request to a model.

    *version*: ``None`` is the default version. *outputs*: the wanted outputs, in the wanted order;
    if empty, all in the model's order. *classes*: outputs that are wanted as so many best classes.
    *into*: memory to which outputs may be written, so that they are not copied. *stop*: ends the
    request. *fit*: the check that it passed, or that another one like it passed. *functions*:
    whether Python functions may run for it. *scalars_of_one*: its scalars came with shape [1], and
    those of the answer get this shape too. *each*: is called with each answer of a model that gives
    several; it raises ``RequestStopped`` if nobody wants more. *headers*: those of its wire, for
    functions that ask for them. *owns_inputs*: nobody else has its arrays, which the run may
    change. *made_s*: when the request was made, by ``time.perf_counter``.
    """

    model: str
    inputs: Mapping[str, Tensor]
    version: int | None = None
    outputs: tuple[str, ...] = ()
    id: str = ""
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    classes: Mapping[str, int] = field(default_factory=dict)
    into: dict[str, memoryview] | None = None
    stop: CancellationToken | None = None
    fit: Fit | None = None
    functions: bool = True
    scalars_of_one: bool = False
    each: Callable[[InferResponse], object] | None = None
    headers: Iterable[tuple[bytes | str, bytes | str]] = ()
    owns_inputs: bool = False
    made_s: float = field(default_factory=time.perf_counter)

    def __reduce__(self) -> Any:
        """Pickled without what belongs to this process, such as its *stop* and its memory."""
        given = self.model, dict(self.inputs), self.version, self.outputs, self.id
        make = partial(InferRequest, functions=self.functions, scalars_of_one=self.scalars_of_one)
        return make, (*given, self.parameters, self.classes)

    @property
    def nbytes(self) -> int:
        """The bytes of the inputs; of BYTES elements, only their references."""
        nbytes = 0
        for tensor in self.inputs.values():
            nbytes += tensor.array.nbytes
        return nbytes

    @property
    def batch_size(self) -> int:
        """The first dimension of the inputs: of a model with batches, how many elements it has."""
        return max((tensor.shape[0] for tensor in self.inputs.values() if tensor.shape), default=1)


class InferResponse(Struct):
    """The answer of a model: its outputs by name, in the wanted order, and *parameters*.

    Unless it is *final* more answers follow; the final one of several has no outputs.
    """

    model: ModelId
    outputs: Mapping[str, Tensor]
    id: str = ""
    parameters: Mapping[str, Parameter] | None = None
    final: bool = True


def check_request(model: ModelId, signature: Signature, request: InferRequest) -> Fit:
    """The fit of *request* to *signature*. Raises ``InvalidRequest`` if it does not fit."""
    inputs, specs = request.inputs, signature.inputs
    if inputs.keys() != specs.keys():
        check_names(model, signature, inputs)
    for name, tensor in inputs.items():
        spec = specs[name]
        if tensor.datatype != spec.datatype or not spec.accepts(tensor.array.shape):
            raise _misfit(model, spec, tensor)
        if tensor.datatype == "BYTES" and not spec.missing:
            check_texts(name, tensor)
    if signature.max_batch_size:
        _check_batch(model, signature, request.inputs)
    for name in request.outputs:
        if name not in signature.outputs:
            raise InvalidRequest(
                f"{model} has no output {name!r}; it has {_names(signature.outputs)}"
            )
    return Fit(signature, request.outputs or tuple(signature.outputs))


def check_texts(name: str, texts: Tensor) -> None:
    """Raise ``InvalidRequest`` if one of *texts* is missing."""
    if has_missing(texts.array):
        raise InvalidRequest(f"input {name!r}: null is not a string")


def refitted(model: ModelId, signature: Signature, request: InferRequest) -> bool:
    """Change the inputs of *request* if they may stand for those that the model takes.

    They are columns by name, or scalars with a dimension of 1. Returns whether they may. Raises
    ``InvalidRequest`` for columns that the model does not have, or that are missing.
    """
    if rows.columns_of(signature):
        request.inputs = rows.inputs_of(model, signature, request.inputs)
        return True
    return narrow_scalars(signature, request)


def narrow_scalars(signature: Signature, request: InferRequest) -> bool:
    """Remove the dimension of 1 from inputs that are scalars; returns whether there were any.

    Triton has no scalars: its clients send shape [1], or [n, 1] in a batch, and expect the same.
    """
    specs, rank = signature.inputs, 1 if signature.max_batch_size else 0
    narrowed = {
        name: Tensor(tensor.datatype, tensor.array[..., 0])
        for name, tensor in request.inputs.items()
        if name in specs and len(specs[name].shape) == rank and tensor.shape[rank:] == (1,)
    }
    request.inputs = {**request.inputs, **narrowed}
    request.scalars_of_one = bool(narrowed)
    return request.scalars_of_one


def widen_scalars(signature: Signature, outputs: dict[str, Tensor]) -> None:
    """Add to scalars in *outputs* the dimension of 1 that ``narrow_scalars`` removes."""
    rank = 1 if signature.max_batch_size else 0
    for name, tensor in outputs.items():
        if len(tensor.shape) == rank:
            outputs[name] = Tensor(tensor.datatype, tensor.array[..., None])


def zeros(signature: Signature) -> dict[str, Tensor] | None:
    """Inputs of zeros that fit, one where any size does.

    ``None`` for text, for too many, and for inputs of any rank: a run of one might say little of
    that of another.
    """
    inputs, left = {}, _MANY_ZEROS
    for name, spec in signature.inputs.items():
        if spec.datatype == "BYTES" or spec.any_rank:
            return None
        shape = [1 if dim == -1 else dim for dim in spec.shape]
        left -= math.prod(shape)
        if left < 0:
            return None
        if not spec.optional:
            inputs[name] = Tensor(spec.datatype, np.zeros(shape, DATATYPES[spec.datatype].dtype))
    return inputs


def check_names(model: ModelId, signature: Signature, inputs: Mapping[str, object]) -> None:
    """Raise ``InvalidRequest`` if *inputs* have a name that *model* lacks, or lack one it needs."""
    for name in inputs:
        if name not in signature.inputs:
            raise InvalidRequest(
                f"{model} has no input {name!r}; it takes {_names(signature.inputs)}"
                f"{meant(name, signature.inputs)}"
            )
    missing = [repr(name) for name in signature.required if name not in inputs]
    if missing:
        raise InvalidRequest(
            f"the request lacks input {', '.join(missing)} of {model}, which takes "
            f"{_names(signature.inputs)}"
        )


def _misfit(model: ModelId, spec: TensorSpec, tensor: Tensor) -> InvalidRequest:
    if tensor.datatype != spec.datatype:
        return InvalidRequest(
            f"input {spec.name!r} of {model} takes {spec.datatype}, got {tensor.datatype}"
        )
    return InvalidRequest(
        f"input {spec.name!r} of {model} takes shape {list(spec.shape)}, got {list(tensor.shape)}"
    )


def _check_batch(model: ModelId, signature: Signature, inputs: Mapping[str, Tensor]) -> None:
    sizes = {name: tensor.shape[0] for name, tensor in inputs.items()}
    if len(set(sizes.values())) > 1:
        raise InvalidRequest(f"the inputs of {model} have different batch sizes: {sizes}")
    for name, size in sizes.items():
        if size > signature.max_batch_size:
            raise InvalidRequest(
                f"input {name!r} of {model} has batch size {size}; "
                f"at most {signature.max_batch_size} is allowed"
            )


def _names(specs: Mapping[str, TensorSpec]) -> str:
    return ", ".join(f"{s.name!r} {s.datatype} {list(s.shape)}" for s in specs.values()) or "none"


def zeros_of(spec: TensorSpec, batch: int = 1) -> Array:
    """An array of zeros that *spec* takes, of ``"text"`` for BYTES; BF16 as ``float32``.

    Where any size goes, the first dimension has *batch*, any other 1.
    """
    first, *rest = spec.shape or (1,)
    shape = [batch if first < 0 else first, *(1 if size < 0 else size for size in rest)]
    if spec.datatype == "BYTES":
        return np.full(shape[: len(spec.shape)], "text", object)
    dtype = np.float32 if spec.datatype == "BF16" else DATATYPES[spec.datatype].dtype
    return np.zeros(shape[: len(spec.shape)], dtype)
