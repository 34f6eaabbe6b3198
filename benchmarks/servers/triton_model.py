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
        self.input = self.session.get_inputs()[0].name
        self.output = self.session.get_outputs()[0].name

    def execute(self, requests: list[Any]) -> list[Any]:
        """Run the one input of each, answer the one output."""
        return [self.answer(request) for request in requests]

    def answer(self, request: Any) -> Any:
        """Run one request."""
        feed = triton.get_input_tensor_by_name(request, self.input).as_numpy()
        (result,) = self.session.run([self.output], {self.input: feed})
        return triton.InferenceResponse([triton.Tensor(self.output, result)])
