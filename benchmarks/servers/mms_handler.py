"""What a worker of multi-model-server runs: one ONNX file, JSON arrays in and out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

_sessions: list[onnxruntime.InferenceSession] = []  # of this process, which has one model


def handle(data: list[dict[str, Any]] | None, context: Any) -> list[str] | None:
    """Load the model at the first call, which brings no data; then answer each request."""
    if not _sessions:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        file = Path(context.system_properties["model_dir"], "model.onnx")
        _sessions.append(onnxruntime.InferenceSession(file, options))
    if data is None:
        return None
    context.set_response_content_type(0, "application/json")
    (session,) = _sessions
    answers = []
    for request in data:
        x = np.array(json.loads(request["body"]), np.float32)
        (y,) = session.run(None, {"x": x})
        answers.append(json.dumps(y.tolist()))
    return answers
