import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tritonclient.utils import shared_memory as shm


@pytest.fixture
def region_of() -> Iterator[Callable[..., Any]]:
    """Makes objects of some bytes, as a client does, and removes them afterwards."""
    handles = []

    def made(nbytes: int = 64) -> Any:
        key = f"/workbench_{uuid.uuid4().hex}"
        handles.append(shm.create_shared_memory_region(key[1:], key, nbytes, create_only=True))
        return handles[-1]

    yield made
    for handle in handles:
        shm.destroy_shared_memory_region(handle)


@pytest.fixture
def region(region_of: Callable[..., Any]) -> tuple[Any, str]:
    """128 bytes of shared memory: the handle, and its key."""
    handle = region_of(128)
    return handle, handle._shm_key
