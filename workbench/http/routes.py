"""Which path is answered by what: one table, for the application and for its OpenAPI document."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from workbench.core import ServerCore
from workbench.http import (
    docs,
    generate,
    log_settings,
    model_config,
    repository,
    shared_memory,
    statistics,
    trace_settings,
    v2,
)
from workbench.http.calls import Call
from workbench.http.metrics import metrics
from workbench.http.paths import MODELS
from workbench.http.reply import Reply
from workbench.shared_memory import Regions

Answer = Callable[[ServerCore, Call], Reply]
Asking = Callable[[ServerCore, Call], Coroutine[Any, Any, Reply]]
Answers = Mapping[str, Answer | Asking]  # by method


@dataclass(frozen=True, slots=True)
class Route:
    """A *path* in Litestar's notation, and what answers each method.

    *quick*: the answers neither wait nor read files. *group*: the one of the setting
    ``restrict`` that the requests are of, if any.
    """

    path: str
    answers: Answers
    quick: bool = False
    group: str = ""


def _of_regions(act: Callable[[Regions, str | None], Reply]) -> Answer:
    return lambda core, call: act(core.regions, call.target.name or None)


def _register(act: Callable[[Regions, str, Mapping[str, Any]], Reply]) -> Answer:
    return lambda core, call: act(core.regions, call.target.name, call.message())


ROUTES: tuple[Route, ...] = (
    Route("/", {"GET": v2.server_metadata}, quick=True),  # for whoever opens it in a browser
    Route("/v2", {"GET": v2.server_metadata}, quick=True),
    Route("/metrics", {"GET": metrics}),
    Route("/v2/health/live", {"GET": v2.live}, quick=True),
    Route("/v2/health/ready", {"GET": v2.ready}, quick=True),
    # one after the other on the event loop, so that no change of the settings is lost
    Route(
        "/v2/logging",
        {"GET": log_settings.show, "POST": log_settings.change},
        quick=True,
        group="logging",
    ),
    Route(
        "/v2/trace/setting",
        {"GET": trace_settings.show, "POST": trace_settings.change},
        quick=True,
    ),
    Route("/schema", {"GET": docs.schema}),
    Route("/schema/swagger", {"GET": docs.page}),
    Route("/schema/openapi.json", {"GET": docs.document}),
    *(Route(f"/schema/assets/{name}", {"GET": docs.asset(name)}) for name in docs.ASSETS),
    Route("/v2/docs", {"GET": docs.page}),  # as MLServer has them
    Route("/v2/docs/dataplane.json", {"GET": docs.document}),
)

# Under /v2/models names may hold slashes, so that http/paths.py matches what stands there.
ALL_MODELS: Mapping[bytes, Answers] = MappingProxyType(
    {
        MODELS: {"GET": v2.model_names},
        MODELS + b"/stats": {"GET": statistics.all_statistics},
    }
)
"""By the whole path: what is asked of no single model."""

MODEL_VERBS: Mapping[str, Answers] = MappingProxyType(
    {
        "": {"GET": v2.model_metadata},
        "ready": {"GET": v2.model_ready},
        "config": {"GET": model_config.model_config},
        "generate": {"POST": generate.generate},
        "generate_stream": {"POST": generate.generate_stream},
        "trace/setting": {
            "GET": trace_settings.show_of_model,
            "POST": trace_settings.change_of_model,
        },
        "stats": {"GET": statistics.model_statistics},
        "docs": {"GET": docs.model_page},
        "docs/dataplane.json": {"GET": docs.model_document},
    }
)
"""By what follows the model in the path; but for "infer", which is http/infer.py's."""

RUNNING_VERBS = frozenset({"infer", "generate", "generate_stream"})
"""Those that run the model."""

# Under /v2/repository likewise.
REPOSITORY_VERBS: Mapping[str, Answers] = MappingProxyType(
    {
        "index": {"POST": repository.index},
        "load": {"POST": repository.load},
        "unload": {"POST": repository.unload},
    }
)

# Under /v2/systemsharedmemory and /v2/cudasharedmemory as well.
REGION_VERBS: Mapping[str, Answers] = MappingProxyType(
    {
        "system/status": {"GET": _of_regions(shared_memory.system_status)},
        "system/register": {"POST": _register(shared_memory.register_system)},
        "system/unregister": {"POST": _of_regions(shared_memory.unregister_system)},
        "cuda/status": {"GET": _of_regions(shared_memory.cuda_status)},
        "cuda/register": {"POST": _register(shared_memory.register_cuda)},
        "cuda/unregister": {"POST": _of_regions(shared_memory.unregister_cuda)},
    }
)

WAITING: frozenset[Answer | Asking] = frozenset({repository.load, repository.unload})
"""What waits for models, and would hold up whoever only reads."""

ASKING: Mapping[Answer | Asking, Asking] = {
    each: each for each in (generate.generate, generate.generate_stream)
}
"""What asks a model, on no thread of its own."""
