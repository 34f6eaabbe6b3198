"""What tests of several backends use."""

from collections.abc import Iterator

import pytest
from elsewhere import Elsewhere


@pytest.fixture(scope="session")
def elsewhere() -> Iterator[Elsewhere]:
    """Another process, for models that may end the one that runs them."""
    elsewhere = Elsewhere()
    yield elsewhere
    elsewhere.close()
