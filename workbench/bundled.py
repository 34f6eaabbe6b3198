"""The sample models and notebooks that come with the package."""

from __future__ import annotations

from pathlib import Path

from workbench.errors import RepositoryError

_PACKAGE = Path(__file__).parent
_PLACES = (_PACKAGE / "bundled_files", _PACKAGE.parent)  # of a wheel, and of a checkout


def bundled(name: str) -> Path:
    """The folder *name*, ``"sample_models"`` or ``"notebooks"``, as it was installed.

    Raises ``RepositoryError`` if this installation lacks it.
    """
    for place in _PLACES:
        if (place / name).is_dir():
            return place / name
    raise RepositoryError(
        f"this installation has no folder {name!r}: reinstall serving-workbench from its wheel"
    )
