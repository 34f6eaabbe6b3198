"""The sample models and notebooks that come with the package."""

from __future__ import annotations

import shutil
from pathlib import Path

from workbench.errors import RepositoryError, refused_in_one_line

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

    Raises ``RepositoryError`` and ``FileRefused``.
    """
    folder = bundled(name)
    with refused_in_one_line(out):
        out.mkdir(parents=True, exist_ok=True)
        for source in sorted(folder.rglob("*")):
            if source.is_file():
                _copy_new(source, out / source.relative_to(folder))


def _copy_new(source: Path, target: Path) -> None:
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.part")  # half a file would stay the next time
    try:
        shutil.copy(source, part)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
