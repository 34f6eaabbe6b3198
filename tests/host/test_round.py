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


# Of so many connections some ask: "ask 0 1" connections 0 and 1, "ask 0-3" each of four, "alone"
# with a pass after each. "pass 3" is of the event loop, "later 2" ms. "done 2 1" is how many
# requests were answered at a time so far.
ROUNDS = {
    "once all connections have a request, all are answered at once, and none before":
        (3, "ask 0 1; done; ask 2; done 3; ask 0-2; done 3 3"),
    "a round goes on while passes of the event loop bring requests, and ends with the next one":
        (9, "alone 0-3; done; pass 3; done 4; ask 4; pass 3; done 4 1"),
    "a round ends when its first request came 2 ms ago, even if passes go on to bring requests":
        (20, "alone 0-19 later 0.6; done 5 5 5 5"),
    "where something follows on a connection the round ends at once; what comes then is kept":
        (2, "ask 0; end; done 1; ask 0; done 1; pass 3; done 1 1"),
    "at most 64 requests are held at a time": (200, "ask 0-149; pass 3; done 64 64 22"),
    "the reply to a connection that closed is dropped, those of the others are sent":
        (3, "ask 0 1; close 0; pass 3; done 2"),
}  # fmt: skip


@pytest.mark.parametrize(("count", "script"), ROUNDS.values(), ids=ROUNDS)
def test_rounds(cut: Cut, count: int, script: str) -> None:
    """When requests are answered, and how many at a time; each connection gets its own replies."""
    now_s = [10.0]
    round_ = Round(cut, Linger(), lambda: now_s[0])  # type: ignore[arg-type]
    connections = [Asking(round_, count) for _ in range(count)]
    asked = [0] * count

    async def play() -> None:
        for step in script.split("; "):
            verb, *words = step.split()
            first, _, last = (words or ["0"])[0].partition("-")
            match verb:
                case "ask" | "alone":
                    numbers = range(int(first), int(last) + 1) if last else map(int, words)
                    for number in numbers:
                        connections[number].ask(b"%d" % number, now_s[0])
                        asked[number] += 1
                        await passes(verb == "alone")
                        now_s[0] += 0.0006 * ("later" in words)
                case "pass":
                    await passes(int(first))
                case "end":
                    round_.end()
                case "close":
                    connections[int(first)].transport.close()
                    asked[int(first)] = 0
                case "done":
                    assert [len(each) for each in cut.passes] == [int(word) for word in words]

    asyncio.run(play())
    for number, connection in enumerate(connections):
        assert connection.transport.text == b"%d" % number * asked[number]


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
