"""Puts the sample models and notebooks into the wheel; the tree has one copy of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class BundledFiles(BuildHookInterface):
    """Adds them below ``workbench/bundled_files``, where ``workbench/bundled.py`` finds them.

    The scripts that made the models stay out, and an editable installation has the tree itself.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name the files of a wheel of this *version* (``"standard"`` or ``"editable"``)."""
        if version != "standard":
            return
        root = Path(self.root)
        for folder in ("sample_models", "notebooks"):
            for path in sorted((root / folder).rglob("*")):
                inside = path.relative_to(root)
                hidden = any(part.startswith((".", "__")) for part in inside.parts)
                if path.is_file() and path.suffix != ".py" and not hidden:
                    build_data["force_include"][str(path)] = f"workbench/bundled_files/{inside}"
