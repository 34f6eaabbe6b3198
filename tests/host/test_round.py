"""Requests that come at about the same time are answered together."""

import asyncio
from typing import Any

import pytest
from wires import Transport, passes

from workbench.host.linger import Linger
from workbench.host.round import Round
from workbench.http.reply import Reply


class Cut:
    """Answers each request with its body, if it can, and remembers what it is asked at a time."""

    def __init__(self) -> None:
        self.passes: list[list[bytes]] = []
        self.is_brief = True

    def answer_all(self, asked: list[Any]) -> list[Reply | None]:
        self.passes.append([body for _, body, _ in asked])
        return [Reply(200, (), (body,)) if self.is_brief else None for _, body, _ in asked]


class Asking:
    """A connection, one of *count*."""

    def __init__(self, round_: Round, count: int) -> None:
        self.connections = range(count)
        self.transport = Transport()
        self._round = round_

    def ask(self, body: bytes, begun_s: float = 0.0) -> None:
        self._round.ask(self, (None, body, begun_s))  # type: ignore[arg-type]  # no head is needed

    def replied(self, _: object, reply: Reply | None) -> None:
        if reply is not None:
            self.transport.write(reply.parts[0])


@pytest.fixture
def cut() -> Cut:
    return Cut()


@pytest.fixture
def round_(cut: Cut) -> Round:
    return Round(cut, Linger(), lambda: 0.0)  # type: ignore[arg-type]


def test_all_connections(cut: Cut, round_: Round) -> None:
    """Once all connections have a request, all are answered at once, and none before."""
    connections = [Asking(round_, 3) for _ in range(3)]

    async def ask() -> None:
        for turn in range(2):
            for number, connection in enumerate(connections):
                assert connections[0].transport.text == b"0" * turn
                connection.ask(b"%d" % number)

    asyncio.run(ask())
    assert cut.passes == [[b"0", b"1", b"2"]] * 2
    assert [each.transport.written for each in connections] == [[b"0"] * 2, [b"1"] * 2, [b"2"] * 2]


def test_passes(cut: Cut, round_: Round) -> None:
    """A round goes on while passes of the event loop bring requests, and ends with the next one."""
    connections = [Asking(round_, 9) for _ in range(9)]

    async def ask() -> None:
        for connection in connections[:4]:
            connection.ask(b"1")
            assert cut.passes == []
            await passes(1)
        await passes()
        assert cut.passes == [[b"1"] * 4]
        connections[4].ask(b"2")
        await passes()

    asyncio.run(ask())
    assert cut.passes == [[b"1"] * 4, [b"2"]]


def test_a_round_that_lasts(cut: Cut) -> None:
    """A round ends when its first request came 2 ms ago, even if passes go on to bring requests."""
    now_s = [10.0]
    round_ = Round(cut, Linger(), lambda: now_s[0])  # type: ignore[arg-type]
    connections = [Asking(round_, 20) for _ in range(20)]

    async def ask() -> None:
        for connection in connections:
            connection.ask(b"1", now_s[0])
            await passes(1)
            now_s[0] += 0.0006

    asyncio.run(ask())
    assert [len(bodies) for bodies in cut.passes] == [5, 5, 5, 5]


def test_an_early_end(cut: Cut, round_: Round) -> None:
    """Where something follows on a connection the round ends at once; what comes then is kept."""
    connection = Asking(round_, 2)

    async def ask() -> None:
        connection.ask(b"1")
        round_.end()
        assert connection.transport.text == b"1"
        connection.ask(b"2")
        assert connection.transport.text == b"1"
        await passes()

    asyncio.run(ask())
    assert cut.passes == [[b"1"], [b"2"]]
    assert connection.transport.text == b"12"


@pytest.mark.parametrize("is_brief", [True, False])
def test_when_the_loop_stays_awake(is_brief: bool, cut: Cut) -> None:
    """After a round with an answer, not after one whose requests all wait for threads."""
    cut.is_brief = is_brief
    told: list[None] = []
    linger = Linger()
    linger.replied = lambda: told.append(None)  # type: ignore[method-assign]
    round_ = Round(cut, linger)  # type: ignore[arg-type]
    connections = [Asking(round_, 3) for _ in range(2)]

    async def ask() -> None:
        for connection in connections:
            connection.ask(b"1")
        await passes()

    asyncio.run(ask())
    assert len(told) == is_brief


def test_how_many_are_held(cut: Cut, round_: Round) -> None:
    """At most 64 requests are held at a time."""
    connections = [Asking(round_, 200) for _ in range(150)]

    async def ask() -> None:
        for connection in connections:
            connection.ask(b"1")
        await passes()

    asyncio.run(ask())
    assert [len(bodies) for bodies in cut.passes] == [64, 64, 22]
    assert all(each.transport.text == b"1" for each in connections)


def test_a_connection_that_closed(round_: Round) -> None:
    """Its reply is dropped, those of the others are sent."""
    closed, kept = Asking(round_, 3), Asking(round_, 3)

    async def ask() -> None:
        closed.ask(b"1")
        kept.ask(b"2")
        closed.transport.close()
        await passes()

    asyncio.run(ask())
    assert (closed.transport.text, kept.transport.text) == (b"", b"2")
