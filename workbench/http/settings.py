"""What can be changed while the server runs: Triton's "Logging Extension" and "Trace Extension"."""

from __future__ import annotations

from dataclasses import replace

from workbench.contracts.triton import settings as triton
from workbench.core import ServerCore
from workbench.http import v2
from workbench.http.calls import HttpCall
from workbench.http.route import Group, Route, RunsOn
from workbench.http.shapes import (
    COUNT,
    FLAG,
    TEXT,
    Json,
    answer,
    body,
    listed,
    maybe,
    obj,
    one_of,
    ref,
)


def _model_trace(core: ServerCore, call: HttpCall) -> Json:
    triton.check_traced(core, call.name, call.version)
    return {**triton.trace_settings(core, call.name)}


def _change_model_trace(core: ServerCore, call: HttpCall) -> Json:
    triton.check_traced(core, call.name, call.version)
    return {**triton.change_trace_settings(core, call.message(), call.name)}


_LEVELS = listed(one_of("OFF", "TIMESTAMPS", "TENSORS"))
_NUMERAL: Json = {**TEXT, "pattern": "^-?[0-9]{1,10}$"}
_TRACE: Json = {
    "trace_level": {**_LEVELS, "example": ["OFF"]},
    "trace_rate": {**_NUMERAL, "example": "1000"},
    "trace_count": {**_NUMERAL, "example": "-1"},
    "log_frequency": {**_NUMERAL, "example": "0"},
    "trace_file": TEXT,
    "trace_mode": one_of("triton", "opentelemetry"),
}
_LOG: Json = {
    "log_file": {**TEXT, "maxLength": 0},
    "log_info": FLAG,
    "log_warning": FLAG,
    "log_error": FLAG,
    "log_verbose_level": {**COUNT, "maximum": 2**32 - 1},
    "log_format": one_of("default", "ISO8601"),
}


def _changes(settings: Json) -> Json:
    """The body that changes some of *settings*."""
    return obj({}, {name: maybe(setting) for name, setting in settings.items()}, closed=True)


_MODEL = "/v2/models/{model_name}[/versions/{model_version}]/trace/setting"

SETTINGS = Group(
    "Settings",
    (
        # on the event loop changes run one after the other, so that none is lost
        Route("GET /v2/logging", lambda core, _: triton.log_settings(core), "logging",
            "What is kept of the log", "log_settings", runs=RunsOn.LOOP, restrict="logging"),
        Route("POST /v2/logging",
            lambda core, call: triton.change_log_settings(core, call.message()),
            "change_logging", "Keep more of it, or less", "log_settings", v2.BODY, "log_changes",
            RunsOn.LOOP, "logging"),
        Route("GET /v2/trace/setting", lambda core, _: triton.trace_settings(core), "trace",
            "The trace settings of all models", "trace_settings", runs=RunsOn.LOOP),
        Route("POST /v2/trace/setting",
            lambda core, call: triton.change_trace_settings(core, call.message()), "change_trace",
            "Trace requests, or do not", "trace_settings", v2.BODY, "trace_changes"),
        Route(f"GET {_MODEL}", _model_trace, "model_trace", "The trace settings of a model",
            "trace_settings", v2.READS),
        Route(f"POST {_MODEL}", _change_model_trace, "change_model_trace",
            "Trace requests to a model, or do not", "trace_settings", (*v2.READS, *v2.BODY),
            "trace_changes"),
    ),
    v2.ERRORS,
    # a version is refused, so it is not in the document
    parameters={
        **v2.PARAMETERS,
        "model_version": replace(v2.PARAMETERS["model_version"], schema=None),
    },
    responses={
        "trace_settings": answer("The settings.", ref("trace_settings")),
        "log_settings": answer("The settings.", ref("log_settings")),
    },
    bodies={
        "trace_changes": body(ref("trace_changes"), {"trace_level": ["OFF"]}, required=False),
        "log_changes": body(ref("log_changes"), {"log_verbose_level": 1}, required=False),
    },
    schemas={
        "trace_settings": obj(_TRACE),
        "trace_changes": _changes(_TRACE),
        "log_settings": obj(_LOG),
        "log_changes": _changes(_LOG),
    },
    unmatched=v2.NO_MODEL,
)  # fmt: skip
