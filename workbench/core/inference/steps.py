"""The steps of an ensemble, one after the other: their requests and answers; no threads."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from workbench.backends.base import Session
from workbench.backends.ensemble import EnsembleSession, fitted
from workbench.backends.ensemble import Part as Named
from workbench.backends.reshape import to_client, to_model
from workbench.core.runs import Runs
from workbench.errors import (
    InvalidRequest,
    LoadFailed,
    ModelNotFound,
    ModelNotReady,
    RunFailed,
    VersionNotFound,
)
from workbench.inference import InferRequest, InferResponse
from workbench.model import ModelId, Signature, Step
from workbench.tensor import Tensor

Steps = Generator[tuple[Step, InferRequest], InferResponse, InferResponse]
"""Yields each step with its request, takes the answer to it, and returns that of the ensemble."""


@dataclass(frozen=True, slots=True)
class Leased:
    """All models that the steps of a request need; they are leased together."""

    models: Mapping[Named, ModelId]
    sessions: Mapping[ModelId, Session]

    def model(self, step: Step) -> ModelId:
        return self.models[step.part]

    def session(self, step: Step) -> Session:
        return self.sessions[self.models[step.part]]

    def signature(self, step: Step) -> Signature:
        return self.session(step).signature


def steps_of(
    runs: Runs,
    ensemble: ModelId,
    session: EnsembleSession,
    request: InferRequest,
    *,
    wanted: tuple[str, ...],
    leased: Leased,
) -> Steps:
    """The steps of a *request* to the *ensemble*, in an order in which none waits for a later one.

    An error that is thrown in comes out with the place of the step. A tensor is kept only until the
    last step that uses it has taken it. A step does without inputs that the request left out: its
    model says whether they may be left out.
    """
    signature, plan = session.signature, session.plan(wanted)
    session.check(plan.steps, leased.signature)
    begun_s, own_s, uses, specs = time.perf_counter(), 0.0, dict(plan.uses), signature.inputs
    given = {name: tensor for name, tensor in request.inputs.items() if name in uses}
    tensors = {name: to_model(specs[name], tensor) for name, tensor in given.items()}
    del given
    for step in plan.steps:
        taken = {name: tensors[t] for name, t in step.inputs.items() if t in tensors}
        for tensor in set(step.inputs.values()):
            uses[tensor] -= 1
            if not uses[tensor]:
                tensors.pop(tensor, None)
        with placed(ensemble, step):
            asked = _asked(step, leased, taken, request, plan.outputs[step.number])
            response = yield step, asked
            own_s += runs.expected_s(response.model, leased.session(step), asked.nbytes)
        tensors |= {step.outputs[name]: tensor for name, tensor in response.outputs.items()}
        del taken, asked, response
    outputs = {name: _output(ensemble, signature, name, tensors[name]) for name in wanted}
    return runs.answer(ensemble, session, request, outputs, begun_s=begun_s, own_s=own_s)


def _asked(
    step: Step,
    leased: Leased,
    taken: Mapping[str, Tensor],
    request: InferRequest,
    outputs: tuple[str, ...],
) -> InferRequest:
    """The request to the model of *step*: the tensors *taken* go in, *outputs* are wanted.

    *request* is that to the ensemble.
    """
    signature = leased.signature(step)
    specs, batched = signature.inputs, signature.max_batch_size > 0
    return InferRequest(
        step.model,
        {name: fitted(specs[name], tensor, batched=batched) for name, tensor in taken.items()},
        leased.model(step).version,
        outputs,
        request.id,
        request.parameters,
        stop=request.stop,
        functions=request.functions,
        headers=request.headers,
    )


def _output(ensemble: ModelId, signature: Signature, name: str, tensor: Tensor) -> Tensor:
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
        if type(error) not in (InvalidRequest, RunFailed) or getattr(error, "circle", None):
            raise
        raise type(error)(f"{ensemble}, {step}: {error}") from error
