"""The steps of an ensemble that run for the wanted outputs, in which order: without models."""

from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.backends.ensemble import StepPlan
from workbench.model import Ensemble, Step

A = Step(1, "a", None, {"x": "in"}, {"y": "t", "y2": "u"})
B = Step(2, "b", None, {"x": "t"}, {"y": "v"})
C = Step(3, "c", None, {"x": "u", "z": "maybe"}, {"y": "w"})
D = Step(4, "d", None, {"x": "v", "z": "w"}, {"y": "out"})
DIAMOND = Ensemble((A, B, C, D))


def test_only_what_is_wanted() -> None:
    """Of some outputs, only the steps that they need run, and give only what is used."""
    assert StepPlan(DIAMOND, ("out",)).steps == [
        (A, ("y", "y2"), {"in"}),
        (B, ("y",), {"t"}),
        (C, ("y",), {"u", "maybe"}),
        (D, ("y",), {"v", "w"}),
    ]
    assert StepPlan(DIAMOND, ("v", "t")).steps == [(A, ("y",), {"in"}), (B, ("y",), set())]


@st.composite
def ensembles(draw: st.DrawFn) -> Ensemble:
    """Steps that take inputs and what steps before them give."""
    tensors, steps = ["in0", "in1"], []
    for number in range(1, draw(st.integers(1, 8)) + 1):
        taken = draw(st.lists(st.sampled_from(tensors), min_size=1, max_size=3))
        given = [f"{number}.{k}" for k in range(draw(st.integers(1, 2)))]
        inputs = {f"x{k}": name for k, name in enumerate(taken)}
        steps.append(Step(number, "m", None, inputs, {f"y{k}": n for k, n in enumerate(given)}))
        tensors += given
    return Ensemble(tuple(steps))


@settings(derandomize=True, deadline=None)
@given(ensembles(), st.data())
def test_any_ensemble(ensemble: Ensemble, data: st.DataObject) -> None:
    """Each step that is needed runs once, while what it takes is there; what is wanted is left."""
    outputs = [tensor for step in ensemble.steps for tensor in step.outputs.values()]
    wanted = data.draw(st.lists(st.sampled_from(outputs), min_size=1, unique=True))
    there = {"in0", "in1"}
    for step, names, dropped in StepPlan(ensemble, tuple(wanted)).steps:
        assert there.issuperset(step.inputs.values())
        assert names
        there -= dropped
        there |= {step.outputs[name] for name in names}
    assert there - {"in0", "in1"} == {*wanted}
