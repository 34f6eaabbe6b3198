"""The sample models and notebooks that come with the package."""

from __future__ import annotations

import shutil
from pathlib import Path

from workbench.errors import RepositoryError

_PACKAGE = Path(__file__).parents[1]
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


def copy_bundled(name: str, out: Path) -> None:
    """Copy the contents of the folder *name* to *out*; files that are there already stay.

    Raises ``RepositoryError`` and ``OSError``.
    """
    shutil.copytree(bundled(name), out, copy_function=_copy_new, dirs_exist_ok=True)


def _copy_new(source: str, target: str) -> None:
    if not Path(target).exists():
        shutil.copy(source, target)
