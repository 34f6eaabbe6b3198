"""The requests and answers of the steps of an ensemble."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from workbench.backends.base import Session
from workbench.backends.ensemble import EnsembleSession, fitted
from workbench.backends.ensemble import Part as Named
from workbench.backends.reshape import to_client, to_model
from workbench.core.held import Held, Part
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

    def part(self, step: Step) -> Part:
        """The model of *step*."""
        model = self.models[step.part]
        return Part(model, self.sessions[model])

    def parts(self) -> list[Part]:
        """All models."""
        return [Part(*each) for each in self.sessions.items()]

    def session(self, step: Step) -> Session:
        """The session of *step*."""
        return self.sessions[self.models[step.part]]

    def signature(self, step: Step) -> Signature:
        """The inputs and outputs of the model of *step*."""
        return self.session(step).signature


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
        parameters=request.parameters,
        stop=stop,
        functions=request.functions,
        trace=request.trace,
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


def inputs_of(held: Held, request: InferRequest) -> dict[str, Tensor]:
    """The inputs of a *request* to the ensemble *held*, in the shapes that its steps expect."""
    specs = held.session.signature.inputs
    return {name: to_model(specs[name], tensor) for name, tensor in request.inputs.items()}


def output_of(held: Held, name: str, tensor: Tensor) -> Tensor:
    """The output *name* of the ensemble *held*, from the *tensor* of a step.

    Raises ``RunFailed`` if its shape is not the declared one.
    """
    signature = held.session.signature
    declared = signature.outputs[name]
    spec = declared.as_the_model_has_it
    output = fitted(spec, tensor, batched=signature.max_batch_size > 0)
    if not spec.accepts(output.shape):
        raise RunFailed(
            f"output {name!r} of {held.model} has shape {list(tensor.shape)}, "
            f"it declares {list(spec.shape)}"
        )
    return to_client(declared, output)
