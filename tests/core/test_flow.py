"""Which steps of an ensemble run for the wanted outputs, and in which order: without models."""

from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.backends.ensemble_plan import Plan
from workbench.model import Ensemble, Step

A = Step(1, "a", None, {"x": "in"}, {"y": "t", "y2": "u"})
B = Step(2, "b", None, {"x": "t"}, {"y": "v"})
C = Step(3, "c", None, {"x": "u", "z": "maybe"}, {"y": "w"})
D = Step(4, "d", None, {"x": "v", "z": "w"}, {"y": "out"})
DIAMOND = Ensemble((D, C, B, A))


def test_only_what_is_wanted() -> None:
    """Of some outputs, only the steps that they need run, and give only what is used."""
    plan = Plan.of(DIAMOND, ["out"])
    assert plan.steps == (A, B, C, D)  # each after those that it waits for
    assert plan.outputs[A.number] == ("y", "y2")
    plan = Plan.of(DIAMOND, ["v"])
    assert plan.steps == (A, B)
    assert plan.outputs[A.number] == ("y",)


@st.composite
def ensembles(draw: st.DrawFn) -> Ensemble:
    """Steps that take inputs and what steps before them give, in any order of listing."""
    tensors, steps = ["in0", "in1"], []
    for number in range(1, draw(st.integers(1, 8)) + 1):
        taken = draw(st.lists(st.sampled_from(tensors), min_size=1, max_size=3))
        given = [f"{number}.{k}" for k in range(draw(st.integers(1, 2)))]
        inputs = {f"x{k}": name for k, name in enumerate(taken)}
        steps.append(Step(number, "m", None, inputs, {f"y{k}": n for k, n in enumerate(given)}))
        tensors += given
    return Ensemble(tuple(draw(st.permutations(steps))))


@settings(derandomize=True, deadline=None)
@given(ensembles(), st.data())
def test_any_ensemble(ensemble: Ensemble, data: st.DataObject) -> None:
    """Each step that is needed runs once, after those whose tensors it takes; no other runs.

    A tensor is counted once for each step that takes it, and once if it is wanted.
    """
    outputs = [tensor for step in ensemble.steps for tensor in step.outputs.values()]
    wanted = data.draw(st.lists(st.sampled_from(outputs), min_size=1, unique=True))
    plan = Plan.of(ensemble, wanted)
    there, uses = {"in0", "in1"}, dict(plan.uses)
    for step in plan.steps:
        assert there.issuperset(step.inputs.values())
        for tensor in set(step.inputs.values()):
            uses[tensor] -= 1
        used = {step.outputs[name] for name in plan.outputs[step.number]}
        assert used == {tensor for tensor in step.outputs.values() if plan.uses.get(tensor)}
        assert used
        there |= used
    assert len({step.number for step in plan.steps}) == len(plan.steps)
    assert {tensor for tensor, left in uses.items() if left} == {*wanted}
