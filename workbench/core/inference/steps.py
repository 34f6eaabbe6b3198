"""One step of an ensemble: what its model is asked, and what is made of the answer."""

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
    """All models that some steps need, which are leased together."""

    models: Mapping[Named, ModelId]
    sessions: Mapping[ModelId, Session]

    def part(self, step: Step) -> Part:
        """The loaded model of *step*."""
        model = self.models[step.part]
        return Part(model, self.sessions[model])

    def parts(self) -> list[Part]:
        """All of them."""
        return [Part(*each) for each in self.sessions.items()]

    def session(self, step: Step) -> Session:
        """What *step* runs on."""
        return self.sessions[self.models[step.part]]

    def signature(self, step: Step) -> Signature:
        """What that takes and gives."""
        return self.session(step).signature


def more_parts(
    session: EnsembleSession,
    wanted: tuple[str, ...],
    leased: Leased,
    parents: tuple[EnsembleSession, ...] = (),
) -> Iterator[Named]:
    """The models that *wanted* outputs need besides those that are *leased*.

    Of an ensemble that is a step it is known only once that is leased. Raises
    ``ModelNotReady`` where it is within itself.
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
    """What the model of *step* is asked for *outputs*, with tensors *taken*, for a *request*."""
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
    """Errors of parts that cannot be had tell meanwhile which *ensemble* needs them."""
    try:
        yield
    except LoadFailed as error:
        raise LoadFailed(f"{ensemble} needs its parts: {error}") from error
    except (ModelNotFound, VersionNotFound, ModelNotReady) as error:
        raise ModelNotReady(f"{ensemble} needs its parts: {error}") from error


@contextmanager
def placed(ensemble: ModelId, step: Step) -> Iterator[None]:
    """Errors that are about tensors, or the run itself, tell meanwhile of which *step* they are."""
    try:
        yield
    except (InvalidRequest, RunFailed) as error:
        if type(error) not in (InvalidRequest, RunFailed):
            raise
        raise type(error)(f"{ensemble}, {step}: {error}") from error


def inputs_of(held: Held, request: InferRequest) -> dict[str, Tensor]:
    """The inputs of a *request* to the ensemble *held*, in the shapes that its steps take."""
    specs = held.session.signature.inputs
    return {name: to_model(specs[name], tensor) for name, tensor in request.inputs.items()}


def output_of(held: Held, name: str, tensor: Tensor) -> Tensor:
    """The output *name* of the ensemble *held*, made of *tensor*. Raises ``RunFailed``."""
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
