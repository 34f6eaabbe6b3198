"""Ensembles, models made of other models: their signature, and whether their parts fit together.

Its steps run on leases of its parts (``core/inference/ensembles.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial

from workbench.backends.base import Inspection, Session
from workbench.errors import LoadFailed, ModelNotReady, WorkbenchError
from workbench.image_forms import image_forms
from workbench.model import (
    Ensemble,
    ModelId,
    ModelSource,
    Need,
    Signature,
    Step,
    TensorSpec,
    shown_name,
)
from workbench.stop import CancellationToken
from workbench.tensor import Tensor

PLATFORM = "ensemble"
_MANY_PLANS = 64
_DEEPEST = 20  # nested ensembles, each of whose requests runs inside another's

PartKey = tuple[str, int | None]  # name and version, the latest if None
Look = Callable[[PartKey], tuple[ModelSource, Signature]]


class EnsembleBackend:
    """Makes sessions of ensembles; *look* finds their parts."""

    def __init__(self, look: Look) -> None:
        self._look = look

    def wake(self) -> None:
        """There is no engine."""

    def inspect(self, source: ModelSource) -> Inspection:
        """The signature in its configuration, checked against its parts. Raises ``LoadFailed``."""
        return Inspection(self.load(source).signature, Need(0), source.config)

    def load(
        self,
        source: ModelSource,
        stop: CancellationToken | None = None,  # noqa: ARG002  # there is nothing to end
    ) -> EnsembleSession:
        """A session that holds nothing; its parts are models of their own."""
        ensemble, signature = ensemble_of(source), signature_of(source)
        self._check_nesting(source, (source.id.name,), {})
        found = {part: self._part(source, part) for part in ensemble.parts}
        check(source, signature, ensemble.steps, [found[step.part][1] for step in ensemble.steps])
        labels = {name: self._labels(source, signature, name) for name in signature.outputs}
        parts = {part: known.id for part, (known, _) in found.items()}
        return EnsembleSession(source, replace(signature, labels=labels), parts)

    def _labels(self, source: ModelSource, signature: Signature, output: str) -> tuple[str, ...]:
        """The labels of *output*: those of *source*, else those of the part that computes it."""
        while output not in signature.labels and isinstance(source.origin, Ensemble):
            step, output = source.origin.origin_of(output)
            source, signature = self._part(source, step.part)
        return signature.labels.get(output, ())

    def _part(self, source: ModelSource, part: PartKey) -> tuple[ModelSource, Signature]:
        try:
            return self._look(part)
        except WorkbenchError as error:
            called = shown_name(part[0])
            raise LoadFailed(f"{source.id}: its part {called!r}: {error}") from error

    def _check_nesting(
        self, source: ModelSource, way: tuple[str, ...], deepest: dict[PartKey, int]
    ) -> None:
        """Check that *source*, reached by *way*, does not contain the first of these.

        *deepest*: how many ensembles each part is within, as far as it was checked.
        """
        if len(way) > _DEEPEST:
            raise LoadFailed(f"{way[0]!r} is nested deeper than {_DEEPEST}: {way[1]} and on")
        for part in ensemble_of(source).parts:
            if part[0] == way[0]:
                circle = " -> ".join(map(shown_name, (*way, part[0])))
                raise LoadFailed(f"{way[0]!r} is a part of itself: {circle}")
            if deepest.get(part, 0) < len(way):
                deepest[part] = len(way)
                found, _ = self._part(source, part)
                if isinstance(found.origin, Ensemble):
                    self._check_nesting(found, (*way, part[0]), deepest)


class StepPlan:
    """The *steps* of an *ensemble* that compute the *wanted* outputs, in the order of their runs.

    Each comes with the outputs of its model that are used, and the tensors that no later step
    takes.
    """

    def __init__(self, ensemble: Ensemble, wanted: tuple[str, ...]) -> None:
        self.steps: list[tuple[Step, tuple[str, ...], set[str]]] = []
        self.fitting: Sequence[Signature] = ()  # the parts that were found to fit together
        needed = set(wanted)
        for step in reversed(ensemble.steps):
            outputs = tuple(name for name, tensor in step.outputs.items() if tensor in needed)
            if outputs:
                taken = set(step.inputs.values())
                self.steps.insert(0, (step, outputs, taken - needed))
                needed |= taken


class EnsembleSession(Session):
    """A loaded ensemble. It holds no models: its parts are loaded and unloaded by themselves.

    *plan* gives the ``StepPlan`` for wanted outputs.
    """

    may_call = True

    def __init__(
        self, source: ModelSource, signature: Signature, parts: Mapping[PartKey, ModelId]
    ) -> None:
        self.parts = parts
        self.origin = source.config
        self.ensemble = ensemble_of(source)
        self.signature = signature
        self.source = source
        # any outputs may be wanted, in any order
        self.plan = lru_cache(_MANY_PLANS)(partial(StepPlan, self.ensemble))

    def check(self, plan: StepPlan, parts: Sequence[Signature]) -> None:
        """Check that *parts*, one for each step, still fit: their files may have changed.

        Raises ``ModelNotReady``.
        """
        if plan.fitting != parts:
            try:
                check(self.source, self.signature, [step for step, *_ in plan.steps], parts)
            except LoadFailed as error:
                raise ModelNotReady(f"{error}; load it again once they fit") from error
            plan.fitting = parts


def ensemble_of(source: ModelSource) -> Ensemble:
    """The steps of *source*, which is an ensemble."""
    assert isinstance(source.origin, Ensemble)
    return source.origin


def signature_of(source: ModelSource) -> Signature:
    """The signature in the configuration of the ensemble *source*. Raises ``LoadFailed``."""
    config = source.config
    inputs = {spec.name: spec for spec in config.inputs}
    outputs = {spec.name: spec for spec in config.outputs}
    forms = image_forms(source.id, inputs, config.parameters)
    return Signature(PLATFORM, inputs, outputs, config.max_batch_size, config.labels, forms)


# ── whether the parts fit together ──────────────────────────────────────────


def check(
    source: ModelSource, signature: Signature, steps: Sequence[Step], parts: Sequence[Signature]
) -> None:
    """Check *steps* against the signatures of their *parts*; ``LoadFailed`` names the misfit.

    A tensor has the same datatype in all steps, and shapes that can be equal, with or without the
    batch dimension, as in Triton.
    """
    known: dict[str, tuple[str, TensorSpec, bool]] = {}
    most = signature.max_batch_size
    for spec in (*signature.inputs.values(), *signature.outputs.values()):
        known[spec.name] = str(source.id), spec.as_the_model_has_it, most > 0
    try:
        for step, part in zip(steps, parts, strict=True):
            for own, specs, what in (
                (step.inputs, part.inputs, "input"),
                (step.outputs, part.outputs, "output"),
            ):
                for name, tensor in own.items():
                    if name not in specs:
                        there = ", ".join(map(repr, specs))
                        raise ValueError(f"{step} has no {what} {name!r}; it has {there}")
                    new = str(step), specs[name], part.max_batch_size > 0
                    _check_same(tensor, known.setdefault(tensor, new), new)
            for name, spec in part.inputs.items():
                if name not in step.inputs and not spec.optional:
                    raise ValueError(f"{step} misses its input {name!r}: no tensor is mapped to it")
            if 0 < part.max_batch_size < most:
                batches = f"batches of {part.max_batch_size} at most"
                raise ValueError(f"max_batch_size is {most}, and {step} takes {batches}")
    except ValueError as error:
        raise LoadFailed(f"{source.id}: {error}") from None


def _check_same(
    tensor: str, first: tuple[str, TensorSpec, bool], second: tuple[str, TensorSpec, bool]
) -> None:
    (one, a, a_batched), (other, b, b_batched) = first, second
    if a.datatype != b.datatype:
        raise ValueError(f"tensor {tensor!r} is {a.datatype} in {one}, and {b.datatype} in {other}")
    less_a, less_b = a.shape[a_batched:], b.shape[b_batched:]
    fit = a.any_rank or b.any_rank or _may_be_same(less_a, less_b)
    if not fit and not _may_be_same(a.shape, b.shape):
        raise ValueError(
            f"tensor {tensor!r} has shape {list(a.shape)} in {one}, and {list(b.shape)} in {other}"
        )


def _may_be_same(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return len(a) == len(b) and all(x == y or -1 in (x, y) for x, y in zip(a, b, strict=True))


def fitted(spec: TensorSpec, tensor: Tensor, *, batched: bool) -> Tensor:
    """*tensor* in the shape of *spec*, of a model that is *batched* or not.

    Between a model with a batch and a model without one, a dimension of 1 is added or removed, as
    in Triton. A tensor that does not fit is returned unchanged.
    """
    shape = tensor.shape
    if spec.accepts(shape):
        return tensor
    if batched and replace(spec, shape=spec.shape[1:]).accepts(shape):
        return Tensor(tensor.datatype, tensor.array[None])
    if not batched and shape[:1] == (1,) and spec.accepts(shape[1:]):
        return Tensor(tensor.datatype, tensor.array[0])
    return tensor
