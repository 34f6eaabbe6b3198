"""Which steps of an ensemble compute the wanted outputs, and in which order; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from workbench.model import Ensemble, Step


@dataclass(frozen=True, slots=True)
class Plan:
    """The *steps* that compute the *wanted* outputs, each after the steps that it waits for.

    *outputs*: by the number of a step, the outputs of its model that are used. *uses*: how often
    each tensor is taken.
    """

    steps: tuple[Step, ...]
    outputs: Mapping[int, tuple[str, ...]]
    uses: Mapping[str, int]

    @classmethod
    def of(cls, ensemble: Ensemble, wanted: Collection[str]) -> Plan:
        givers = {tensor: step for step in ensemble.steps for tensor in step.outputs.values()}
        steps = _needed(givers, wanted)
        uses = Counter(wanted)
        for step in steps:
            uses.update(set(step.inputs.values()))
        outputs = {
            step.number: tuple(name for name, tensor in step.outputs.items() if uses[tensor])
            for step in steps
        }
        return cls(steps, outputs, uses)


def _needed(givers: Mapping[str, Step], wanted: Collection[str]) -> tuple[Step, ...]:
    found: dict[int, Step] = {}
    todo = [givers[tensor] for tensor in wanted]
    while todo:
        step = todo[-1]
        before = [givers[tensor] for tensor in step.inputs.values() if tensor in givers]
        awaited = [each for each in before if each.number not in found]
        if awaited:
            todo.extend(reversed(awaited))
        else:
            found[todo.pop().number] = step
    return tuple(found.values())
