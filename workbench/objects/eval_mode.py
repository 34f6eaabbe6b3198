"""Modules of PyTorch in eval mode, while any thread runs them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_lock = threading.Lock()
_runs: dict[int, tuple[int, list[Any]]] = {}  # by the id of a module: runs, and what was trained


def is_switchable(module: Any) -> bool:
    """True if *module* has a mode; one that TorchScript froze is in eval mode for good."""
    return hasattr(module, "training")


@contextmanager
def in_eval_mode(module: Any) -> Iterator[None]:
    """Have *module* in eval mode; the last of several threads puts its parts back as they were."""
    with _lock:
        runs, trained = _runs.get(id(module), (0, []))
        if not runs and is_switchable(module) and module.training:
            trained = [part for part in module.modules() if part.training]
            module.eval()
        _runs[id(module)] = runs + 1, trained
    try:
        yield
    finally:
        with _lock:
            runs, trained = _runs.pop(id(module))
            if runs > 1:
                _runs[id(module)] = runs - 1, trained
            else:
                for part in trained:
                    part.training = True
