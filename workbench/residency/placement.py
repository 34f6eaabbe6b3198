"""On which of several devices a model is loaded: a pure function."""

from __future__ import annotations

from collections.abc import Sequence


def roomiest(
    need_nbytes: int,
    budgets: Sequence[int],
    free: Sequence[int],
    system: Sequence[int | None],
) -> int:
    """The number of the device with the most room for a model of *need_nbytes*.

    By the books, of which *free* bytes of each device are not promised, and by the *system*,
    which may not say. A device that could never hold the model comes last; the first of equals.
    """

    def room(number: int) -> tuple[bool, int]:
        by_system = system[number] if number < len(system) else None
        free_nbytes = free[number] if by_system is None else min(free[number], by_system)
        return budgets[number] >= need_nbytes, free_nbytes

    return max(range(len(budgets)), key=room)
