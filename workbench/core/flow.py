"""The tensors of one request to an ensemble, and the steps that they go through; no thread here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from workbench.model import Ensemble, Step
from workbench.tensor import Tensor


def needed(ensemble: Ensemble, wanted: Collection[str]) -> tuple[Step, ...]:
    """The steps that the *wanted* outputs need, each after those that it waits for."""
    givers = {tensor: step for step in ensemble.steps for tensor in step.outputs.values()}
    found: dict[int, Step] = {}
    todo = [givers[tensor] for tensor in wanted]
    while todo:
        step = todo[-1]
        before = [givers[tensor] for tensor in step.inputs.values() if tensor in givers]
        awaited = [each for each in before if each.number not in found]
        if awaited:
            todo.extend(awaited)
        else:
            found[todo.pop().number] = step
    return tuple(found.values())


def used(steps: Collection[Step], wanted: Collection[str]) -> dict[int, tuple[str, ...]]:
    """Of each of *steps*, by number, the outputs of its model that anybody takes, or wants."""
    taken = {tensor for step in steps for tensor in step.inputs.values()}.union(wanted)
    return {
        step.number: tuple(name for name, tensor in step.outputs.items() if tensor in taken)
        for step in steps
    }


class Flow:
    """*steps* that make tensors *wanted* of *inputs*.

    A tensor is kept only until the last step has taken it. An input that was not given is
    not waited for: whether it may be left out is its model's to say.
    """

    def __init__(
        self, steps: Collection[Step], inputs: Mapping[str, Tensor], wanted: Collection[str]
    ) -> None:
        self._steps = {step.number: step for step in steps}
        given = {tensor for step in steps for tensor in step.outputs.values()}
        self._awaited = {
            step.number: {tensor for tensor in step.inputs.values() if tensor in given}
            for step in steps
        }
        self._used = used(steps, wanted)
        self._uses = Counter(wanted)  # of each tensor, that are still to come
        for step in steps:
            self._uses.update(set(step.inputs.values()))
        self._tensors = {name: tensor for name, tensor in inputs.items() if self._uses[name]}

    def first(self) -> list[Step]:
        """The steps that can begin at once."""
        return [self._steps[number] for number, left in self._awaited.items() if not left]

    def outputs_of(self, step: Step) -> tuple[str, ...]:
        """The outputs of its model that anybody uses."""
        return self._used[step.number]

    def take(self, step: Step) -> dict[str, Tensor]:
        """The inputs of *step*, which begins, by its model's names."""
        tensors = self._tensors
        taken = {name: tensors[t] for name, t in step.inputs.items() if t in tensors}
        for tensor in set(step.inputs.values()):
            self._uses[tensor] -= 1
            if not self._uses[tensor]:
                self._tensors.pop(tensor, None)
        return taken

    def give(self, step: Step, outputs: Mapping[str, Tensor]) -> list[Step]:
        """*step* gave *outputs*, by its model's names: the steps that can begin now."""
        new = {step.outputs[name]: tensor for name, tensor in outputs.items()}
        self._tensors.update(new)
        begin = []
        for number, left in self._awaited.items():
            if left and not left.difference(new):
                begin.append(self._steps[number])
            left.difference_update(new)
        return begin

    def result(self, name: str) -> Tensor:
        """The wanted tensor *name*, once all steps are done."""
        return self._tensors[name]
