"""One step of an ensemble: what its model is asked, and what is made of the answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from workbench.backends.base import Session
from workbench.backends.ensemble import EnsembleSession, Part, check, fitted
from workbench.core.flow import needed
from workbench.errors import (
    InvalidRequest,
    LoadFailed,
    ModelNotReady,
    RunFailed,
    WorkbenchError,
)
from workbench.inference import InferRequest
from workbench.model import ModelId, Step
from workbench.residency import Lease
from workbench.stop import Stop
from workbench.tensor import Tensor

_MANY_ORDERS = 64


@dataclass(frozen=True, slots=True)
class Leased:
    """A *lease* on all models that some steps need, and who they are."""

    lease: Lease
    models: Mapping[Part, ModelId]
    sessions: Mapping[ModelId, Session]

    def session(self, step: Step) -> Session:
        """What *step* runs on."""
        return self.sessions[self.models[step.part]]


def steps_for(session: EnsembleSession, wanted: tuple[str, ...]) -> tuple[Step, ...]:
    """The steps that *wanted* outputs need, in an order in which none waits for a later one."""
    steps = session.orders.get(wanted)
    if steps is None:
        if len(session.orders) >= _MANY_ORDERS:  # any outputs may be wanted, in any order
            session.orders.clear()
        steps = session.orders[wanted] = needed(session.schedule, wanted)
    return steps


def check_parts(session: EnsembleSession, steps: tuple[Step, ...], leased: Leased) -> None:
    """The parts still fit together: each may have been loaded anew, and be another.

    Raises ``ModelNotReady``.
    """
    if all(session.checked.get(step.part) is leased.session(step).signature for step in steps):
        return
    found = {step.part: leased.session(step).signature for step in steps}
    try:
        check(session.source, session.signature, steps, found)
    except LoadFailed as error:
        raise ModelNotReady(f"{error}; load it again once they fit") from error
    session.checked = found


def asked_of(
    step: Step,
    leased: Leased,
    taken: Mapping[str, Tensor],
    outputs: tuple[str, ...],
    request: InferRequest,
    *,
    stop: Stop | None,
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
    )


def told(ensemble: ModelId, step: Step, error: WorkbenchError) -> WorkbenchError:
    """The *error* of *step*, with its place where it is about tensors or the run itself."""
    if type(error) in (InvalidRequest, RunFailed):
        return type(error)(f"{ensemble}, {step}: {error}")
    return error


def output_of(lease: Lease, name: str, tensor: Tensor) -> Tensor:
    """The output *name* of the leased ensemble, made of *tensor*. Raises ``RunFailed``."""
    signature = lease.session.signature
    spec = signature.outputs[name]
    output = fitted(spec, tensor, batched=signature.max_batch_size > 0)
    if not spec.accepts(output.shape):
        raise RunFailed(
            f"output {name!r} of {lease.model} has shape {list(tensor.shape)}, "
            f"it declares {list(spec.shape)}"
        )
    return output
