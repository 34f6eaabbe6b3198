"""What the tests of the host use."""

import asyncio
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    """An event loop."""
    with asyncio.Runner() as runner:
        yield runner
