"""How often a view of a server is drawn again: often while something happens, else seldom."""

from __future__ import annotations

from collections.abc import Hashable

LIVE_S = 0.5
"""Between two draws, at least."""

IDLE_S = 5.0
"""After this time a view is drawn again though nothing changed: figures of the system did."""


_SHARE = 1 / 400  # of a processor that updates may take: more is felt in the p99 of requests
_SLOW_S = 1.0  # between two draws, at most, while something changes


def pause_s(spent_s: float) -> float:
    """The pause after a draw that took *spent_s* of CPU time: ``LIVE_S``, longer after a dear one.

    An update of 2.5 ms each second leaves the p99 of one client within a tenth of what it is
    without (``benchmarks/dashboard.py --live``); twice a second it makes it 1.4 times as long.
    """
    return min(_SLOW_S, max(LIVE_S, spent_s / _SHARE))


class Pace:
    """When to draw: at once if something changed, and every ``IDLE_S`` if nothing did."""

    def __init__(self) -> None:
        self._mark: Hashable = None
        self._drawn_s = float("-inf")

    def is_due(self, mark: Hashable, now_s: float) -> bool:
        """Whether to draw at *now_s*. The *mark* differs after every change."""
        if mark == self._mark and now_s - self._drawn_s < IDLE_S:
            return False
        self._mark, self._drawn_s = mark, now_s
        return True
