"""Which steps of an ensemble may begin, and what they take: without threads."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.backends.ensemble_plan import Plan
from workbench.core.inference.steps import Flow
from workbench.model import Ensemble, Step
from workbench.tensor import Tensor

A = Step(1, "a", None, {"x": "in"}, {"y": "t", "y2": "u"})
B = Step(2, "b", None, {"x": "t"}, {"y": "v"})
C = Step(3, "c", None, {"x": "u", "z": "maybe"}, {"y": "w"})
D = Step(4, "d", None, {"x": "v", "z": "w"}, {"y": "out"})
DIAMOND = Ensemble((A, B, C, D))


def tensor(number: int) -> Tensor:
    return Tensor.of(np.array([number]))


def test_a_diamond() -> None:
    """What does not wait for each other begins together, and what waits for both comes last."""
    plan = Plan.of(DIAMOND, ["out"])
    flow = Flow(plan, {"in": tensor(0), "maybe": tensor(9)})
    assert flow.first() == [A]
    assert flow.take(A) == {"x": tensor(0)}
    assert plan.outputs[A.number] == ("y", "y2")
    assert flow.give(A, {"y": tensor(1), "y2": tensor(2)}) == [B, C]
    assert flow.take(C) == {"x": tensor(2), "z": tensor(9)}
    assert flow.take(B) == {"x": tensor(1)}
    assert flow.give(C, {"y": tensor(3)}) == []
    assert flow.give(B, {"y": tensor(4)}) == [D]
    assert flow.take(D) == {"x": tensor(4), "z": tensor(3)}
    assert flow.give(D, {"y": tensor(5)}) == []
    assert flow.result("out") == tensor(5)


def test_an_input_that_was_left_out() -> None:
    """A step begins without an input of the request that was not given."""
    flow = Flow(Plan.of(Ensemble((C,)), ["w"]), {"u": tensor(1)})
    assert flow.first() == [C]
    assert flow.take(C) == {"x": tensor(1)}


def test_only_what_is_wanted() -> None:
    """Of some outputs, only the steps that they need run, and give only what is used."""
    assert Plan.of(DIAMOND, ["out"]).steps == (A, B, C, D)  # each after those that it waits for
    plan = Plan.of(DIAMOND, ["v"])
    assert plan.steps == (A, B)
    assert plan.outputs[A.number] == ("y",)


def test_tensors_go_with_the_last_step_that_takes_them() -> None:
    """A tensor is kept while a step is to take it, or it is wanted, and no longer."""
    two = tuple(Step(n, "m", None, {"x": "in", "z": "in"}, {"y": f"y{n}"}) for n in (1, 2))
    flow = Flow(Plan.of(Ensemble(two), ["y1", "y2"]), {"in": tensor(0), "other": tensor(1)})
    flow.take(two[0])
    assert "in" in flow._tensors
    flow.take(two[1])
    assert not flow._tensors
    flow.give(two[0], {"y": tensor(1)})
    assert list(flow._tensors) == ["y1"]


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
def test_every_order_ends(ensemble: Ensemble, data: st.DataObject) -> None:
    """In whatever order steps end, each that is needed runs once, after those that it waits for."""
    outputs = [tensor for step in ensemble.steps for tensor in step.outputs.values()]
    wanted = data.draw(st.lists(st.sampled_from(outputs), min_size=1, unique=True))
    plan = Plan.of(ensemble, wanted)
    flow = Flow(plan, {"in0": tensor(0), "in1": tensor(0)})
    running, ran = flow.first(), []
    while running:
        step = running.pop(data.draw(st.integers(0, len(running) - 1)))
        assert flow.take(step).keys() == step.inputs.keys()
        running += flow.give(step, {name: tensor(1) for name in plan.outputs[step.number]})
        ran.append(step.number)
    assert sorted(ran) == sorted(step.number for step in plan.steps)
    assert sorted(flow._tensors) == sorted(wanted)
    assert all(flow.result(name) == tensor(1) for name in wanted)
