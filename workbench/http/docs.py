"""The server's OpenAPI document, and a page to try it, without internet.

Both are made at their first request, so that the server starts sooner.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from importlib.resources import files
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple

from workbench.core import ServerCore
from workbench.errors import WorkbenchError
from workbench.http import v2
from workbench.http.access import joined
from workbench.http.calls import HttpCall
from workbench.http.reply import BY_ACCEPT, Reply, html_reply
from workbench.http.route import Group, Route
from workbench.http.shapes import JSON
from workbench.model import ModelMetadata, ModelState

ASSETS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "swagger-ui-bundle.js": ("script", "text/javascript; charset=utf-8"),
        "swagger-ui.css": ("style", "text/css; charset=utf-8"),
        "favicon-32x32.png": ("icon", "image/png"),
    }
)
"""The files of Swagger UI that the page needs, by name: what they are, and their types."""

_KEPT = (b"cache-control", b"max-age=86400")  # they change only with a new installation
_LOOKED_AT = 20  # how many models' files may be read to find one for the examples


class _Served(NamedTuple):
    """The models of *core*, and the *groups* of routes that are documented."""

    core: ServerCore
    groups: tuple[Group, ...]


def _schema(served: _Served, call: HttpCall) -> Reply:
    """The page for clients that prefer HTML, as browsers do, and the document for others."""
    reply = (
        _page(served, call)
        if b"text/html" in joined(call.headers, b"accept")
        else _document(served, call)
    )
    return Reply(reply.status, (*reply.headers, BY_ACCEPT), reply.parts)


def _page(served: _Served, call: HttpCall) -> Reply:
    """The page, which finds its document by its own address."""
    return html_reply(files("workbench.http").joinpath("page.html").read_bytes())


def _document(served: _Served, call: HttpCall) -> Reply:
    """The document of the server; its examples fit one of its models."""
    from workbench.http.openapi.document import document
    from workbench.http.openapi.examples import is_showable

    models = _models(served.core)
    shown = next((model for model in models if is_showable(model.signature)), None)
    return v2.json(document(served.groups, shown))


def _asset(name: str, media: str, served: _Served, call: HttpCall) -> Reply:
    from swagger_ui_bundle import swagger_ui_path

    headers = ((b"content-type", media.encode()), _KEPT)
    return Reply(200, headers, ((swagger_ui_path / name).read_bytes(),))


def _model_page(served: _Served, call: HttpCall) -> Reply:
    """The page of a model. Raises ``ModelNotFound``, ``VersionNotFound``, ``LoadFailed``."""
    served.core.status.resolve(call.name, call.version)
    return _page(served, call)


def _model_document(served: _Served, call: HttpCall) -> Reply:
    """The document of a model, or of one of its versions. Raises as ``_model_page`` does."""
    from workbench.http.openapi.document import document_of_model

    name, version = call.name, call.version
    model = served.core.status.metadata(name, version)
    return v2.json(document_of_model(served.groups, model, version))


def _models(core: ServerCore) -> Iterator[ModelMetadata]:
    """Inputs and outputs of some models, those in memory first; broken ones are left out."""
    here = [
        model.id.name for model in core.status.snapshot().models if model.state is ModelState.READY
    ]
    for name in islice(dict.fromkeys((*here, *core.status.names())), _LOOKED_AT):
        try:
            yield core.status.metadata(name)
        except WorkbenchError:
            continue


_DOCUMENTATION = Group(
    "Documentation",
    (
        Route("GET /schema", _schema, "schema", "This page, or its document", f"text/html, {JSON}",
            v2.STOPS),
        Route("GET /schema/swagger", _page, "schema_page", "This page", "text/html", v2.STOPS),
        Route("GET /schema/openapi.json", _document, "schema_document", "Its document", JSON,
            v2.STOPS),
        *(Route(f"GET /schema/assets/{name}", partial(_asset, name, media), what, f"Its {what}",
            media.partition(";")[0], v2.STOPS) for name, (what, media) in ASSETS.items()),
        # as MLServer has them
        Route("GET /v2/docs", _page, "docs", "This page", "text/html", v2.STOPS),
        Route("GET /v2/docs/dataplane.json", _document, "docs_document", "Its document", JSON,
            v2.STOPS),
        Route(f"GET {v2.MODEL}/docs", _model_page, "model_docs", "The page of a model",
            "text/html", v2.READS),
        Route(f"GET {v2.MODEL}/docs/dataplane.json", _model_document, "model_document",
            "Its document", JSON, v2.READS),
    ),
    v2.ERRORS,
    parameters=v2.PARAMETERS,
    unmatched=v2.NO_MODEL,
)  # fmt: skip


def documentation(others: tuple[Group, ...]) -> Group:
    """The group of the documentation, which describes *others* and itself."""
    groups = (*others, _DOCUMENTATION)
    return replace(_DOCUMENTATION, service=lambda plane: _Served(plane.core, groups))
