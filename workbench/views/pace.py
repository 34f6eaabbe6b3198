"""How often a view of a server is drawn again: often while something happens, else seldom."""

from __future__ import annotations

from collections.abc import Hashable

LIVE_S = 0.5
"""Between two draws, at least."""

IDLE_S = 5.0
"""After this time a view is drawn again though nothing changed: figures of the system did."""


_SHARE = 1 / 500  # of a processor that draws for requests may take: more is felt in their p99
_SLOW_S = 1.0  # between two draws, at most, while requests come


class Pace:
    """The times of draws: at once after an event, soon after requests, else every ``IDLE_S``.

    While requests come, a draw that took long is repeated later, so that they feel it less:
    ``benchmarks/dashboard.py --live`` measures how much.
    """

    def __init__(self) -> None:
        self._mark: Hashable = None
        self._answered_s = 0.0
        self._drawn_s = self._whole_s = float("-inf")
        self._pause_s = LIVE_S
        self.is_whole = True
        """Whether all is to be drawn, and not only what requests change."""

    def is_due(self, mark: Hashable, answered_s: float, now_s: float) -> bool:
        """True if the page is to be drawn at *now_s*; ``is_whole`` then says how much of it.

        The *mark* differs after every event; the last request was answered at *answered_s*.
        """
        since_s = now_s - self._drawn_s
        answers = answered_s != self._answered_s and since_s >= self._pause_s
        self.is_whole = mark != self._mark or now_s - self._whole_s >= IDLE_S
        if not self.is_whole and not answers:
            return False
        if self.is_whole:
            self._whole_s = now_s
        self._mark, self._answered_s, self._drawn_s = mark, answered_s, now_s
        return True

    def spent(self, cpu_s: float) -> None:
        """A draw took *cpu_s* of CPU time."""
        self._pause_s = min(_SLOW_S, max(LIVE_S, cpu_s / _SHARE))
