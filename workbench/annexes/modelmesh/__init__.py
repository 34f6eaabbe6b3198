"""ModelMesh's runtime SPI: somebody else places the models."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from workbench.annex import Annex, Option

if TYPE_CHECKING:
    from workbench.core import ServerCore
    from workbench.settings import Settings


def annex() -> Annex:
    """The parts of this annex, for the house."""
    return Annex(
        name="modelmesh", options=_options, adapt=_adapt, serves=_serves, services=_services
    )


def _options() -> Iterable[Option]:
    from workbench.settings import parsers

    return (
        Option(
            "modelmesh",
            "",
            "where ModelMesh connects to place models: port:8085, unix:PATH, or on for the address "
            "in the variables of its adapters (default: nowhere)",
            parsers.endpoint,
        ),
    )


def _serves(given: Mapping[str, Any], environ: Mapping[str, str]) -> Mapping[str, Any] | None:
    from workbench.settings import variable_name

    return given if given["modelmesh"] or environ.get(variable_name("modelmesh")) else None


def _adapt(settings: Settings) -> Settings:
    from dataclasses import replace

    from workbench.annexes.modelmesh.environment import settings_of

    if settings["modelmesh"]:
        return settings_of(settings, os.environ)
    return replace(settings, placed=False)


def _services(core: ServerCore) -> Mapping[str, Any]:
    if not core.settings["modelmesh"]:
        return {}
    from workbench.annexes.modelmesh.environment import Environment
    from workbench.annexes.modelmesh.runtime import ModelMesh

    mesh = ModelMesh(core, Environment.of(os.environ))
    return {core.settings["modelmesh"]: mesh.service()}
