"""The workbench: a server in this process, as a Python object."""

from __future__ import annotations

import inspect
from typing import ClassVar

from workbench.api.measuring import Measuring
from workbench.arguments import explains_arguments
from workbench.settings import help_of_settings, signature_of_settings


@explains_arguments
class Workbench(Measuring):
    """Serves the models of a *repository*, one folder or several, on a background thread.

    Takes settings as keyword arguments, such as ``budget="64MiB"`` and ``evict="lru"``; all of
    them are listed below. It is a context manager; without ``with``, call ``start`` and ``stop``.

    Raises ``SettingError`` and ``RepositoryError`` for settings that cannot work.
    """

    __signature__: ClassVar[inspect.Signature]  # with each setting, so that Tab completes them


Workbench.__signature__ = signature_of_settings()
Workbench.__doc__ = f"{Workbench.__doc__}\n    Settings:\n\n{help_of_settings()}\n"
