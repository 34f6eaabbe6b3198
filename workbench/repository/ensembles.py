"""``ensemble_scheduling`` of a configuration: steps, and the tensors that go from one to the next.

Checks what needs no models: every tensor has a source and a use, and no steps wait for each other.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from workbench.errors import ModelNotFound
from workbench.model import Ensemble, Step, check_name

_LATEST = -1
_MOST_STEPS = 1000


def ensemble_of(message: Any, inputs: Collection[str], outputs: Collection[str]) -> Ensemble:
    """The steps in *message*, a ModelEnsembling, from tensors *inputs* to tensors *outputs*.

    Raises ``ValueError``.
    """
    if not message.step:
        raise ValueError("ensemble_scheduling has no steps")
    if len(message.step) > _MOST_STEPS:
        raise ValueError(f"ensemble_scheduling has more than {_MOST_STEPS} steps")
    if not inputs or not outputs:
        raise ValueError("an ensemble must say its input and its output: its steps do not")
    steps = [_step(number, step) for number, step in enumerate(message.step, 1)]
    _check_tensors(steps, inputs, outputs)
    return Ensemble(_in_order(steps, inputs))


def _check_tensors(steps: list[Step], inputs: Collection[str], outputs: Collection[str]) -> None:
    """Check that every tensor has one source, and a use."""
    takers = {tensor: step for step in steps for tensor in step.inputs.values()}
    givers: dict[str, Step] = {}
    for step in steps:
        for tensor in step.outputs.values():
            if tensor in givers or tensor in inputs:
                first = givers.get(tensor, "the input")
                raise ValueError(f"tensor {tensor!r} comes from {first} and {step}")
            givers[tensor] = step
    for tensor, step in takers.items():
        if tensor not in givers and tensor not in inputs:
            neither = "which no step gives, and which is no input"
            raise ValueError(f"{step} takes tensor {tensor!r}, {neither}")
    if missing := [tensor for tensor in outputs if tensor not in givers]:
        raise ValueError(f"no step gives the output {missing[0]!r}")
    if unused := [tensor for tensor in inputs if tensor not in takers]:
        raise ValueError(f"no step takes the input {unused[0]!r}")
    for tensor, step in givers.items():
        if tensor not in takers and tensor not in outputs:
            raise ValueError(f"{step} gives tensor {tensor!r}, which no step takes: leave it out")


def _step(number: int, message: Any) -> Step:
    if not message.model_name:
        raise ValueError(f"step {number} of ensemble_scheduling has no model_name")
    try:
        name = check_name(message.model_name)
    except ModelNotFound as error:
        raise ValueError(f"step {number} of ensemble_scheduling: {error}") from None
    version = message.model_version
    step = Step(
        number,
        name,
        None if version == _LATEST else version,
        dict(sorted(message.input_map.items())),
        dict(sorted(message.output_map.items())),
    )
    if version < 1 and version != _LATEST:
        raise ValueError(f"{step} has model_version {version}: say -1 for the latest")
    for field, names in (("input_map", step.inputs), ("output_map", step.outputs)):
        if not names:
            raise ValueError(f"{step} has no {field}")
        if not all(names.values()):
            raise ValueError(f"the {field} of {step} has a tensor without a name")
    return step


def _in_order(steps: list[Step], inputs: Collection[str]) -> tuple[Step, ...]:
    """The *steps*, each after those whose tensors it takes, else in the order of their numbers."""
    there, ordered = set(inputs), []
    while steps:
        ready = next((step for step in steps if there.issuperset(step.inputs.values())), None)
        if ready is None:
            raise ValueError(f"steps wait for each other: {', '.join(map(str, steps))}")
        there.update(ready.outputs.values())
        ordered.append(ready)
        steps.remove(ready)
    return tuple(ordered)
