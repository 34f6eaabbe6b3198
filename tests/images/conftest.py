"""OpenCV as every build has it."""

from collections.abc import Iterator

import cv2
import pytest


@pytest.fixture(autouse=True, scope="session")
def _plain_opencv() -> Iterator[None]:
    """Without Intel's library, which is in some builds and rounds in its own way."""
    used = cv2.ipp.useIPP()
    cv2.ipp.setUseIPP(False)
    yield
    cv2.ipp.setUseIPP(used)
