"""What the package has beside its code: sample models, notebooks, and the page of an index."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

FILE_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)]+)\)")
"""A link, or after ``!`` a picture, to a file of this project: its words and the file."""


class BundledFiles(BuildHookInterface):
    """Adds sample_models and notebooks to the wheel, for ``commands/bundled.py``.

    The tree has one copy of them. The scripts that made the models stay out, and an editable
    installation has the tree itself.
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


class IndexPage(MetadataHookInterface):
    """README as an index of packages shows it, where links to files of this project lead nowhere.

    They become links below ``source-url`` of pyproject.toml, the address of the project's files,
    which is a link of the index's page as well. While there is no such address only their words
    stay.
    """

    def update(self, metadata: dict[str, Any]) -> None:
        """Give the project its readme and its links."""
        source_url = self.config["source-url"]
        readme = Path(self.root, "README.md").read_text("utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": index_readme(readme, source_url),
        }
        metadata["urls"] = {}
        if source_url:
            metadata["urls"] = {
                "Source": source_url,
                "Changelog": f"{source_url}/CHANGELOG.md",
                "Documentation": f"{source_url}/docs/index.md",
            }


def index_readme(readme: str, source_url: str) -> str:
    """*readme* with links below *source_url* for those to files, or with none if that is empty."""
    if source_url:
        return FILE_LINK.sub(rf"\1[\2]({source_url}/\3)", readme)
    return FILE_LINK.sub(lambda link: "" if link[1] else link[2], readme)
