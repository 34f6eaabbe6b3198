"""The data plane's cases, which are the same over every wire: models, inputs, outputs, errors."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import inside
import pytest
from each_wire import RefusedError, Rig, Wire

from workbench.model import Batching, Schedule
from workbench.statistics import FailureReason

Play = Callable[[Callable[[Wire], Coroutine[Any, Any, None]]], None]


async def answer(wire: Wire, model: str, x: Any = None, **more: Any) -> Any:
    return await (await wire.ask(model, x, **more)).answer()


def test_answers(rig: Rig, play: Play) -> None:
    """Loaded on demand, in its turn, on the spot: the answer is the same."""
    rig.gate.set()
    rig.serve("f")
    rig.serve("batched", Schedule(1, Batching()))

    async def case(wire: Wire) -> None:
        for _ in range(3):
            assert await answer(wire, "a", [1, 2]) == [1.0, 2.0]
        assert await answer(wire, "a", [1, 2], version=1) == [1.0, 2.0]
        assert await answer(wire, "f", [1, 2]) == [2.0, 4.0]
        assert await answer(wire, "batched", [[1], [2]]) == [[2.0], [4.0]]
        assert await answer(wire, "b", [3]) == [3.0]  # a leaves for it
        assert await answer(wire, "f", []) == []

    play(case)
    assert rig.leases() == 0


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"model": "nobody", "x": [1]}, "nobody"),
        ({"model": "a", "x": [1], "version": 7}, "7"),
        ({"model": "a", "x": ["a"]}, "could not|FP32|input"),
        ({"model": "a", "x": [[1]]}, r"takes shape \[-1\], got \[1, 1\]"),
        ({"model": "nobody", "verb": "load"}, "nobody"),
    ],
)
def test_errors(rig: Rig, play: Play, asked: dict[str, Any], told: str) -> None:
    """Each is one line, and leaves nothing in use; the next request is answered."""

    async def case(wire: Wire) -> None:
        with pytest.raises(RefusedError, match=told) as caught:
            await answer(wire, **asked)
        assert len(str(caught.value).splitlines()) == 1
        assert await answer(wire, "a", [1]) == [1.0]

    play(case)
    assert rig.leases() == 0


def all_gone(rig: Rig) -> bool:
    """Whether the server knows of each request under way that nobody waits for it."""
    under_way = rig.core._running().requests.under_way
    return all(stop.error for _, stop in list(under_way.values()))


@pytest.mark.usefixtures("no_grace")
@pytest.mark.parametrize("schedule", [None, Schedule(1, Batching())])
def test_a_client_that_goes_away(rig: Rig, play: Play, schedule: Schedule | None) -> None:
    """Its request that waits is not run, and all leases come back once its run has ended.

    In a queue it is known when both count as cancelled.
    """
    rig.serve("f", schedule)
    row: Any = [[1]] if schedule else [1]

    async def case(wire: Wire) -> None:
        gone = [await wire.ask("f", row)]
        await rig.entered()
        gone.append(await wire.ask("f", row))
        await rig.until(lambda: rig.leases() == 2)
        if schedule:
            await rig.until(lambda: inside.queued(rig.core, "f") == 1)
        for each in gone:
            each.hang_up()
        if schedule:
            await rig.until(lambda: rig.leases() == 1 and all_gone(rig))
        rig.gate.set()
        await rig.until(lambda: rig.leases() == 0)
        assert await answer(wire, "f", row) == ([[2.0]] if schedule else [2.0])

    play(case)
    if schedule:
        assert rig.core.status.of("f").requests.failures == {FailureReason.CANCELED: 2}


@pytest.mark.usefixtures("no_grace")
def test_a_client_that_goes_away_while_its_model_loads(rig: Rig, play: Play) -> None:
    """The load goes on; the lease goes back."""
    rig.loader.gates["a"] = gate = threading.Event()

    async def case(wire: Wire) -> None:
        gone = await wire.ask("a", [1])
        await rig.until(lambda: rig.core.events.since()[-1].event.kind == "loading")
        gone.hang_up()
        await rig.until(lambda: rig.core.status.of("a").pending == 0)
        gate.set()
        assert await answer(wire, "a", [1]) == [1.0]

    play(case)
    assert rig.leases() == 0


def test_unloads_under_load(rig: Rig, play: Play) -> None:
    """Each request is answered, by the model as it was or once it is loaded again."""

    async def case(wire: Wire) -> None:
        for round_ in range(10):
            asked = [await wire.ask("a", [number]) for number in range(10)]
            unload = await wire.ask("a" if round_ % 2 else "b", verb="unload")
            asked.append(await wire.ask("b", [10]))
            told = await asyncio.gather(*(each.answer() for each in asked))
            assert told == [[float(number)] for number in range(11)]
            assert await unload.answer() is None

    play(case)
    assert rig.leases() == 0


def test_an_unload_of_what_does_not_end(
    rig: Rig, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers the requests that are under way with an error, and returns."""
    monkeypatch.setattr("workbench.core.lifecycle.loads._END_S", 0.0)
    monkeypatch.setattr("workbench.core.lifecycle.loads._GRACE_S", 0.0)
    rig.serve("f")

    async def case(wire: Wire) -> None:
        asked = [await wire.ask("f", [1]) for _ in range(9)]
        await rig.until(lambda: rig.leases() == 9)
        await rig.entered()
        unload = await wire.ask("f", verb="unload")
        for each in asked:
            with pytest.raises(RefusedError, match="f:1 was unloaded while"):
                await each.answer()
        assert await unload.answer() is None

    play(case)
