"""What one pass of the event loop brings is answered together."""

import asyncio
from typing import Any

import pytest
from wires import Transport

from workbench.host.round import Round
from workbench.http.reply import Reply


class Cut:
    """Answers each request with its body, and remembers what it is asked at a time."""

    def __init__(self) -> None:
        self.passes: list[list[bytes]] = []

    def answer_all(self, asked: list[Any]) -> list[Reply]:
        self.passes.append([body for _, body, _ in asked])
        return [Reply(200, (), (body,)) for _, body, _ in asked]


class Asking:
    """A connection."""

    def __init__(self, round_: Round) -> None:
        self.transport = Transport()
        self._round = round_

    def ask(self, body: bytes) -> None:
        self._round.ask(self, (None, body, 0.0))  # type: ignore[arg-type]  # no head is needed

    def replied(self, _: object, reply: Reply | None) -> None:
        assert reply is not None
        self.transport.write(reply.parts[0])


@pytest.fixture
def cut() -> Cut:
    return Cut()


@pytest.fixture
def round_(cut: Cut) -> Round:
    return Round(cut)  # type: ignore[arg-type]


async def one_pass() -> None:
    """The event loop goes on to its next pass."""
    await asyncio.sleep(0)


def test_one_pass(cut: Cut, round_: Round) -> None:
    """All requests of a pass are answered at its end, and none before."""
    connections = [Asking(round_) for _ in range(3)]

    async def passes() -> None:
        for turn in range(2):
            for number, connection in enumerate(connections):
                connection.ask(b"%d" % number)
            assert connections[0].transport.text == b"0" * turn
            await one_pass()

    asyncio.run(passes())
    assert cut.passes == [[b"0", b"1", b"2"]] * 2
    assert [each.transport.written for each in connections] == [[b"0"] * 2, [b"1"] * 2, [b"2"] * 2]


def test_an_early_end(cut: Cut, round_: Round) -> None:
    """Where something follows on a connection the round ends at once; what comes then is kept."""
    connection = Asking(round_)

    async def passes() -> None:
        connection.ask(b"1")
        round_.end()
        assert connection.transport.text == b"1"
        connection.ask(b"2")
        await one_pass()

    asyncio.run(passes())
    assert cut.passes == [[b"1"], [b"2"]]
    assert connection.transport.text == b"12"


def test_how_many_are_held(cut: Cut, round_: Round) -> None:
    """At most 64 requests are held at a time."""
    connections = [Asking(round_) for _ in range(150)]

    async def passes() -> None:
        for connection in connections:
            connection.ask(b"1")
        await one_pass()

    asyncio.run(passes())
    assert [len(bodies) for bodies in cut.passes] == [64, 64, 22]
    assert all(each.transport.text == b"1" for each in connections)


def test_a_connection_that_closed(round_: Round) -> None:
    """Its reply is dropped, those of the others are sent."""
    closed, kept = Asking(round_), Asking(round_)

    async def passes() -> None:
        closed.ask(b"1")
        kept.ask(b"2")
        closed.transport.close()
        await one_pass()

    asyncio.run(passes())
    assert (closed.transport.text, kept.transport.text) == (b"", b"2")
