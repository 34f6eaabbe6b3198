"""Triton's "Model Repository Extension": which models there are, loading and unloading."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import replace

from workbench.codecs import v2_json
from workbench.contracts.triton import repository as triton
from workbench.core import ServerCore
from workbench.errors import InvalidRequest, ModelNotFound, NotSupported
from workbench.http import v2
from workbench.http.calls import HttpCall
from workbench.http.route import Group, PathParameter, Route, RunsOn


def _index(core: ServerCore, call: HttpCall) -> list[Mapping[str, str]]:
    """The index has all models, also if a repository is named, as in Triton."""
    ready = call.message("ready").get("ready", False)
    if not isinstance(ready, bool):
        raise InvalidRequest(f"'ready' must be true or false, not {v2_json.shown(ready)}")
    return triton.index(core, ready=ready)


def _refuse_repository(parameters: Mapping[str, str]) -> None:
    raise NotSupported("no repository can be named: ask /v2/repository/models/...")


def _parameters(call: HttpCall) -> Iterator[tuple[str, object]]:
    """The parameters, read only once the load or unload is known to be allowed."""
    parameters = call.message("parameters").get("parameters")
    if parameters is None:
        return
    if not isinstance(parameters, dict):
        raise InvalidRequest("'parameters' is not a JSON object")
    yield from parameters.items()


def _load_parameters(call: HttpCall) -> Iterator[tuple[str, object]]:
    """The parameters of a load, likewise; files are base64 in JSON."""
    for name, value in _parameters(call):
        if name.startswith("file:"):
            if not isinstance(value, str):
                told = v2_json.shown(value)
                raise InvalidRequest(f"load parameter {name!r} must be text, not {told}")
            try:
                yield name, base64.b64decode(value, validate=True)
            except ValueError as error:
                raise InvalidRequest(f"load parameter {name!r} is not base64: {error}") from None
        else:
            yield name, value


_MODEL = "/v2/repository[/{other_repository}]/models/{model_name}"
# as in Triton the name of a repository has no slash; one called "models" cannot be named
_NAMED = PathParameter(rb"(?!models/)[^/]+", "repository", ModelNotFound, literal=True)

REPOSITORY = Group(
    "Repository",
    (
        Route("POST /v2/repository[/{repository}]/index", _index, "index",
            "Which versions there are, in which state", "index", (*v2.BODY, 500, 503),
            "[index_request]"),
        Route(f"POST {_MODEL}/load",
            lambda core, call: triton.load(core, call.name, _load_parameters(call)), "load",
            "Load all served versions of a model", "", (*v2.BODY, 404, 503, 507),
            "[load_request]", RunsOn.WAITING_THREAD),
        Route(f"POST {_MODEL}/unload",
            lambda core, call: triton.unload(core, call.name, _parameters(call)), "unload",
            "Unload all versions, if any is loaded", "", (*v2.BODY, 404, 503), "[unload_request]",
            RunsOn.WAITING_THREAD),
    ),
    v2.ERRORS,
    restrict="model-repository",
    parameters={
        **v2.PARAMETERS,
        "repository": _NAMED,
        "other_repository": replace(_NAMED, check=_refuse_repository),
    },
)  # fmt: skip
