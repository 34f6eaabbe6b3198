"""KServe's Python server with a model of one's own: ``serve_kserve.py MODELS PORT [GRPC_PORT]``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

os.environ["KSERVE_LOGLEVEL"] = "WARNING"  # it logs every request otherwise

import onnxruntime
import uvicorn
from grpc import aio
from kserve import InferOutput, InferRequest, InferResponse, Model, ModelServer
from kserve.utils.numpy_codec import from_np_dtype
from kserve.utils.utils import generate_uuid


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
        """Run the inputs, answer the outputs that are asked for, by the model's names for them."""
        feeds = {entry.name: entry.as_numpy() for entry in payload.inputs}
        names = [output.name for output in payload.request_outputs or self.session.get_outputs()]
        outputs = []
        for name, array in zip(names, self.session.run(names, feeds), strict=True):
            output = InferOutput(name, list(array.shape), from_np_dtype(array.dtype))
            output.set_data_from_numpy(array, binary_data=payload.use_binary_outputs)
            outputs.append(output)
        return InferResponse(
            payload.id or generate_uuid(),
            self.name,
            outputs,
            use_binary_outputs=payload.use_binary_outputs,
            requested_outputs=payload.request_outputs,
        )


class LocalConfig(uvicorn.Config):
    """Listens on this machine alone, where KServe would listen to all, and logs no requests."""

    def __init__(self, app: Any, **settings: Any) -> None:
        super().__init__(app, **settings | {"host": "127.0.0.1", "access_log": False})


uvicorn.Config = LocalConfig
make_server = aio.server


def make_local_server(*args: Any, **settings: Any) -> Any:
    """A server over gRPC that listens on this machine alone."""
    server = make_server(*args, **settings)
    bind = server.add_insecure_port
    server.add_insecure_port = lambda address: bind(address.replace("[::]", "127.0.0.1"))
    return server


aio.server = make_local_server
folder, port, *grpc_port = sys.argv[1:]
ModelServer(
    http_port=int(port),
    grpc_port=int(grpc_port[0]) if grpc_port else 0,
    enable_grpc=bool(grpc_port),
    enable_latency_logging=False,
).start([Onnx(path) for path in Path(folder).glob("*/model.onnx")])
