"""From a thing to what it can be served as, and the choice between those."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.backends.onnx.backend import OnnxBackend
from workbench.backends.onnx.errors import without_source
from workbench.conversion.difference import Difference, difference
from workbench.errors import UsageError, WorkbenchError
from workbench.model import ModelConfig, ModelId, ModelSource, Signature, TensorSpec
from workbench.objects.declared import Declared, declared_hints
from workbench.objects.kinds import kind_of
from workbench.objects.offer import Export, Offer
from workbench.tensor import Array, Tensor

_COLOUR = re.compile("\x1b\\[[0-9;]*m")
_LONGEST = 160  # characters of another library's error


@dataclass(frozen=True, slots=True, repr=False)
class Served:
    """A model that is served: its *name*, *how* it was made, and what it takes and gives.

    *differs*: how far a converted model's answers are from the original's, where it was tried.
    """

    name: str
    how: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    differs: Difference | None = None

    def __repr__(self) -> str:
        takes, gives = (
            ", ".join(f"{spec.name} {spec.datatype} {list(spec.shape)}" for spec in specs)
            for specs in (self.inputs, self.outputs)
        )
        return f"{self.name}: {self.how}; {takes} -> {gives}"


def offer_of(thing: Any, example: Any, inputs: Declared | None = None) -> Offer | None:
    """What *thing* can be served as; ``None`` if it is of no library that is known.

    *inputs* declare those of a module of PyTorch. Raises ``UsageError`` where that cannot be told
    without an *example*, or not at all.
    """
    match kind_of(thing):
        case "sklearn":
            from workbench.objects.estimators import offer_of_estimator

            return offer_of_estimator(thing, example)
        case "xgboost" | "lightgbm" as library:
            from workbench.objects.boosted import offer_of_boosted

            return offer_of_boosted(library, thing, example)
        case "torch":
            from workbench.objects.modules import offer_of_module

            hints = {} if inputs is None else declared_hints("input", inputs)
            return offer_of_module(thing, example, hints)
        case "torch program":
            from workbench.objects.modules import OF_A_PROGRAM

            raise UsageError(OF_A_PROGRAM)
        case "transformers":
            from workbench.objects.pipelines import offer_of_pipeline

            return offer_of_pipeline(thing, example)
    return None


@dataclass(frozen=True, slots=True)
class Converted:
    """Whether a conversion succeeded: by how much it *differs*, or the *reason* why not."""

    differs: Difference | None
    reason: str = ""


def convert(offer: Offer, export: Export, path: Path) -> Converted:
    """Write the model of *export* to *path*, and compare it with the original on the example."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the comparison says what matters
            export.write(path)
    except ImportError as error:
        missing = error.name or export.tool
        return Converted(None, f"{missing} is not installed: pip install '{export.cure}'")
    except Exception as error:  # whatever a converter raises
        return Converted(None, f"{export.tool} cannot convert it: {_line(error)}")
    try:
        answers = run_file(path, offer.kind, offer.example)
        differs = difference(offer.call(**offer.example), answers)
    except (WorkbenchError, ValueError, KeyError) as error:
        return Converted(None, f"what {export.tool} made of it does not run: {_line(error)}")
    if not all(_is_right(offer, other, path) for other in offer.others):
        return Converted(
            None, f"what {export.tool} made of it is right for the sizes of the example only"
        )
    return Converted(differs)


def _is_right(offer: Offer, example: Mapping[str, Array], path: Path) -> bool:
    """Whether the model at *path* answers *example* as the original, if that answers it at all."""
    try:
        expected = offer.call(**example)
    except Exception:  # of any library; what the original refuses, nobody asks
        return True
    try:
        return difference(expected, run_file(path, offer.kind, example)).is_slight
    except (WorkbenchError, ValueError, KeyError):
        return False


def _line(error: BaseException) -> str:
    """The beginning of what the first cause of *error* says, without colours of a terminal."""
    while error.__cause__ is not None:
        error = error.__cause__
    told = without_source(_COLOUR.sub("", str(error)))
    text = " ".join(told.split()) or type(error).__name__
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


# ── an ONNX model by itself, as the server will run it on the CPU ──


def signature_of(path: Path, name: str) -> Signature:
    """What the model at *path* takes and gives. Raises ``LoadFailed``."""
    return OnnxBackend().inspect(_source(path, name)).signature


def run_file(path: Path, name: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs of the model at *path* on *inputs*. Raises ``LoadFailed``, ``RunFailed``."""
    session: Any = OnnxBackend().load(_source(path, name))
    try:
        specs, names = session.signature.inputs, tuple(session.signature.outputs)
        tensors = {n: Tensor.cast(inputs[n], spec.datatype) for n, spec in specs.items()}
        outputs = session.run(tensors, names)
        return {n: t.array.copy() for n, t in zip(names, outputs, strict=True)}
    finally:
        session.close()


def _source(path: Path, name: str) -> ModelSource:
    return ModelSource(ModelId(name, 1), ModelConfig(name), path)
