"""Tries an ONNX model on arrays, by itself, as the server will run it on the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.backends.onnx.backend import OnnxBackend
from workbench.model import ModelConfig, ModelId, ModelSource, Signature
from workbench.tensor import Array, Tensor


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
