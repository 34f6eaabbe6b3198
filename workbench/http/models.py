"""The list of models and their metadata: V2's "Model Metadata" and "Model Ready".

Beside them KServe's list of models, and Triton's "Model Configuration Extension".
"""

from __future__ import annotations

from workbench.contracts.triton.metadata import model_config, model_metadata
from workbench.core import ServerCore
from workbench.http import v2
from workbench.http.calls import HttpCall
from workbench.http.route import Group, Route
from workbench.http.shapes import Schema


def _ready(core: ServerCore, call: HttpCall) -> Schema:
    core.status.check_ready(call.name, call.version)
    return {"name": call.name, "ready": True}


MODELS = Group(
    "Models",
    (
        Route("GET /v2/models", lambda core, _: {"models": core.status.names()}, "models",
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
    unmatched=v2.NO_MODEL,
)  # fmt: skip
