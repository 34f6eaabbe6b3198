"""``ensemble_scheduling`` of a configuration: steps, and the tensors that go from one to the next.

Checks what needs no models: every tensor has a source and a use, and no steps wait for each other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
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
    steps = tuple(_step(number, step) for number, step in enumerate(message.step, 1))
    givers = _givers(steps, inputs)
    _check_ends(steps, givers, inputs, outputs)
    _check_order(steps, givers)
    return Ensemble(steps)


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


def _givers(steps: Iterable[Step], inputs: Collection[str]) -> dict[str, Step]:
    """The step that gives each tensor."""
    givers: dict[str, Step] = {}
    for step in steps:
        for tensor in step.outputs.values():
            if tensor in inputs:
                raise ValueError(f"tensor {tensor!r} is an input, and comes from {step} too")
            if tensor in givers:
                twice = (
                    f"{givers[tensor]} and {step}"
                    if givers[tensor] is not step
                    else f"two outputs of {step}"
                )
                raise ValueError(f"tensor {tensor!r} comes from {twice}")
            givers[tensor] = step
    return givers


def _check_ends(
    steps: Iterable[Step],
    givers: Mapping[str, Step],
    inputs: Collection[str],
    outputs: Collection[str],
) -> None:
    """Check that every tensor has a source and a use."""
    for step in steps:
        for tensor in step.inputs.values():
            if tensor not in givers and tensor not in inputs:
                raise ValueError(
                    f"{step} takes tensor {tensor!r}, which no step gives, and which is no input"
                )
    for output in outputs:
        if output not in givers:
            raise ValueError(f"no step gives the output {output!r}")
    taken = {tensor for step in steps for tensor in step.inputs.values()}
    for tensor in inputs:
        if tensor not in taken:
            raise ValueError(f"no step takes the input {tensor!r}")
    for tensor, step in givers.items():
        if tensor not in taken and tensor not in outputs:
            raise ValueError(f"{step} gives tensor {tensor!r}, which no step takes: leave it out")


def _check_order(steps: Sequence[Step], givers: Mapping[str, Step]) -> None:
    """Check that no steps wait for each other."""
    awaited = {  # by step: the steps that it waits for, and a tensor of each
        step.number: {givers[t].number: t for t in step.inputs.values() if t in givers}
        for step in steps
    }
    try:
        TopologicalSorter(awaited).prepare()
    except CycleError as error:
        circle: list[int] = error.args[1][::-1]  # each step before one that it waits for
        told = [f"{steps[n - 1]} takes {awaited[n][giver]!r}" for n, giver in pairwise(circle)]
        told.append(f"which comes from {steps[circle[-1] - 1]}")
        raise ValueError(f"steps wait for each other: {', '.join(told)}") from None
