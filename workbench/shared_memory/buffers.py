"""The address of a buffer."""

from __future__ import annotations

import numpy as np


def address_of(data: bytes | memoryview) -> int:
    """The address of the first byte of *data*, valid as long as *data* exists."""
    address: int = np.frombuffer(data, np.uint8).__array_interface__["data"][0]
    return address
