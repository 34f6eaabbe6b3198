"""``workbench lab``: JupyterLab on a copy of the notebooks that come with the package."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from workbench.commands.bundled import copy_bundled
from workbench.errors import UsageError

_FIRST = Path("notebooks", "quickstart.ipynb")


def copy_notebooks(out: Path) -> Path:
    """Copy the notebooks, and the models that they serve, to *out*; the path of the first notebook.

    Files that are there already are left as they are. Raises ``RepositoryError`` and ``OSError``.
    """
    for name in ("notebooks", "sample_models"):
        copy_bundled(name, out / name)
    return out / _FIRST


def open_lab(out: Path, options: Sequence[str]) -> NoReturn:
    """Become JupyterLab, with its own *options*, on the first notebook in *out*.

    Raises ``UsageError`` where JupyterLab is not installed, ``RepositoryError`` and ``OSError``.
    """
    if find_spec("jupyterlab") is None:
        raise UsageError('JupyterLab is not installed: pip install "serving-workbench[lab]"')
    notebook = copy_notebooks(out)
    command = [sys.executable, "-m", "jupyterlab", *options, str(notebook)]
    os.execv(sys.executable, command)  # noqa: S606  # no shell; Ctrl-C is JupyterLab's
