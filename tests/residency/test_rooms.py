"""Which requests may go before those that wait."""

import pytest

from workbench.residency.rooms import Ahead, Queue
from workbench.residency.state import DeviceBooks, DeviceRoom


def test_nobody_waits() -> None:
    """What needs no memory, as a function, is in nobody's way where it waits."""
    queue, device = Queue(), DeviceBooks(0, 100)
    queue.wait(device, 0, DeviceRoom(100, free_nbytes=-1))
    assert not queue
    queue.wait(device, 1, DeviceRoom(100, free_nbytes=-1))
    assert not queue[device].lets_pass(1)


@pytest.mark.parametrize(("nbytes", "passes"), [(40, True), (41, False)])
def test_who_goes_first(nbytes: int, passes: bool) -> None:
    """A later request may have what those ahead do not need of all that there will be."""
    ahead = Ahead(passed_nbytes=0)
    ahead.wait(50, DeviceRoom(100, free_nbytes=10, now_nbytes=0, later_nbytes=90))
    ahead.wait(10, DeviceRoom(100, free_nbytes=0, now_nbytes=0, later_nbytes=100))
    assert ahead.lets_pass(nbytes) == passes


def test_who_went_first_is_in_nobodys_way() -> None:
    """Where only those that went first are in the way, nobody goes first any more."""
    room = DeviceRoom(100, free_nbytes=10, now_nbytes=20, later_nbytes=70)
    for passed_nbytes, passes in ((29, True), (30, False)):
        ahead = Ahead(passed_nbytes)
        ahead.wait(60, room)
        assert ahead.lets_pass(10) == passes


def test_those_that_went_first_share_what_is_not_needed() -> None:
    """All of them together take no more than those ahead do not need."""
    ahead = Ahead(passed_nbytes=15)
    ahead.wait(60, DeviceRoom(100, free_nbytes=10, now_nbytes=10, later_nbytes=80))
    assert ahead.lets_pass(25)
    assert not ahead.lets_pass(26)


def test_the_least_that_any_of_them_leaves() -> None:
    """One that waits for free memory alone leaves less than one for which others may leave."""
    ahead = Ahead(passed_nbytes=0)
    ahead.wait(50, DeviceRoom(100, free_nbytes=20))
    ahead.wait(30, DeviceRoom(100, free_nbytes=20, later_nbytes=80))
    assert not ahead.lets_pass(1)


def test_what_leaves_is_room() -> None:
    """Models that leave once their runs have ended make room for those that wait."""
    ahead = Ahead(passed_nbytes=0)
    ahead.wait(50, DeviceRoom(100, free_nbytes=10, later_nbytes=40, leaving_nbytes=50))
    assert ahead.lets_pass(50)
    assert not ahead.lets_pass(51)


def test_one_in_whose_way_the_first_are_is_enough() -> None:
    """Another that waits behind it, for more, lets nobody go first again."""
    room = DeviceRoom(100, free_nbytes=10, now_nbytes=10, later_nbytes=80)
    ahead = Ahead(passed_nbytes=10)
    ahead.wait(30, room)
    ahead.wait(40, room)
    assert not ahead.lets_pass(1)
