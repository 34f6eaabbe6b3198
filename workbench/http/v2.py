"""Helpers of V2's groups of routes: errors, parameters of paths, and statuses."""

from __future__ import annotations

from collections.abc import Mapping

from workbench.codecs import v2_json
from workbench.contracts.triton.words import told
from workbench.errors import ModelNotFound
from workbench.http.paths import read_version
from workbench.http.reply import Reply, json_reply
from workbench.http.route import ErrorEncoder, PathParameter
from workbench.http.shapes import TEXT, WHOLE
from workbench.http.status import error_reply, message_reply

MODEL = "/v2/models/{model_name}[/versions/{model_version}]"
NO_MODEL = "no request has this path: POST /v2/models/NAME/infer runs a model"


def _check_version(parameters: Mapping[str, str]) -> None:
    read_version(parameters["model_name"], parameters["model_version"])


PARAMETERS: Mapping[str, PathParameter] = {
    "model_name": PathParameter(
        b".+?", "model", ModelNotFound, {**TEXT, "minLength": 1}, example="my_model"
    ),
    "model_version": PathParameter(
        b"[^/]+",
        "version",
        ModelNotFound,
        {**WHOLE, "format": "int64", "minimum": 1},
        example=1,
        literal=True,
        check=_check_version,
    ),
}
"""Of the paths of models, whose names may hold slashes."""

STOPS = (503,)  # a request that comes while the server stops
BODY = (400, 413, 415, 501)  # wrong, too large, in an unknown coding, or asks for too much
READS = (400, 404, 503)  # a model, or its folder
_DONE = Reply(200, (), ())


def model_error(error: Exception) -> Reply:
    """The reply to a request for a model that failed with *error*."""
    return error_reply(error, told(error))


ERRORS = ErrorEncoder(lambda error, _: error_reply(error), message_reply, body="request JSON")
MODEL_ERRORS = ErrorEncoder(lambda error, _: model_error(error), message_reply, body="request JSON")


def reply_of(answer: object) -> Reply:
    """The reply that a handler's *answer* is, or that has it as JSON; ``None`` is an empty body."""
    if isinstance(answer, Reply):
        return answer
    return _DONE if answer is None else json(answer)


def json(value: object, status: int = 200) -> Reply:
    """*value* as JSON."""
    return json_reply(v2_json.write(value), status)
