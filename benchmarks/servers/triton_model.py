"""What Triton's Python backend runs for each model: ONNX Runtime on the file beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnxruntime
import triton_python_backend_utils as triton


class TritonPythonModel:
    """One ONNX file."""

    def initialize(self, _: dict[str, str]) -> None:
        """Open the file."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        path = Path(__file__).with_name("model.onnx")
        self.session = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )
        self.inputs = [taken.name for taken in self.session.get_inputs()]

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer each."""
        return [self.answer(request) for request in requests]

    def answer(self, request: Any) -> Any:
        """Run one request: all inputs, the chosen outputs."""
        feed = {
            name: triton.get_input_tensor_by_name(request, name).as_numpy() for name in self.inputs
        }
        names = request.requested_output_names()
        results = self.session.run(names, feed)
        tensors = [triton.Tensor(*each) for each in zip(names, results, strict=True)]
        return triton.InferenceResponse(tensors)
