"""Conversion of served objects to ONNX, with its evidence: ``onnx=True`` and ``wb.save``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.annex import Annex

if TYPE_CHECKING:
    from workbench.annexes.conversion.report import Report


def annex() -> Annex:
    """The parts of this annex, for the house."""
    return Annex(name="conversion", provides={"convert": _convert})


def _convert(made: Any, wish: Any, path: Path) -> Report:
    """The conversion of what was *made* of an object, with its libraries' own converters."""
    from workbench.annexes.conversion.convert import convert

    return convert(made, wish.check, path, tolerance=wish.tolerance, anyway=wish.anyway)
