"""The workbench: a server in this process, as a Python object."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import ClassVar

from workbench.annex import annexes
from workbench.api.reading import Reading
from workbench.arguments import explains_arguments
from workbench.host.serving import Serving
from workbench.settings import help_of_settings, signature_of_settings
from workbench.tensor import Array


class Workbench(Reading):
    """Serves the models of a *repository*, one folder or several, on a background thread.

    Takes settings as keyword arguments, such as ``budget="64MiB"`` and ``evict="lru"``; all of
    them are listed below. It is a context manager; without ``with``, call ``start`` and ``stop``.

    Raises ``SettingError`` and ``RepositoryError`` for settings that cannot work.
    """

    __signature__: ClassVar[inspect.Signature]  # with each setting, so that Tab completes them


def serving_of(workbench: Workbench) -> Serving:
    """The server of *workbench*, for the verbs of annexes."""
    return workbench._serving  # noqa: SLF001


def example_of(workbench: Workbench, model: str) -> Mapping[str, Array] | None:
    """One row of the example that *model* was served with, if it was, for the verbs of annexes."""
    return workbench._example(model)  # noqa: SLF001


for _annex in annexes():
    for _name, _verb in _annex.verbs().items():
        setattr(Workbench, _name, _verb)
explains_arguments(Workbench)
Workbench.__signature__ = signature_of_settings()
Workbench.__doc__ = f"{Workbench.__doc__}\n    Settings:\n\n{help_of_settings()}\n"
