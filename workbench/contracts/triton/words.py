"""Triton's own words for what went wrong, which its clients compare; ours follow them."""

from __future__ import annotations

from workbench.errors import (
    LoadFailed,
    ManyAnswers,
    ModelNotFound,
    ModelNotReady,
    ModelNotSupported,
    VersionNotFound,
)

_UNKNOWN = "Request for unknown model:"
_TOO_MANY = "doesn't support models with decoupled transaction policy"

HTTP, GRPC = "HTTP end point", "ModelInfer RPC"


def in_tritons_words(error: Exception, model: str, version: int | None, wire: str = HTTP) -> str:
    """The message of *error* for a client of Triton: Triton's sentence for its class, then ours.

    Ours alone if Triton has none. *wire*: Triton's name of the interface.
    """
    lead = _lead(error, f"{_UNKNOWN} {model!r}", version)
    if isinstance(error, ManyAnswers):
        lead = f"{wire} {_TOO_MANY}"
    return f"{lead}: {error}" if lead else str(error)


def _lead(error: Exception, unknown: str, version: int | None) -> str:
    match error:
        case VersionNotFound() if version is not None:
            return f"{unknown} version {version} is not found"
        case ModelNotFound() | VersionNotFound():
            return f"{unknown} is not found"
        case ModelNotSupported():
            return ""
        case ModelNotReady() | LoadFailed() if version is None:
            return f"{unknown} has no available versions"
        case ModelNotReady() | LoadFailed():
            return f"{unknown} version {version} is not at ready state"
    return ""


def polling_failed(error: Exception, model: str) -> str:
    """The message of *error*: the repository has no such *model*, or its configuration is wrong."""
    return f"failed to load {model!r}, failed to poll from model repository: {error}"


def load_failed(error: Exception, model: str) -> str:
    """The message of *error*, by which a version of *model* did not load."""
    return f"load failed for model {model!r}: {error}"


def writable(text: str) -> str:
    """The *text* of a path as wires can send it: bytes of names that are not UTF-8 as escapes."""
    return text.encode("utf-8", "backslashreplace").decode()
