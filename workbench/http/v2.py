"""What the V2 / Open Inference Protocol tells of a server and of its models, over HTTP."""

from __future__ import annotations

from collections.abc import Mapping

from workbench.codecs import v2_json
from workbench.core import ServerCore
from workbench.http.calls import Call
from workbench.http.reply import Reply, json_reply
from workbench.model import ModelMetadata, TensorSpec
from workbench.version import __version__

SERVER_NAME = "workbench"
EXTENSIONS = (
    "binary_tensor_data",
    "classification",
    "parameters",
    "generate",
    "statistics",
    "model_configuration",
    "model_repository",
    "model_repository(unload_dependents)",
    "model_repository_extension",  # KServe's word for it
    "trace",
    "logging",
)


def live(core: ServerCore, call: Call) -> Reply:
    """Health, "Server Live": the process answers."""
    return _json({"live": True})


def ready(core: ServerCore, call: Call) -> Reply:
    """Health, "Server Ready": requests are accepted; an evicted model changes nothing."""
    if not core.is_open:
        return _json({"ready": False, "live": True, "error": "the server is not running"}, 503)
    return _json({"ready": True, "live": True})


def server_metadata(core: ServerCore, call: Call) -> Reply:
    """Server Metadata."""
    extensions = list(EXTENSIONS)
    if core.settings.shared_memory:
        extensions += ["system_shared_memory"]
        extensions += ["cuda_shared_memory"] if core.runs_on_gpus else []
    return _json({"name": SERVER_NAME, "version": __version__, "extensions": extensions})


def model_names(core: ServerCore, call: Call) -> Reply:
    """KServe's list of models, which the protocol itself lacks."""
    return _json({"models": core.names()})


def model_ready(core: ServerCore, call: Call) -> Reply:
    """Health, "Model Ready"."""
    target = call.target
    core.check_ready(target.name, target.version)
    return _json({"name": target.name, "ready": True})


def model_metadata(core: ServerCore, call: Call) -> Reply:
    """Model Metadata."""
    return _json(_described(core.metadata(call.target.name, call.target.version)))


def _described(metadata: ModelMetadata) -> Mapping[str, object]:
    return {
        "name": metadata.name,
        "versions": [str(version) for version in metadata.versions],
        "platform": metadata.signature.platform,
        "inputs": [_spec(spec) for spec in metadata.signature.inputs.values()],
        "outputs": [_spec(spec) for spec in metadata.signature.outputs.values()],
    }


def _spec(spec: TensorSpec) -> Mapping[str, object]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": spec.shape}


def _json(value: object, status: int = 200) -> Reply:
    return json_reply(v2_json.write(value), status)
