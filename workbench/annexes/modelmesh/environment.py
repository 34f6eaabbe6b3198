"""The environment variables of ModelMesh's adapters, and the settings of a server that obeys it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from workbench.errors import SettingError
from workbench.settings import Settings

_MEMORY = ("CONTAINER_MEM_REQ_BYTES", "MODEL_SERVER_MEM_REQ_BYTES")  # the first that is given
_UINT32, _UINT64 = 2**32 - 1, 2**64 - 1  # the most that the fields of the messages hold
_PORT = "port:"


@dataclass(frozen=True)
class Environment:
    """The environment variables of ModelMesh's own adapters.

    *memory_nbytes*, of the container, is ``None`` if it is not given.
    """

    memory_nbytes: int | None = None
    buffer_nbytes: int = 256 * 2**20
    loading_concurrency: int = 1
    load_timeout_ms: int = 30_000
    default_nbytes: int = 1_000_000
    multiplier: float = 1.25
    version: str = "v1"
    model_concurrency: int = 0
    root: Path = Path("/models")

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Environment:
        """Read *environ*. Raises ``SettingError`` for what is not a number or not in its range."""
        name = next((each for each in _MEMORY if environ.get(each)), _MEMORY[0])
        memory = _number(environ, name, 0)
        buffer = _number(environ, "MEM_BUFFER_BYTES", cls.buffer_nbytes)
        if memory and memory <= buffer:
            raise SettingError(
                f"{name} is {memory}: nothing is left beside MEM_BUFFER_BYTES, {buffer}"
            )
        return cls(
            memory_nbytes=memory or None,
            buffer_nbytes=buffer,
            loading_concurrency=_number(
                environ, "LOADING_CONCURRENCY", cls.loading_concurrency, most=_UINT32
            ),
            load_timeout_ms=_number(environ, "LOADTIME_TIMEOUT", cls.load_timeout_ms, most=_UINT32),
            default_nbytes=_number(environ, "DEFAULT_MODELSIZE", cls.default_nbytes),
            multiplier=_number(environ, "MODELSIZE_MULTIPLIER", cls.multiplier, float),
            version=environ.get("RUNTIME_VERSION", cls.version),
            model_concurrency=_number(
                environ, "LIMIT_PER_MODEL_CONCURRENCY", cls.model_concurrency, most=_UINT32
            ),
            root=Path(environ.get("ROOT_MODEL_DIR", str(cls.root))),
        )


def _number(
    environ: Mapping[str, str], name: str, default: Any, kind: type = int, most: int = _UINT64
) -> Any:
    text = environ.get(name, "")
    try:
        number = kind(text) if text else default
    except ValueError:
        raise SettingError(f"{name} is not a number: {text!r}") from None
    if not 0 <= number <= most:
        raise SettingError(f"{name} is a number in 0..{most}, not {text!r}")
    return number


def settings_of(settings: Settings, environ: Mapping[str, str]) -> Settings:
    """The *settings* of a server whose models ModelMesh places.

    Models are loaded and unloaded only when it asks, and a load may wait for others as long as it
    does; budget and endpoints come from the environment if the settings do not give them. Raises
    ``SettingError``.
    """
    environment = Environment.of(environ)
    changes: dict[str, Any] = {"load": "explicit", "evict": "never"}
    changes["wait"] = max(settings.wait, environment.load_timeout_ms / 1e3)
    if settings.budget is None and environment.memory_nbytes is not None:
        changes["budget"] = f"{environment.memory_nbytes}B"
    if settings["modelmesh"] == "on":
        changes["modelmesh"] = f"{_PORT}{environ.get('ADAPTER_PORT') or 8085}"
    if settings.grpc_port is None:
        endpoint = (environ.get("RUNTIME_DATA_ENDPOINT") or "").removeprefix(_PORT)
        changes["grpc_port"] = endpoint or environ.get("RUNTIME_PORT") or 8001
    return replace(settings.changed(**changes), placed=True)
