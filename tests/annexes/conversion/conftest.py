"""A server for the things of a module."""

from collections.abc import Iterator

import pytest

from workbench import Workbench


@pytest.fixture(scope="module")
def wb() -> Iterator[Workbench]:
    with Workbench(device="cpu") as workbench:
        yield workbench
