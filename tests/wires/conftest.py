"""Each case of the data plane is played over every wire."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from each_wire import WIRES, Rig, Wire

Case = Callable[[Wire], Coroutine[Any, Any, None]]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    with ExitStack() as stack:
        stack.callback(rig.core.close)
        stack.callback(rig.gate.set)
        rig.core.open()
        yield rig


@pytest.fixture(params=WIRES)
def play(request: pytest.FixtureRequest, rig: Rig) -> Callable[[Case], None]:
    """Plays a case over one of the wires; afterwards nothing is in use."""

    def play(case: Case) -> None:
        async def over_the_wire() -> None:
            async with WIRES[request.param](rig) as wire:
                await case(wire)

        asyncio.run(over_the_wire())

    return play
