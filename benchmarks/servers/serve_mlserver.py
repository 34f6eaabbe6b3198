"""MLServer, the model in the server's process: ``python serve_mlserver.py MODELS PORT ...``."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import onnxruntime
from mlserver import MLModel, MLServer, ModelSettings, Settings
from mlserver.codecs import NumpyCodec
from mlserver.settings import ModelParameters
from mlserver.types import InferenceRequest, InferenceResponse
from mlserver.utils import install_uvloop_event_loop


class Onnx(MLModel):
    """One ONNX file."""

    async def load(self) -> bool:
        """Open the file of this model."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(
            self.settings.parameters.uri, options, providers=["CPUExecutionProvider"]
        )
        self.output_names = [output.name for output in self.session.get_outputs()]
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Run all inputs, answer the chosen outputs."""
        feeds = {entry.name: self.decode(entry, NumpyCodec) for entry in payload.inputs}
        names = [output.name for output in payload.outputs or ()] or self.output_names
        results = zip(names, self.session.run(names, feeds), strict=True)
        outputs = [NumpyCodec.encode_output(*each) for each in results]
        return InferenceResponse(model_name=self.name, id=payload.id, outputs=outputs)


def serve(models: Path, port: int, grpc_port: int, metrics_port: int) -> None:
    """Serve all models of the folder, until killed."""
    settings = Settings(
        debug=False,
        host="127.0.0.1",
        http_port=port,
        grpc_port=grpc_port,
        metrics_port=metrics_port,
        parallel_workers=0,
    )
    served = [
        ModelSettings(
            name=path.parent.name, implementation=Onnx, parameters=ModelParameters(uri=str(path))
        )
        for path in models.glob("*/model.onnx")
    ]
    install_uvloop_event_loop()
    asyncio.run(start(settings, served))


async def start(settings: Settings, models: list[ModelSettings]) -> None:
    """As its command line does."""
    await MLServer(settings).start(models)


folder, *ports = sys.argv[1:]
serve(Path(folder), *map(int, ports))
