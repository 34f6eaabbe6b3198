"""The OpenAPI document of a server, or of one of its models.

Version 3.0.3, which every tool reads; the page that shows it knows no later one.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from workbench.http.openapi import examples
from workbench.http.openapi.components import BODIES, PARAMETERS, RESPONSES, body, infer_body
from workbench.http.openapi.operations import OPERATIONS, paths
from workbench.http.openapi.schemas import SCHEMAS, Json, ref
from workbench.model import ModelMetadata, Signature
from workbench.version import __version__

_PREFIX = "/v2/models/{model_name}"
_ABOUT = """\
The V2 / Open Inference Protocol with Triton's extensions. The whole server is at `/schema`, \
a model with its own tensors at `/v2/models/NAME/docs`.

Names may hold slashes, as they are or as `%2F`. Bodies may come in gzip or deflate \
(`Content-Encoding`), whatever their `Content-Type`; answers to inferences go out so \
(`Accept-Encoding`). An `X-Request-Id` comes back. HEAD is answered where GET is; another method \
is 405, another path 404. Every error is `{"error": "one line"}`.\
"""


def document(shown: ModelMetadata | None) -> Json:
    """All that is served; the examples are requests to the model *shown*, if there is one."""
    name = shown.name if shown else "my_model"
    version = shown.versions[-1] if shown else 1
    parameters = {
        **PARAMETERS,
        "model_name": {
            "name": "model_name",
            "in": "path",
            "required": True,
            "schema": {"type": "string", "minLength": 1},
            "example": name,
        },
        "model_version": {**PARAMETERS["model_version"], "example": version},
    }
    signature = shown.signature if shown else None
    bodies = _bodies(ref("infer_request"), ref("generate_request"), signature)
    return _whole("workbench", paths(), bodies, parameters)


def document_of_model(model: ModelMetadata, version: int | None) -> Json:
    """What is served of one *model*, or of a *version* of it: its own paths, inputs and outputs."""
    prefix = _PREFIX if version is None else f"{_PREFIX}/versions/{{model_version}}"
    own = f"/v2/models/{quote(model.name, safe='')}"
    own += "" if version is None else f"/versions/{version}"
    found: Json = {}
    for path, item in paths().items():
        rest = path.removeprefix(prefix)
        if rest != path and not rest.startswith("/versions/"):
            found[own + rest] = {key: told for key, told in item.items() if key != "parameters"}
    signature = model.signature
    schemas = examples.infer_schema(signature), examples.generate_schema(signature)
    title = model.name if version is None else f"{model.name}, version {version}"
    return _whole(title, found, _bodies(*schemas, signature), PARAMETERS)


def _bodies(infer: Json, generate: Json, shown: Signature | None) -> Json:
    """The bodies of these schemas, with requests to the model *shown* as examples."""
    if shown is None or not examples.is_showable(shown):
        return {"infer": infer_body(infer, None), "generate": body(generate, None)}
    return {
        "infer": infer_body(infer, examples.infer_example(shown)),
        "generate": body(generate, examples.generate_example(shown)),
    }


def _whole(title: str, found: Json, bodies: Json, parameters: Json) -> Json:
    used = {tag for item in found.values() for told in item.values() for tag in _tags(told)}
    return {
        "openapi": "3.0.3",
        "info": {"title": title, "version": __version__, "description": _ABOUT},
        "tags": [{"name": tag} for tag in OPERATIONS if tag in used],
        "paths": found,
        "components": {
            "schemas": SCHEMAS,
            "responses": RESPONSES,
            "requestBodies": {**BODIES, **bodies},
            "parameters": parameters,
        },
    }


def _tags(told: object) -> list[str]:
    return told["tags"] if isinstance(told, Mapping) else []
