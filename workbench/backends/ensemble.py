"""Ensembles, models made of other models: their signature, and whether their parts fit together.

Its steps run on leases of its parts (``core/inference/ensembles.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from workbench.backends.base import Inspection, Session
from workbench.backends.ensemble_plan import Plan
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

Part = tuple[str, int | None]  # name and version, the latest if None
Look = Callable[[Part], tuple[ModelSource, Signature]]


class EnsembleBackend:
    """Makes sessions of ensembles; *look* finds their parts."""

    def __init__(self, look: Look) -> None:
        self._look = look

    def wake(self) -> None:
        """There is no engine."""

    def inspect(self, source: ModelSource) -> Inspection:
        """The signature in its configuration, checked against its parts. Raises ``LoadFailed``."""
        return Inspection(self._looked_at(source)[0], Need(0), source.config)

    def load(
        self,
        source: ModelSource,
        stop: CancellationToken | None = None,  # noqa: ARG002  # there is nothing to end
    ) -> EnsembleSession:
        """A session that holds nothing; its parts are models of their own."""
        return EnsembleSession(source, *self._looked_at(source))

    def _looked_at(self, source: ModelSource) -> tuple[Signature, dict[Part, ModelId]]:
        """The signature of *source*, checked against its parts, and the parts."""
        ensemble, signature = ensemble_of(source), signature_of(source)
        self._check_not_within_itself(source)
        found = {part: self._part(source, part) for part in ensemble.parts}
        parts = {part: known for part, (_, known) in found.items()}
        check(source, signature, ensemble.steps, parts)
        labels = {name: self._labels(source, signature, name) for name in signature.outputs}
        return replace(signature, labels=labels), {p: known.id for p, (known, _) in found.items()}

    def _labels(self, source: ModelSource, signature: Signature, output: str) -> tuple[str, ...]:
        """The labels of *output*: those of *source*, else those of the part that computes it."""
        while output not in signature.labels and isinstance(source.origin, Ensemble):
            step, output = source.origin.origin_of(output)
            source, signature = self._part(source, step.part)
        return signature.labels.get(output, ())

    def _part(self, source: ModelSource, part: Part) -> tuple[ModelSource, Signature]:
        try:
            return self._look(part)
        except WorkbenchError as error:
            called = shown_name(part[0])
            raise LoadFailed(f"{source.id}: its part {called!r}: {error}") from error

    def _check_not_within_itself(self, source: ModelSource) -> None:
        """Check that no ensemble contains itself, directly or through other ensembles."""
        ways: list[tuple[ModelSource, tuple[str, ...]]] = [(source, (source.id.name,))]
        deepest: dict[Part, int] = {}
        while ways:
            within, way = ways.pop()
            if len(way) > _DEEPEST:
                raise LoadFailed(f"{source.id} is nested deeper than {_DEEPEST}: {way[1]} and on")
            for part in ensemble_of(within).parts:
                if part[0] == source.id.name:
                    circle = " -> ".join(map(shown_name, (*way, part[0])))
                    raise LoadFailed(f"{source.id} is a part of itself: {circle}")
                if deepest.get(part, 0) >= len(way):
                    continue
                deepest[part] = len(way)
                found = self._part(source, part)[0]
                if isinstance(found.origin, Ensemble):
                    ways.append((found, (*way, part[0])))


class EnsembleSession(Session):
    """A loaded ensemble. It holds no models: its parts are loaded and unloaded by themselves."""

    may_call = True

    def __init__(
        self, source: ModelSource, signature: Signature, parts: Mapping[Part, ModelId]
    ) -> None:
        self.parts = parts
        self.origin = source.config
        self.ensemble = ensemble_of(source)
        self.signature = signature
        self.source = source
        self._plans: dict[tuple[str, ...], Plan] = {}  # by the wanted outputs
        # parts that fit together, by the numbers of the steps
        self._checked: dict[tuple[int, ...], Mapping[Part, Signature]] = {}

    def plan(self, wanted: tuple[str, ...]) -> Plan:
        """The steps that compute the *wanted* outputs."""
        plan = self._plans.get(wanted)
        if plan is None:
            if len(self._plans) >= _MANY_PLANS:  # any outputs may be wanted, in any order
                self._plans.clear()
                self._checked.clear()
            plan = self._plans[wanted] = Plan.of(self.ensemble, wanted)
        return plan

    def check(self, steps: Sequence[Step], signature: Callable[[Step], Signature]) -> None:
        """Check that the parts still fit together: their files may have changed.

        Raises ``ModelNotReady``.
        """
        numbers = tuple(step.number for step in steps)
        checked = self._checked.get(numbers, {})
        if all(checked.get(step.part) is signature(step) for step in steps):
            return
        found = {step.part: signature(step) for step in steps}
        try:
            check(self.source, self.signature, steps, found)
        except LoadFailed as error:
            raise ModelNotReady(f"{error}; load it again once they fit") from error
        self._checked[numbers] = found


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
    source: ModelSource,
    signature: Signature,
    steps: Sequence[Step],
    parts: Mapping[Part, Signature],
) -> None:
    """Check *steps* against the signatures of their *parts*; ``LoadFailed`` names the misfit.

    A tensor has the same datatype in all steps, and shapes that can be equal, with or without the
    batch dimension, as in Triton.
    """
    known: dict[str, tuple[str, TensorSpec, bool]] = {}
    batched = signature.max_batch_size > 0
    for spec in (*signature.inputs.values(), *signature.outputs.values()):
        known[spec.name] = str(source.id), spec.as_the_model_has_it, batched
    for step in steps:
        part = parts[step.part]
        try:
            _check_names(step, part)
            _check_batch(step, part, signature.max_batch_size)
            for own, specs in ((step.inputs, part.inputs), (step.outputs, part.outputs)):
                for name, tensor in own.items():
                    new = str(step), specs[name], part.max_batch_size > 0
                    _check_same(tensor, known.setdefault(tensor, new), new)
        except ValueError as error:
            raise LoadFailed(f"{source.id}: {error}") from None


def _check_names(step: Step, part: Signature) -> None:
    for own, specs, what in (
        (step.inputs, part.inputs, "input"),
        (step.outputs, part.outputs, "output"),
    ):
        for name in own:
            if name not in specs:
                there = ", ".join(map(repr, specs))
                raise ValueError(f"{step} has no {what} {name!r}; it has {there}")
    for name, spec in part.inputs.items():
        if name not in step.inputs and not spec.optional:
            raise ValueError(f"{step} misses its input {name!r}: no tensor is mapped to it")


def _check_batch(step: Step, part: Signature, most: int) -> None:
    if 0 < part.max_batch_size < most:
        raise ValueError(
            f"max_batch_size is {most}, and {step} takes batches of {part.max_batch_size} at most"
        )


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
