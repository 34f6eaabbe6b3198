"""The words of Triton that clients' code compares, where an error here does not have them anyhow.

docs/differences.md says which they are, and whose code compares them.
"""

from __future__ import annotations

from workbench.errors import ModelNotFound, VersionNotFound


def told(error: Exception) -> str:
    """The message of *error* for a client that asks for a model."""
    unknown = isinstance(error, ModelNotFound | VersionNotFound)
    return f"Request for unknown model: {error}" if unknown else str(error)
