"""The modules that an artifact brings, imported under their own names beside those of others."""

from __future__ import annotations

import builtins
import importlib.util
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from workbench.errors import WaitedTooLong

_LONGEST_S = 360.0  # that a load waits for another one's code, as the platform waits for a load
_importing = threading.Lock()  # sys.path and sys.modules are shared by all threads


class OwnModules:
    """The modules and packages in *folder*. Of two artifacts each has its own.

    Only while they are ``importable`` are they in ``sys.modules``, where pickles and dataclasses
    look for them, in place of others of their names. Those of Python itself stay.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        files = (each.stem if each.suffix == ".py" else each.name for each in folder.iterdir())
        self._names = {name for name in files if not name.startswith("__")}
        self._names -= sys.stdlib_module_names
        self._modules: dict[str, ModuleType] = {}
        self._are_importable = False

    def import_script(self, script: Path) -> ModuleType:
        """The module that *script* is; what its functions import later is found as well."""
        name = script.stem
        spec = importlib.util.spec_from_file_location(name, script)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        vars(module)["__builtins__"] = {**vars(builtins), "__import__": self._import}
        self._names.add(name)
        with self.importable():
            sys.modules[name] = module
            spec.loader.exec_module(module)
        return module

    @contextmanager
    def importable(self) -> Iterator[None]:
        """Context in which these modules are found; for one artifact at a time.

        Raises ``WaitedTooLong``.
        """
        if not _importing.acquire(timeout=_LONGEST_S):
            raise WaitedTooLong("the code of another artifact is still being loaded: try again")
        try:
            others = self._taken_out()
            sys.modules.update(self._modules)
            sys.path.insert(0, self._folder)
            self._are_importable = True
            try:
                yield
            finally:
                self._are_importable = False
                sys.path.remove(self._folder)
                self._modules = self._taken_out()
                sys.modules.update(others)
        finally:
            _importing.release()

    def _taken_out(self) -> dict[str, ModuleType]:
        """The modules of these names, with what is in them; from now on nobody finds them."""
        known = list(sys.modules)  # other threads import meanwhile
        taken = [name for name in known if name.partition(".")[0] in self._names]
        return {name: sys.modules.pop(name) for name in taken}

    def _import(
        self,
        name: str,
        globals: Mapping[str, object] | None = None,  # noqa: A002  # as __import__ has it
        locals: Mapping[str, object] | None = None,  # noqa: A002
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """``__import__`` of the script, whose functions may import modules when they run."""
        top = name.partition(".")[0]
        if level or top not in self._names or self._are_importable:
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        found = self._modules.get(name)
        if found is not None and all(hasattr(found, each) for each in fromlist or ()):
            return found if fromlist else self._modules[top]
        with self.importable():
            return builtins.__import__(name, globals, locals, fromlist or (), level)
