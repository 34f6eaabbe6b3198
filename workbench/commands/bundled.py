"""The sample models and notebooks that come with the package; ``workbench lab`` opens these."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from workbench.errors import RepositoryError, UsageError, refused_in_one_line

_PACKAGE = Path(__file__).parents[1]
_FIRST = Path("notebooks", "quickstart.ipynb")
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

    Raises ``RepositoryError`` and ``UsageError``.
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


def open_lab(out: Path, options: Sequence[str]) -> NoReturn:
    """Become JupyterLab, with its own *options*, on the first notebook in *out*.

    The notebooks, and the models that they serve, are copied to *out*; files that are there already
    are left as they are. Raises ``UsageError`` where JupyterLab is not installed,
    ``RepositoryError`` and ``OSError``.
    """
    if find_spec("jupyterlab") is None:
        raise UsageError('JupyterLab is not installed: pip install "serving-workbench[lab]"')
    for name in ("notebooks", "sample_models"):
        copy_bundled(name, out / name)
    command = [sys.executable, "-m", "jupyterlab", *options, str(out / _FIRST)]
    os.execv(sys.executable, command)  # noqa: S606  # no shell; Ctrl-C is JupyterLab's
