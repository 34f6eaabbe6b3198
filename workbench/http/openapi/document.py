"""The OpenAPI document of a server, or of one of its models, made from the groups of routes.

Version 3.0.3, which every tool reads; the page that shows it knows no later one. Left out, since it
is the same for every path: 405 for other methods, HEAD where there is GET.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from http import HTTPStatus

from workbench.http.openapi.examples import generate_example, infer_example, is_showable
from workbench.http.openapi.schemas import SCHEMAS
from workbench.http.route import Group, Route
from workbench.http.shapes import COUNT, EVENT_STREAM, JSON, OCTETS, Schema, ref
from workbench.model import ModelMetadata
from workbench.version import __version__

_MODEL, _VERSION = "/v2/models/{model_name}", "/versions/{model_version}"
_ABOUT = """\
The V2 / Open Inference Protocol with Triton's extensions. The whole server is at `/schema`, \
a model with its own example at `/v2/models/NAME/docs`.

Names may hold slashes, as they are or as `%2F`. Bodies may come in gzip or deflate \
(`Content-Encoding`), whatever their `Content-Type`; answers to inferences go out so \
(`Accept-Encoding`). An `X-Request-Id` comes back. HEAD is answered where GET is; another method \
is 405, another path 404. Every error is `{"error": "one line"}`.\
"""
_HEADER_LENGTH: Schema = {
    "name": "Inference-Header-Content-Length",
    "in": "header",
    "description": "The length of the JSON before binary tensors, in bytes; 0 where the "
    "body is the data of the model's only input. Without it, all of the body is JSON.",
    "schema": COUNT,
}


def document(groups: Sequence[Group], shown: ModelMetadata | None) -> Schema:
    """The document of *groups*; its examples are requests to the model *shown*, if there is one."""
    return _document("workbench", groups, shown, [*_operations(groups)])


def document_of_model(groups: Sequence[Group], model: ModelMetadata, version: int | None) -> Schema:
    """The part that is about a *model*, or a *version* of it, with examples for it."""
    of_models = (each for each in _operations(groups) if each[0].startswith(_MODEL))
    found = [each for each in of_models if (_VERSION in each[0]) == (version is not None)]
    title = model.name if version is None else f"{model.name}, version {version}"
    whole = _document(title, groups, model, found)
    parameters = whole["components"]["parameters"]
    parameters["model_name"]["schema"] = {"type": "string", "enum": [model.name]}
    if version is not None:
        parameters["model_version"]["example"] = version
    return whole


def contents(told: str) -> Schema:
    """The bodies that *told*, of a route, names: media types, and objects of JSON."""
    names = told.strip("[]").split(", ") if told else []
    return {JSON if "/" not in name else name: {"schema": _schema(name)} for name in names}


def _schema(name: str) -> Schema:
    if "/" in name:
        return {"type": "string", "format": "binary"} if name == OCTETS else {}
    return ref(name)


def _document(
    title: str,
    groups: Sequence[Group],
    shown: ModelMetadata | None,
    operations: Sequence[tuple[str, Group, Route]],
) -> Schema:
    paths: Schema = {}
    for path, group, route in operations:
        names = re.findall(r"{(\w+)}", path)
        item = paths.setdefault(path, {"parameters": [*map(_parameter, names)]} if names else {})
        item[route.method.lower()] = _operation(group, route, path)
    told = {name: each for group in groups for name, each in group.parameters.items()}
    parameters = {
        name: {"name": name, "in": "path", "required": True, "schema": each.schema,
            "example": each.example}
        for name, each in told.items()
        if each.schema is not None
    }  # fmt: skip
    schemas = SCHEMAS | {name: told for group in groups for name, told in group.schemas.items()}
    if shown is not None:
        parameters["model_name"]["example"] = shown.name
        parameters["model_version"]["example"] = shown.versions[-1]
        for name, example in _examples(shown).items():
            schemas[name] = schemas[name] | {"example": example}
    return {
        "openapi": "3.0.3",
        "info": {"title": title, "version": __version__, "description": _ABOUT},
        "tags": [{"name": name} for name in dict.fromkeys(each[1].title for each in operations)],
        "paths": paths,
        "components": {"schemas": schemas, "parameters": parameters},
    }


def _examples(shown: ModelMetadata) -> Schema:
    """Requests to the model *shown*, by the names of their schemas."""
    if not is_showable(shown.signature):
        return {}
    told = {"infer_request": infer_example(shown.signature)}
    generated = generate_example(shown.signature)
    return told if generated is None else {**told, "generate_request": generated}


def _operations(groups: Sequence[Group]) -> Iterator[tuple[str, Group, Route]]:
    """Each route under its paths: without the part in brackets, and with it if it is told."""
    for group in groups:
        for route in group.routes:
            yield re.sub(r"\[.*?\]", "", route.path), group, route
            optional = re.findall(r"\[.*?{(\w+)}\]", route.path)
            if optional and all(group.parameters[name].schema for name in optional):
                yield re.sub(r"[\[\]]", "", route.path), group, route


def _parameter(name: str) -> Schema:
    return {"$ref": f"#/components/parameters/{name}"}


def _operation(group: Group, route: Route, path: str) -> Schema:
    given = contents(route.returns)
    error = {JSON: {"schema": ref(group.errors.schema)}}
    if EVENT_STREAM in given:  # where that of a model is an event
        error[EVENT_STREAM] = {"schema": {}}
    responses: Schema = {"200": {"description": "OK", **({"content": given} if given else {})}}
    for status in sorted({*route.errors}):
        responses[str(status)] = {"description": HTTPStatus(status).phrase, "content": error}
    operation: Schema = {
        "tags": [group.title],
        "operationId": f"{route.name}_version" if "{model_version}" in path else route.name,
        "summary": route.summary,
        "responses": responses,
    }
    taken = contents(route.body)
    if taken:
        operation["requestBody"] = {"required": route.body[0] != "[", "content": taken}
    if OCTETS in taken and JSON in taken:
        operation["parameters"] = [_HEADER_LENGTH]
    return operation
