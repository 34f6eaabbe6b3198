"""Triton's "Model Configuration Extension" over HTTP."""

from __future__ import annotations

from workbench.codecs import v2_json
from workbench.codecs.model_config import describe
from workbench.core import ServerCore
from workbench.http.calls import Call
from workbench.http.reply import Reply, json_reply


def model_config(core: ServerCore, call: Call) -> Reply:
    """The configuration that is in force, defaults and what the file says included."""
    name, version = call.target.name, call.target.version
    source, signature = core.source(name, version), core.signature(name, version)
    return json_reply(v2_json.write(describe(source, signature, core.gpu(source.id))))
