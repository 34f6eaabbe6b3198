"""The endpoint that a server's settings ask for."""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial

from workbench.contracts.sagemaker.container import Container
from workbench.contracts.sagemaker.endpoint.containers import (
    ContainerReply,
    Invoke,
    ModelContainer,
    OwnContainer,
    RemoteContainer,
)
from workbench.contracts.sagemaker.endpoint.endpoint import Endpoint
from workbench.contracts.sagemaker.endpoint.store import ArtifactStore
from workbench.core import ServerCore
from workbench.errors import ModelNotFound, WorkbenchError


def endpoint_of(core: ServerCore, own: Container) -> Endpoint:
    """The endpoint that the settings of *core* tell of, on its *own* container or on another."""
    settings, draining = core.settings, core.draining
    submit = partial(core.soon, waits=True)
    store = None
    if settings.artifacts is not None:
        store = ArtifactStore(
            settings.artifacts,
            follow_links=settings.follow_links,
            stops=lambda: draining.error is not None,
        )
    here = OwnContainer(own)
    container: ModelContainer = here
    if settings.container:
        container = RemoteContainer(settings.container, submit)
    return Endpoint(
        store,
        container,
        submit=submit,
        log=core.events.append,
        keeps=settings.model_cache == "enabled",
        hold_s=settings.wait,
        names=settings.endpoints,
        shown=settings.container or "this server",
        single=partial(_run_single, core, here),
    )


def _run_single(
    core: ServerCore, container: OwnContainer, name: str, request: Invoke
) -> Future[ContainerReply] | None:
    """What the model *name* of the repository answers; ``None`` if there is none."""
    try:
        core.resolve(name)
    except ModelNotFound:
        return None
    except WorkbenchError:
        pass  # it is there, and its run says what is wrong
    return container.run(name, name, request)
