"""The OpenAPI document of a server, or of one of its models, made from the groups of routes.

Version 3.0.3, which every tool reads; the page that shows it knows no later one. Left out, since it
is the same for every path: 405 for other methods, HEAD where there is GET.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from urllib.parse import quote

from workbench.http.openapi import examples
from workbench.http.route import Group, PathParameter, Route
from workbench.http.shapes import COUNT, Json, answer, body, infer_body, ref
from workbench.model import ModelMetadata, Signature
from workbench.version import __version__

_PREFIX = "/v2/models/{model_name}"
_VERSION = "/versions/{model_version}"
_ABOUT = """\
The V2 / Open Inference Protocol with Triton's extensions. The whole server is at `/schema`, \
a model with its own tensors at `/v2/models/NAME/docs`.

Names may hold slashes, as they are or as `%2F`. Bodies may come in gzip or deflate \
(`Content-Encoding`), whatever their `Content-Type`; answers to inferences go out so \
(`Accept-Encoding`). An `X-Request-Id` comes back. HEAD is answered where GET is; another method \
is 405, another path 404. Every error is `{"error": "one line"}`.\
"""
_ERRORS = {
    400: "The request cannot be understood or does not fit the model, or the model is broken.",
    404: "There is no such model, version or region.",
    413: "The body is larger than the setting max_request.",
    500: "The model failed while it ran, or the repository's folder is gone.",
    501: "The server knows this request but does not support it.",
    503: "The model is not loaded, or the server is stopping.",
    507: "There is no room for the model, and none can be made.",
}
"""By status; others have the phrase of HTTP."""

_HEADER_LENGTH: Json = {
    "name": "Inference-Header-Content-Length",
    "in": "header",
    "description": "The length of the JSON before binary tensors, in bytes; 0 where the "
    "body is the data of the model's only input. Without it, all of the body is JSON.",
    "schema": COUNT,
}


def document(shown: ModelMetadata | None, groups: Sequence[Group]) -> Json:
    """The document of *groups*; the examples are requests to the model *shown*, if there is one."""
    found: Json = {}
    for path, group, route in _operations(groups):
        item = found.setdefault(path, _item(path))
        item[route.method.lower()] = _operation(group, route, path)
    parts = _components(groups)
    if shown is not None:
        parts["parameters"]["model_name"]["example"] = shown.name
        parts["parameters"]["model_version"]["example"] = shown.versions[-1]
        parts["requestBodies"].update(_examples(shown.signature))
    return _whole("workbench", [group.title for group in groups], found, parts)


def document_of_model(model: ModelMetadata, version: int | None, groups: Sequence[Group]) -> Json:
    """The paths of *groups* for one *model*, or a *version* of it, with its inputs and outputs."""
    prefix = _PREFIX if version is None else _PREFIX + _VERSION
    own = f"/v2/models/{quote(model.name, safe='')}"
    own += "" if version is None else f"/versions/{version}"
    found: Json = {}
    titles: dict[str, None] = {}
    for path, group, route in _operations(groups):
        rest = path.removeprefix(prefix)
        if rest != path and not rest.startswith("/versions/"):
            operation = _operation(group, route, path)
            found.setdefault(own + rest, {})[route.method.lower()] = operation
            titles[group.title] = None
    parts = _components(groups)
    del parts["parameters"]["model_name"], parts["parameters"]["model_version"]["example"]
    signature = model.signature
    parts["requestBodies"]["infer"] = infer_body(examples.infer_schema(signature), None)
    parts["requestBodies"]["generate"] = body(examples.generate_schema(signature), None)
    title = model.name if version is None else f"{model.name}, version {version}"
    for name, told in _examples(signature).items():
        content = parts["requestBodies"][name]["content"]["application/json"]
        content["example"] = told["content"]["application/json"]["example"]
    return _whole(title, [*titles], found, parts)


def _examples(shown: Signature) -> Json:
    """The bodies of inferences, with requests to the model *shown* as examples."""
    if not examples.is_showable(shown):
        return {}
    told = {"infer": infer_body(ref("infer_request"), examples.infer_example(shown))}
    generate = examples.generate_example(shown)
    if generate is not None:
        told["generate"] = body(ref("generate_request"), generate)
    return told


def _operations(groups: Sequence[Group]) -> Iterator[tuple[str, Group, Route]]:
    for group in groups:
        for route in group.routes:
            yield from ((path, group, route) for path in _paths(route, group))


def _paths(route: Route, group: Group) -> Iterator[str]:
    """The paths of *route*: without the part in brackets, and with it if the document has it."""
    yield re.sub(r"\[.*?\]", "", route.path)
    optional = re.findall(r"\[.*?{(\w+)}\]", route.path)
    if optional and all(group.parameters[name].schema for name in optional):
        yield re.sub(r"[\[\]]", "", route.path)


def _item(path: str) -> Json:
    parameters = [_named("parameters", name) for name in re.findall(r"{(\w+)}", path)]
    return {"parameters": parameters} if parameters else {}


def _operation(group: Group, route: Route, path: str) -> Json:
    is_version = _VERSION in path
    responses = {"200": _named("responses", route.returns)}
    for status in sorted({*route.errors}):
        responses[str(status)] = _named("responses", f"{group.errors.schema}_{status}")
    operation: Json = {
        "tags": [group.title],
        "operationId": f"{route.name}_version" if is_version else route.name,
        "summary": route.summary,
        "responses": responses,
    }
    if route.body:
        operation["requestBody"] = _named("requestBodies", route.body)
    if route.body == "infer":
        operation["parameters"] = [_named("parameters", "header_length")]
    return operation


def _components(groups: Sequence[Group]) -> Json:
    parts: Json = {"schemas": {}, "responses": {}, "requestBodies": {}, "parameters": {}}
    parts["parameters"]["header_length"] = _HEADER_LENGTH
    for group in groups:
        schema = group.errors.schema
        for status in {*_ERRORS, *(status for route in group.routes for status in route.errors)}:
            told = _ERRORS.get(status) or HTTPStatus(status).phrase
            parts["responses"].setdefault(f"{schema}_{status}", answer(told, ref(schema)))
        parts["schemas"].update(group.schemas)
        parts["responses"].update(group.responses)
        parts["requestBodies"].update(group.bodies)
        for name, parameter in group.parameters.items():
            if parameter.schema is not None:
                parts["parameters"][name] = _path_parameter(name, parameter)
    return parts


def _path_parameter(name: str, parameter: PathParameter) -> Json:
    told = {"name": name, "in": "path", "required": True, "schema": parameter.schema}
    return {**told, "example": parameter.example}


def _whole(title: str, sections: Sequence[str], found: Json, parts: Json) -> Json:
    return {
        "openapi": "3.0.3",
        "info": {"title": title, "version": __version__, "description": _ABOUT},
        "tags": [{"name": section} for section in sections],
        "paths": found,
        "components": parts,
    }


def _named(kind: str, name: str) -> Json:
    return {"$ref": f"#/components/{kind}/{name}"}
