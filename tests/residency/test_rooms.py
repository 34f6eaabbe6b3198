"""Which requests may go before those that wait."""

import pytest

from workbench.residency.admission import Ahead, Queue
from workbench.residency.state import DeviceBooks, DeviceRoom


def test_nobody_waits() -> None:
    """What needs no memory, as a function, is in nobody's way where it waits."""
    queue, device = Queue(), DeviceBooks(0, 100)
    queue.wait(device, 0, DeviceRoom(100, free_nbytes=-1))
    assert not queue
    queue.wait(device, 1, DeviceRoom(100, free_nbytes=-1))
    assert not queue[device].lets_pass(1)


# What models of requests that went first claim; who waits: needs, free now, room that may be made
# now and later, and what leaves; and the most that a later request may have, -1 if it waits too.
AHEAD: dict[str, tuple[int, list[tuple[int, ...]], int]] = {
    "a later request may have what those ahead do not need of all that there will be":
        (0, [(50, 10, 0, 90), (10, 0, 0, 100)], 40),
    "those that went first together take no more than that": (15, [(60, 10, 10, 80)], 25),
    "where more than those that went first is in the way, others still may": (
        29, [(60, 10, 20, 70)], 11),
    "where only those that went first are in the way, nobody goes first any more":
        (30, [(60, 10, 20, 70)], -1),
    "one in whose way they are is enough": (10, [(30, 10, 10, 80), (40, 10, 10, 80)], -1),
    "one that waits for free memory alone leaves less than one for which others may leave":
        (0, [(50, 20), (30, 20, 0, 80)], -1),
    "models that leave once their runs have ended make room":
        (0, [(50, 10, 0, 40, 50)], 50),
}  # fmt: skip


@pytest.mark.parametrize(("passed_nbytes", "waiting", "most"), AHEAD.values(), ids=AHEAD)
def test_who_goes_first(passed_nbytes: int, waiting: list[tuple[int, ...]], most: int) -> None:
    """What a later request may have beside those that wait."""
    ahead = Ahead(passed_nbytes)
    for needs, free, *more in waiting:
        now, later, leaving = [*more, 0, 0, 0][:3]
        room = DeviceRoom(100, free, now_nbytes=now, later_nbytes=later, leaving_nbytes=leaving)
        ahead.wait(needs, room)
    assert ahead.lets_pass(max(most, 0)) == (most >= 0)
    assert not ahead.lets_pass(most + 1)
