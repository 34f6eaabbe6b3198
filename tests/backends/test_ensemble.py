"""Whether the parts of an ensemble fit together, and the errors that name what does not."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from workbench.backends.ensemble import EnsembleBackend, PartKey, fitted
from workbench.errors import LoadFailed, ModelNotFound
from workbench.model import (
    Ensemble,
    FunctionModel,
    ModelConfig,
    ModelId,
    ModelSource,
    Signature,
    Step,
    TensorSpec,
)
from workbench.tensor import Tensor


def spec(name: str, shape: tuple[int, ...], datatype: str = "FP32", **more: bool) -> TensorSpec:
    return TensorSpec(name, datatype, shape, **more)


def part(
    inputs: Mapping[str, tuple[int, ...]], outputs: Mapping[str, tuple[int, ...]], batch: int = 0
) -> Signature:
    taken, given = ({n: spec(n, s) for n, s in each.items()} for each in (inputs, outputs))
    return Signature("python", taken, given, batch)


def source(
    *steps: Step,
    taken: tuple[int, ...] = (-1,),
    given: tuple[int, ...] = (-1,),
    batch: int = 0,
    name: str = "e",
) -> ModelSource:
    """An ensemble from *in* to *out*."""
    prefix = (-1,) if batch else ()
    config = ModelConfig(
        name,
        batch,
        (spec("in", prefix + taken),),
        (spec("out", prefix + given),),
        ensemble=Ensemble(steps),
    )
    assert config.ensemble is not None
    return ModelSource(ModelId(name, 1), config, config.ensemble)


ONE = Step(1, "a", None, {"x": "in"}, {"y": "out"})
TWO = (Step(1, "a", None, {"x": "in"}, {"y": "t"}), Step(2, "b", None, {"x": "t"}, {"y": "out"}))


def inspect(ensemble: ModelSource, **parts: Signature) -> Signature:
    def look(wanted: PartKey) -> tuple[ModelSource, Signature]:
        name = wanted[0]
        if name not in parts:
            raise ModelNotFound(f"there is no model {name!r}")
        function = FunctionModel(lambda x: x, (), ())
        return ModelSource(ModelId(name, 1), ModelConfig(name), function), parts[name]

    return EnsembleBackend(look).inspect(ensemble).signature


def refusal(ensemble: ModelSource, **parts: Signature) -> str:
    with pytest.raises(LoadFailed) as caught:
        inspect(ensemble, **parts)
    assert str(caught.value).startswith("e:1: ")
    return str(caught.value).removeprefix("e:1: ")


PLAIN = part({"x": (-1,)}, {"y": (-1,)})


def test_what_it_says_of_itself() -> None:
    """Its signature is what its configuration says, its memory that of its parts."""
    ensemble = replace(source(ONE), config=replace(source(ONE).config, labels={"out": ("a", "b")}))
    signature = inspect(ensemble, a=PLAIN)
    assert signature.platform == "ensemble"
    assert signature.inputs == {"in": spec("in", (-1,))}
    assert signature.outputs == {"out": spec("out", (-1,))}
    assert signature.labels == {"out": ("a", "b")}
    function = ModelSource(ModelId("a", 7), ModelConfig("a"), FunctionModel(print, (), ()))
    session = EnsembleBackend(lambda _: (function, PLAIN)).load(source(ONE))
    assert session.footprint.nbytes == 0
    assert session.ensemble == Ensemble((ONE,))
    assert session.parts == {("a", None): ModelId("a", 7)}


@pytest.mark.parametrize(
    ("ensemble", "parts", "told"),
    [
        (source(ONE), {}, "its part 'a': there is no model 'a'"),
        (source(ONE), {"a": part({"z": (-1,)}, {"y": (-1,)})},
         "step 1 (a) has no input 'x'; it has 'z'"),
        (source(ONE), {"a": part({"x": (-1,)}, {"z": (-1,), "w": (1,)})},
         "step 1 (a) has no output 'y'; it has 'z', 'w'"),
        (source(ONE), {"a": part({"x": (-1,), "mask": (-1,)}, {"y": (-1,)})},
         "step 1 (a) misses its input 'mask': no tensor is mapped to it"),
        (source(ONE), {"a": Signature("python", {"x": spec("x", (-1,), "INT8")}, PLAIN.outputs)},
         "tensor 'in' is FP32 in e:1, and INT8 in step 1 (a)"),
        (source(ONE, taken=(4,)), {"a": part({"x": (3,)}, {"y": (-1,)})},
         "tensor 'in' has shape [4] in e:1, and [3] in step 1 (a)"),
        (source(*TWO),
         {"a": part({"x": (-1,)}, {"y": (2, 3)}), "b": part({"x": (6,)}, {"y": (-1,)})},
         "tensor 't' has shape [2, 3] in step 1 (a), and [6] in step 2 (b)"),
        (source(ONE, batch=8), {"a": part({"x": (-1, -1)}, {"y": (-1, -1)}, 4)},
         "max_batch_size is 8, and step 1 (a) takes batches of 4 at most"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(
    ensemble: ModelSource, parts: dict[str, Signature], told: str
) -> None:
    """A part that is not there, or does not fit, is named with its tensor."""
    assert refusal(ensemble, **parts) == told


@pytest.mark.parametrize(
    ("ensemble", "parts"),
    [
        (source(*TWO, taken=(4,)), {"a": PLAIN, "b": PLAIN}),
        (source(ONE, taken=(4,), given=(4,), batch=8), {"a": part({"x": (-1, 4)}, {"y": (-1, 4)})}),
        (source(ONE, taken=(4,), given=(4,), batch=8), {"a": part({"x": (4,)}, {"y": (4,)})}),
        (source(ONE, taken=(4,), given=(4,)), {"a": part({"x": (-1, 4)}, {"y": (-1, 4)}, 8)}),
        (source(ONE, batch=8), {"a": part({"x": (-1, -1)}, {"y": (-1, -1)}, 8)}),
    ],
)
def test_what_fits(ensemble: ModelSource, parts: dict[str, Signature]) -> None:
    """Shapes may be the same where a size is open, with the batch or without it, as in Triton."""
    assert inspect(ensemble, **parts).inputs.keys() == {"in"}


def test_an_optional_input_may_be_left_out() -> None:
    """An input that its model does not need needs no tensor."""
    inputs = {"x": spec("x", (-1,)), "mask": spec("mask", (-1,), optional=True)}
    assert inspect(source(ONE), a=Signature("python", inputs, PLAIN.outputs)).outputs


def test_no_ensemble_is_a_part_of_itself() -> None:
    """Not by way of others either; the way is named."""
    steps = {a: Step(1, b, None, {"x": "in"}, {"y": "out"}) for a, b in ("ef", "fg", "ge")}

    def look(wanted: PartKey) -> tuple[ModelSource, Signature]:
        return source(steps[wanted[0]], name=wanted[0]), PLAIN

    with pytest.raises(LoadFailed, match=r"^'e' is a part of itself: e -> f -> g -> e$"):
        EnsembleBackend(look).inspect(source(steps["e"]))


@pytest.mark.parametrize("deepest", [19, 20])
def test_deep_ensembles(deepest: int) -> None:
    """An ensemble of two that are of the same two, and so on, takes as many looks as there are.

    There is an end to that: each of its requests would be within another's.
    """
    looks = []

    def look(wanted: PartKey) -> tuple[ModelSource, Signature]:
        looks.append(wanted)
        depth = int(wanted[0])
        below = str(depth + 1)
        first = Step(1, below, None, {"x": "in"}, {"y": "t"})
        inner = (first, Step(2, below, 1, {"x": "t"}, {"y": "y"}))
        if depth < deepest:
            return source(*inner, name=wanted[0]), PLAIN
        function = FunctionModel(lambda x: x, (), ())
        return ModelSource(ModelId(wanted[0], 1), ModelConfig(wanted[0]), function), PLAIN

    top = Step(1, "0", None, {"x": "in"}, {"y": "out"})
    if deepest == 20:
        with pytest.raises(LoadFailed, match=r"^'e' is nested deeper than 20: 0 and on$"):
            EnsembleBackend(look).inspect(source(top))
        return
    EnsembleBackend(look).inspect(source(top))
    assert len(looks) <= 4 * 21


@pytest.mark.parametrize(
    ("shape", "batched", "given", "fits"),
    [
        ((-1, 4), True, (3, 4), (3, 4)),
        ((-1, 4), True, (4,), (1, 4)),
        ((4,), False, (1, 4), (4,)),
        ((4,), False, (2, 4), (2, 4)),
        ((4,), False, (5,), (5,)),
        ((-1, 4), False, (4,), (4,)),
    ],
)
def test_a_batch_of_one_comes_and_goes(
    shape: tuple[int, ...], batched: bool, given: tuple[int, ...], fits: tuple[int, ...]
) -> None:
    """Between a model with a batch and one without, as Triton does; else nothing changes."""
    tensor = Tensor.of(np.zeros(given, np.float32))
    assert fitted(spec("x", shape), tensor, batched=batched).shape == fits
