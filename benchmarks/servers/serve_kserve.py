"""KServe's Python server with a model of one's own: ``python serve_kserve.py MODELS PORT``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

os.environ["KSERVE_LOGLEVEL"] = "WARNING"  # it logs every request otherwise

import onnxruntime
import uvicorn
from kserve import InferRequest, InferResponse, Model, ModelServer
from kserve.utils.utils import get_predict_response


class Onnx(Model):
    """One ONNX file."""

    def __init__(self, path: Path) -> None:
        super().__init__(path.parent.name)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )
        self.ready = True

    def predict(self, payload: InferRequest, *_: object) -> InferResponse:
        """Run the one input, answer the one output."""
        feeds = {entry.name: entry.as_numpy() for entry in payload.inputs}
        (result,) = self.session.run(None, feeds)
        return get_predict_response(payload, result, self.name)


class LocalConfig(uvicorn.Config):
    """Listens on this machine alone, where KServe would listen to all, and logs no requests."""

    def __init__(self, app: Any, **settings: Any) -> None:
        super().__init__(app, **settings | {"host": "127.0.0.1", "access_log": False})


uvicorn.Config = LocalConfig
folder, port = sys.argv[1:]
ModelServer(http_port=int(port), enable_grpc=False, enable_latency_logging=False).start(
    [Onnx(path) for path in Path(folder).glob("*/model.onnx")]
)
