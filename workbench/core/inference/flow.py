"""The tensors of one request to an ensemble, and which steps can begin; uses no threads."""

from __future__ import annotations

from collections.abc import Mapping

from workbench.backends.ensemble_plan import Plan
from workbench.model import Step
from workbench.tensor import Tensor


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
        """The steps that can begin at once."""
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
