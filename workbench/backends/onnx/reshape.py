"""``reshape`` of a configuration: clients see other shapes than those of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from workbench.backends.onnx.session import OnnxSession
from workbench.backends.reshape import to_client, to_model
from workbench.errors import RunFailed
from workbench.model import ModelId, Signature
from workbench.stop import CancellationToken
from workbench.tensor import Tensor


def reshapes(signature: Signature) -> bool:
    """True if the model itself has other shapes than its *signature*."""
    specs = (*signature.inputs.values(), *signature.outputs.values())
    return any(spec.reshape is not None for spec in specs)


class ReshapingSession(OnnxSession):
    """A loaded model with the *signature* that clients see."""

    def __init__(
        self, ort: Any, model: ModelId, signature: Signature, *given: Any, **more: Any
    ) -> None:
        inputs, outputs = (
            {name: spec.as_the_model_has_it for name, spec in specs.items()}
            for specs in (signature.inputs, signature.outputs)
        )
        inside = replace(signature, inputs=inputs, outputs=outputs)
        super().__init__(ort, model, inside, *given, **more)
        self.signature = signature

    def run(
        self,
        inputs: Mapping[str, Tensor],
        outputs: Sequence[str],
        into: Mapping[str, memoryview] | None = None,
        stop: CancellationToken | None = None,
    ) -> list[Tensor]:
        """See ``Runnable``; reshaping copies no tensor."""
        specs = self.signature
        taken = {name: to_model(specs.inputs[name], tensor) for name, tensor in inputs.items()}
        given = super().run(taken, outputs, into, stop)
        try:
            return [
                to_client(specs.outputs[name], tensor)
                for name, tensor in zip(outputs, given, strict=True)
            ]
        except ValueError as error:  # the file does not say the shapes of all its outputs
            shapes = [list(tensor.shape) for tensor in given]
            raise RunFailed(
                f"outputs of shape {shapes} do not fit their reshape: {error}"
            ) from error
