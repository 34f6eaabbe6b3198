"""What the server tells of itself: its OpenAPI document, and a page to try it in, without internet.

Both are made when somebody asks: the start of a server waits for nothing of this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib.resources import files
from itertools import islice
from types import MappingProxyType

from workbench.codecs import v2_json
from workbench.core import ServerCore
from workbench.errors import WorkbenchError
from workbench.http.calls import Call
from workbench.http.reply import Reply, json_reply
from workbench.model import ModelMetadata, ModelState

ASSETS: Mapping[str, bytes] = MappingProxyType(
    {
        "swagger-ui-bundle.js": b"text/javascript; charset=utf-8",
        "swagger-ui.css": b"text/css; charset=utf-8",
        "favicon-32x32.png": b"image/png",
    }
)
"""The files of Swagger UI that the page needs, by name, and their types."""

_PAGE = (
    (b"content-type", b"text/html; charset=utf-8"),
    # the browser itself sees to it that nothing comes from, or goes to, another host, and that
    # no page of another site shows this one in a frame and has its buttons clicked
    (
        b"content-security-policy",
        b"default-src 'self' 'unsafe-inline'; img-src 'self' data:; frame-ancestors 'self'",
    ),
)
_BY_ACCEPT = (b"vary", b"accept")
_KEPT = (b"cache-control", b"max-age=86400")  # they change with an installation
_LOOKED_AT = 20  # models whose files may be read to find one for the examples


def schema(core: ServerCore, call: Call) -> Reply:
    """The page for whoever takes HTML, as browsers do, and the document for others."""
    reply = page(core, call) if b"text/html" in call.accept else document(core, call)
    return Reply(reply.status, (*reply.headers, _BY_ACCEPT), reply.parts)


def page(core: ServerCore, call: Call) -> Reply:
    """The page, which finds its document by its own address."""
    return Reply(200, _PAGE, (files("workbench.http").joinpath("page.html").read_bytes(),))


def document(core: ServerCore, call: Call) -> Reply:
    """The document of the server; its examples fit one of its models."""
    from workbench.http import openapi

    shown = next((model for model in _models(core) if openapi.is_showable(model.signature)), None)
    return json_reply(v2_json.write(openapi.document(shown)))


def asset(name: str) -> Callable[[ServerCore, Call], Reply]:
    """What answers with the page's own file of that *name*."""
    headers = ((b"content-type", ASSETS[name]), _KEPT)

    def answer(core: ServerCore, call: Call) -> Reply:
        from swagger_ui_bundle import swagger_ui_path

        return Reply(200, headers, ((swagger_ui_path / name).read_bytes(),))

    return answer


def model_page(core: ServerCore, call: Call) -> Reply:
    """The page of a model. Raises ``ModelNotFound``, ``VersionNotFound``, ``LoadFailed``."""
    core.resolve(call.target.name, call.target.version)
    return page(core, call)


def model_document(core: ServerCore, call: Call) -> Reply:
    """The document of a model, or of one of its versions. Raises as ``model_page`` does."""
    from workbench.http import openapi

    name, version = call.target.name, call.target.version
    described = openapi.document_of_model(core.metadata(name, version), version)
    return json_reply(v2_json.write(described))


def _models(core: ServerCore) -> Iterator[ModelMetadata]:
    """What some models take and give, those in memory first; broken ones are left out."""
    try:
        names = core.names()
    except WorkbenchError:  # the folder is gone; what is served is the same
        names = ()
    here = [model.id.name for model in core.snapshot().models if model.state is ModelState.READY]
    for name in islice(dict.fromkeys((*here, *names)), _LOOKED_AT):
        try:
            yield core.metadata(name)
        except WorkbenchError:
            continue
