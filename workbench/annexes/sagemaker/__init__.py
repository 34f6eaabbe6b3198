"""SageMaker's multi-model container, the endpoint in front of it, and archives for both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from workbench.annex import Annex, Magic, Option
from workbench.annexes.sagemaker.settings import check_port, defaults, serves

if TYPE_CHECKING:
    from workbench.core import ServerCore
    from workbench.settings import Settings


def annex() -> Annex:
    """The parts of this annex."""
    return Annex(
        name="sagemaker",
        options=_options,
        variables=defaults,
        check=check_port,
        warns=_warns,
        serves=serves,
        part=_part,
        routes=_routes,
        lane=_lane,
        verbs=_verbs,
        names={"pack": "workbench.annexes.sagemaker.packing"},
        commands=_commands,
        magics={"endpoint": _ENDPOINT},
        panel=_panel,
        calls=_calls,
    )


def _options() -> Iterable[Option]:
    from workbench.settings import parsers

    return (
        Option(
            "artifacts",
            None,
            "the folder of the artifacts that X-Amzn-SageMaker-Target-Model names, tar.gz or "
            "folders (default: there is none)",
            parsers.path,
        ),
        Option(
            "artifact_code",
            False,
            "whether code in artifacts (code/inference.py) is run, in this process (default: off)",
            parsers.switch,
        ),
        Option(
            "endpoints",
            (),
            "the endpoint names that requests may use (default: any name)",
            parsers.names,
        ),
    )


def _warns(settings: Settings) -> str:
    """A warning of a folder of artifacts that is not there: it may still come."""
    from workbench.spelling import no_folder

    folder = settings["artifacts"]
    wrong = no_folder(folder) if folder is not None else ""
    return f"the folder of the artifacts {str(folder)!r} {wrong}" if wrong else ""


def _part(core: ServerCore) -> Any:
    from workbench.annexes.sagemaker.container import Container
    from workbench.annexes.sagemaker.endpoint import Endpoint

    return Endpoint(Container(core))


def _routes() -> Iterable[Any]:
    from workbench.annexes.sagemaker.container_http import SAGEMAKER
    from workbench.annexes.sagemaker.endpoint_http import ENDPOINT

    return SAGEMAKER, ENDPOINT


def _lane(core: ServerCore) -> Any:
    from workbench.annexes.sagemaker.invocations import Invocations

    endpoint = core.parts["sagemaker"]
    return Invocations(endpoint.container, loads=endpoint.is_multi_model)


def _verbs() -> Mapping[str, Any]:
    from workbench.annexes.sagemaker.report import report_of

    return {"endpoint": property(report_of)}


def _commands() -> Iterable[Any]:
    from workbench.annexes.sagemaker.commands import endpoint, pack

    return endpoint, pack


_ENDPOINT = Magic(
    "",
    "what the multi-model endpoint did, also of a stopped server",
    lambda wb: wb.endpoint,
    needs_server=False,
)


def _panel(wb: Any) -> str:
    html: str = wb.endpoint.html if wb.settings["artifacts"] is not None else ""
    return html


def _calls(
    settings: Settings, url: str, model: str, request: Mapping[str, Any], token: bool
) -> Mapping[str, str]:
    """Nothing where endpoints have other models than the server's own."""
    from workbench.annexes.sagemaker.calls import boto3_call
    from workbench.views.calls import is_written_out

    if settings["artifacts"] is not None or not is_written_out(request):
        return {}
    return {"boto3": boto3_call(url, model, request, token=token)}
