"""HTTP: one file a protocol; each decodes, calls one verb of the core, and encodes."""

from workbench.http.app import create_app

__all__ = ["create_app"]
