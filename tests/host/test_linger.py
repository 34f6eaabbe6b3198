"""A loop that stays awake for a client that asks again at once, and for nobody else."""

import asyncio

from workbench.host.linger import Linger


class Clock:
    """Seconds that pass when told."""

    def __init__(self) -> None:
        self.now_s = 10.0

    def read(self) -> float:
        return self.now_s


async def turns(linger: Linger, count: int = 5) -> bool:
    """Whether the loop is kept awake after so many turns."""
    for _ in range(count):
        await asyncio.sleep(0)
    return linger._is_awake


def test_a_client_that_asks_again_at_once() -> None:
    """After two replies in short order the loop stays awake, for a moment and no longer."""

    async def asked() -> None:
        clock = Clock()
        linger = Linger(clock.read)
        linger.replied()
        assert not await turns(linger)
        clock.now_s += 0.0002
        linger.replied()
        assert await turns(linger)
        clock.now_s += 0.0001
        linger.replied()
        clock.now_s += 0.00015
        assert await turns(linger)
        clock.now_s += 0.0001
        assert not await turns(linger)

    asyncio.run(asked())


def test_a_client_that_asks_now_and_then() -> None:
    """Replies that are far apart keep nobody awake."""

    async def asked() -> None:
        clock = Clock()
        linger = Linger(clock.read)
        for _ in range(5):
            linger.replied()
            assert not await turns(linger)
            clock.now_s += 0.001

    asyncio.run(asked())
