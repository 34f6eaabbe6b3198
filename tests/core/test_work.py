"""Jobs for threads, where the threads have ended."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

from workbench.core.inference.work import Work


class Owner:
    """Who has the work, and takes note."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.work = Work(ended, self.refuse)

    def refuse(self) -> None:
        self.told.append("refused")


def ended(_: Callable[[], object]) -> Future[None]:
    raise RuntimeError("the threads have ended")


def test_the_threads_have_ended() -> None:
    """Who has the work hears of it before what is left is done on the spot."""
    owner = Owner()
    owner.work.add(lambda: owner.told.append("done"))
    assert owner.told == ["refused", "done"]


def test_nobody_has_the_work_any_more() -> None:
    """The work does not keep who has it; what is left is done all the same."""
    done: list[str] = []
    work = Owner().work
    work.add(lambda: done.append("done"))
    assert done == ["done"]
