"""HTTP: one file a protocol; each decodes, calls one verb of the core, and encodes."""

from workbench.http.access import Access
from workbench.http.app import create_app
from workbench.http.infer import DataPlane
from workbench.http.reply import Reply
from workbench.http.shortcut import ShortCut

__all__ = ["Access", "DataPlane", "Reply", "ShortCut", "create_app"]
