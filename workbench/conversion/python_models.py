"""What Python code serves, beside the models of the repository."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from workbench.conversion.calling import Loop
from workbench.conversion.declared import Declared, declared_id, declared_model
from workbench.core import ServerCore
from workbench.errors import ModelNotFound


class PythonModels:
    """Serves functions and converted models by the core that *core* gives."""

    def __init__(self, core: Callable[[], ServerCore]) -> None:
        self._core = core
        self._loop = Loop()

    def register(
        self,
        function: Callable[..., Any],
        name: str | None,
        version: int,
        inputs: Declared | None,
        outputs: Declared | None,
        **schedule: Any,
    ) -> None:
        """See ``Workbench.register``."""
        model = declared_id(function, name, version)
        served = declared_model(function, inputs, outputs, loop=self._loop, **schedule)
        core = self._core()
        core.call(core.register, model, served)

    def unregister(self, name: str) -> None:
        """See ``Workbench.unregister``."""
        core = self._core()
        try:
            core.call(core.remove, name)
        except ModelNotFound:
            if name not in core.names():
                raise
            raise ModelNotFound(
                f"{name!r} is a model of the repository: unload it, or take its folder out"
            ) from None

    def stop(self) -> None:
        """End what still runs on the loop of ``async`` functions."""
        self._loop.close()
