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
