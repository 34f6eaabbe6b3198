"""Which models there are, and what they are: V2's "Model Metadata" and "Model Ready".

Beside them KServe's list of models, and Triton's "Model Configuration Extension".
"""

from __future__ import annotations

from workbench.contracts.triton.metadata import model_config, model_metadata
from workbench.core import ServerCore
from workbench.http import v2
from workbench.http.calls import HttpCall
from workbench.http.route import Group, Route
from workbench.http.shapes import COUNT, DIM, FLAG, TEXT, Json, answer, listed, obj, one_of, ref
from workbench.tensor import DATATYPES


def _ready(core: ServerCore, call: HttpCall) -> Json:
    core.check_ready(call.name, call.version)
    return {"name": call.name, "ready": True}


_SCHEMAS: Json = {
    "datatype": {"type": "string", "enum": [*DATATYPES], "example": "FP32"},
    "model_names": obj({"models": listed(TEXT)}),
    "model": obj(
        {
            "name": TEXT,
            "versions": listed({**TEXT, "example": "1"}),
            "platform": {**TEXT, "example": "onnxruntime_onnx"},
            "inputs": listed(ref("tensor_metadata")),
            "outputs": listed(ref("tensor_metadata")),
        }
    ),
    "tensor_metadata": obj(
        {
            "name": TEXT,
            "datatype": ref("datatype"),
            "shape": {**listed(DIM), "description": "-1 where any size goes."},
        }
    ),
    "model_ready": obj({"name": TEXT, "ready": one_of(True)}),
    "model_config": obj(
        {
            "name": TEXT,
            "platform": TEXT,
            "backend": TEXT,
            "version_policy": {"type": "object"},
            "max_batch_size": COUNT,
            "input": listed(ref("tensor_config")),
            "output": listed(ref("tensor_config")),
            "instance_group": listed({"type": "object"}),
            "default_model_filename": TEXT,
            "parameters": {"type": "object", "additionalProperties": obj({"string_value": TEXT})},
            "model_transaction_policy": obj({"decoupled": FLAG}),
        }
    ),
    "tensor_config": obj(
        {
            "name": TEXT,
            "data_type": {**TEXT, "pattern": "^TYPE_", "example": "TYPE_FP32"},
            "dims": {**listed(DIM), "description": "Without the batch, where it has one."},
        },
        {
            "format": one_of("FORMAT_NONE", "FORMAT_NHWC", "FORMAT_NCHW"),
            "optional": FLAG,
            "label_filename": TEXT,
        },
    ),
}

MODELS = Group(
    "Models",
    (
        Route("GET /v2/models", lambda core, _: {"models": core.names()}, "models",
            "The names of all models", "model_names", (500, 503)),
        Route(f"GET {v2.MODEL}", lambda core, call: model_metadata(core, call.name, call.version),
            "model", "What a model takes and gives", "model",
            v2.READS),
        Route(f"GET {v2.MODEL}/ready", _ready, "model_ready", "Whether it would answer",
            "model_ready", (404, 503)),
        Route(f"GET {v2.MODEL}/config",
            lambda core, call: model_config(core, call.name, call.version), "config",
            "How it is configured", "model_config", v2.READS),
    ),
    v2.MODEL_ERRORS,
    parameters=v2.PARAMETERS,
    responses={
        "model_names": answer("The names, loaded or not.", ref("model_names")),
        "model": answer("Versions, platform, inputs and outputs.", ref("model")),
        "model_ready": answer("The model would answer.", ref("model_ready")),
        "model_config": answer("The configuration, defaults included.", ref("model_config")),
    },
    schemas=_SCHEMAS,
    unmatched=v2.NO_MODEL,
)  # fmt: skip
