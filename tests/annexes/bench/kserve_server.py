"""A real KServe server with one model, ``twice``: kserve_server.py PORT."""

import os
import sys
from typing import Any

os.environ["KSERVE_LOGLEVEL"] = "WARNING"

import uvicorn
from kserve import InferOutput, InferRequest, InferResponse, Model, ModelServer


class LocalConfig(uvicorn.Config):
    """Listens on this machine alone, where KServe would listen to all."""

    def __init__(self, app: Any, **settings: Any) -> None:
        super().__init__(app, **settings | {"host": "127.0.0.1"})


class Twice(Model):
    """Its output is twice its input."""

    def __init__(self) -> None:
        super().__init__("twice")
        self.ready = True

    def predict(self, payload: InferRequest, *_: object) -> InferResponse:
        """Answer in the form that was asked for."""
        doubled = 2 * payload.inputs[0].as_numpy()
        output = InferOutput("y", list(doubled.shape), "FP32")
        output.set_data_from_numpy(doubled, binary_data=payload.use_binary_outputs)
        return InferResponse(
            payload.id or "any", "twice", [output], use_binary_outputs=payload.use_binary_outputs
        )


uvicorn.Config = LocalConfig  # type: ignore[misc]
ModelServer(http_port=int(sys.argv[1]), enable_grpc=False).start([Twice()])
