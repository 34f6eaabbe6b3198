"""Encoded images as inputs, by OpenVINO Model Server's rules."""

from __future__ import annotations

from typing import Any

from workbench.annex import Annex


def annex() -> Annex:
    """The parts of this annex, for the house."""
    return Annex(name="images", provides={"decode_images": _decode_images})


def _decode_images(*given: Any) -> Any:
    from workbench.annexes.images.decode import decode_images

    return decode_images(*given)
