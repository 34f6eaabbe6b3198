"""The steps of an ensemble: which can begin, their tensors, requests and answers; no threads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from workbench.backends.base import Session
from workbench.backends.ensemble import EnsembleSession, fitted
from workbench.backends.ensemble import Part as Named
from workbench.backends.ensemble_plan import Plan
from workbench.backends.reshape import to_client, to_model
from workbench.errors import (
    InvalidRequest,
    LoadFailed,
    ModelNotFound,
    ModelNotReady,
    RunFailed,
    VersionNotFound,
)
from workbench.inference import InferRequest
from workbench.model import ModelId, Signature, Step
from workbench.stop import CancellationToken
from workbench.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Leased:
    """All models that the steps of a request need; they are leased together."""

    models: Mapping[Named, ModelId]
    sessions: Mapping[ModelId, Session]

    def session(self, step: Step) -> Session:
        return self.sessions[self.models[step.part]]

    def signature(self, step: Step) -> Signature:
        return self.session(step).signature


class Flow:
    """The tensors of a request with these *inputs*, as they pass through the steps of *plan*.

    A tensor is kept only until the last step that uses it has taken it. Steps do not wait for
    inputs that the request left out: their models say whether they may be left out.
    """

    def __init__(self, plan: Plan, inputs: Mapping[str, Tensor]) -> None:
        self._plan = plan
        self._waiting = {step.number: step for step in plan.steps if plan.awaited[step.number]}
        self._there: set[str] = set()  # tensors that steps gave
        self._uses = dict(plan.uses)  # how many steps will still use each tensor
        self._tensors = {name: tensor for name, tensor in inputs.items() if name in plan.uses}

    def first(self) -> list[Step]:
        return [step for step in self._plan.steps if step.number not in self._waiting]

    def take(self, step: Step) -> dict[str, Tensor]:
        """The inputs of *step*, which begins now, by its model's names."""
        tensors, uses = self._tensors, self._uses
        taken = {name: tensors[t] for name, t in step.inputs.items() if t in tensors}
        for tensor in set(step.inputs.values()):
            uses[tensor] -= 1
            if not uses[tensor]:
                tensors.pop(tensor, None)
        return taken

    def give(self, step: Step, outputs: Mapping[str, Tensor]) -> list[Step]:
        """Take the *outputs* of *step*, by its model's names; returns steps that can begin now."""
        for name, tensor in outputs.items():
            self._tensors[step.outputs[name]] = tensor
            self._there.add(step.outputs[name])
        awaited = self._plan.awaited
        begin = [s for s in self._waiting.values() if awaited[s.number] <= self._there]
        for each in begin:
            del self._waiting[each.number]
        return begin

    def result(self, name: str) -> Tensor:
        """The wanted tensor *name*, when all steps are done."""
        return self._tensors[name]


def more_parts(
    session: EnsembleSession,
    wanted: tuple[str, ...],
    leased: Leased,
    parents: tuple[EnsembleSession, ...] = (),
) -> Iterator[Named]:
    """The models that are needed for the *wanted* outputs and are not *leased* yet.

    What a step that is an ensemble itself needs is known only once it is leased. Raises
    ``ModelNotReady`` if an ensemble is a part of itself.
    """
    if session in parents:
        raise ModelNotReady(f"{session.source.id} is a part of itself")
    plan = session.plan(wanted)
    for step in plan.steps:
        if step.part not in leased.models:
            yield step.part
            continue
        inner = leased.session(step)
        if isinstance(inner, EnsembleSession):
            yield from more_parts(inner, plan.outputs[step.number], leased, (*parents, session))


def asked_of(
    step: Step,
    leased: Leased,
    taken: Mapping[str, Tensor],
    request: InferRequest,
    *,
    outputs: tuple[str, ...],
    stop: CancellationToken | None,
) -> InferRequest:
    """The request to the model of *step*: the tensors *taken* go in, *outputs* are wanted.

    *request* is that to the ensemble.
    """
    signature = leased.session(step).signature
    specs, batched = signature.inputs, signature.max_batch_size > 0
    return InferRequest(
        step.model,
        {n: fitted(specs[n], tensor, batched=batched) for n, tensor in taken.items()},
        leased.models[step.part].version,
        outputs,
        request.id,
        request.parameters,
        stop=stop,
        functions=request.functions,
        headers=request.headers,
    )


@contextmanager
def needing(ensemble: ModelId) -> Iterator[None]:
    """Name the *ensemble* in errors about parts that cannot be found or loaded."""
    try:
        yield
    except LoadFailed as error:
        raise LoadFailed(f"{ensemble} needs its parts: {error}") from error
    except (ModelNotFound, VersionNotFound, ModelNotReady) as error:
        raise ModelNotReady(f"{ensemble} needs its parts: {error}") from error


@contextmanager
def placed(ensemble: ModelId, step: Step) -> Iterator[None]:
    """Name the *step* of *ensemble* in errors about tensors and failed runs."""
    try:
        yield
    except (InvalidRequest, RunFailed) as error:
        if type(error) not in (InvalidRequest, RunFailed):
            raise
        raise type(error)(f"{ensemble}, {step}: {error}") from error


def inputs_of(signature: Signature, request: InferRequest) -> dict[str, Tensor]:
    """The inputs of a *request* to an ensemble, in the shapes that its steps expect."""
    specs = signature.inputs
    return {name: to_model(specs[name], tensor) for name, tensor in request.inputs.items()}


def output_of(ensemble: ModelId, signature: Signature, name: str, tensor: Tensor) -> Tensor:
    """The output *name* of *ensemble*, from the *tensor* of a step.

    Raises ``RunFailed`` if its shape is not the declared one.
    """
    declared = signature.outputs[name]
    spec = declared.as_the_model_has_it
    output = fitted(spec, tensor, batched=signature.max_batch_size > 0)
    if not spec.accepts(output.shape):
        raise RunFailed(
            f"output {name!r} of {ensemble} has shape {list(tensor.shape)}, "
            f"it declares {list(spec.shape)}"
        )
    return to_client(declared, output)
