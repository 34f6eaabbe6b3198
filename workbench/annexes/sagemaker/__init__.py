"""SageMaker's multi-model container, the endpoint in front of it, and archives for both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from workbench.annex import Annex, Magic, Option

if TYPE_CHECKING:
    from workbench.core import ServerCore
    from workbench.settings import Settings


def annex() -> Annex:
    """What it brings to the house."""
    return Annex(
        name="sagemaker",
        options=_options,
        variables=_variables,
        check=_check,
        warns=_warns,
        serves=_serves,
        part=_part,
        routes=_routes,
        lane=_lane,
        verbs=_verbs,
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


def _variables(environ: Mapping[str, str]) -> Iterator[tuple[str, object, str]]:
    from workbench.settings import sagemaker

    return sagemaker.defaults(environ)


def _check(environ: Mapping[str, str], values: Mapping[str, Any]) -> None:
    from workbench.settings import sagemaker

    sagemaker.check_port(environ, values.get("grpc_port"))


def _warns(settings: Settings) -> str:
    """That there is no folder of artifacts: it may still come, so it is no error."""
    from workbench.spelling import no_folder

    folder = settings["artifacts"]
    wrong = no_folder(folder) if folder is not None else ""
    return f"the folder of the artifacts {str(folder)!r} {wrong}" if wrong else ""


def _serves(given: Mapping[str, Any], environ: Mapping[str, str]) -> Mapping[str, Any] | None:
    from workbench.contracts.sagemaker.platform import on_sagemaker, single_artifacts

    if not on_sagemaker(environ):
        return None
    return {**given, "artifacts": given["artifacts"] or single_artifacts(environ)}


def _part(core: ServerCore) -> Any:
    from workbench.http.platform import Platform

    return Platform(core)


def _routes() -> Iterable[Any]:
    from workbench.http.endpoint import ENDPOINT
    from workbench.http.sagemaker import SAGEMAKER

    return SAGEMAKER, ENDPOINT


def _lane(core: ServerCore) -> Any:
    from workbench.http.invocations import Invocations

    platform = core.parts["sagemaker"]
    return Invocations(platform.container, loads=platform.endpoint.is_multi_model)


def _verbs() -> Mapping[str, Any]:
    from workbench.annexes.sagemaker.verbs import endpoint

    return {"endpoint": endpoint}


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
    from workbench.views.endpoint import endpoint_html

    return endpoint_html(wb.endpoint) if wb.settings["artifacts"] is not None else ""


def _calls(
    settings: Settings, url: str, model: str, request: Mapping[str, Any], token: bool
) -> Mapping[str, str]:
    """Nothing where endpoints have other models than the server's own."""
    from workbench.annexes.sagemaker.calls import boto3_call
    from workbench.views.calls import is_written_out

    if settings["artifacts"] is not None or not is_written_out(request):
        return {}
    return {"boto3": boto3_call(url, model, request, token=token)}
