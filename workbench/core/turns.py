"""Turns of Python functions: who has one, who waits for one, and who would wait for ever.

A run that has a turn may ask another model, and wait for a turn there. If the run that has that
turn waits for the first one, or for one that does, neither ends. The last request that would close
such a circle is refused instead.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Self

from workbench.errors import RunFailed
from workbench.model import ModelId
from workbench.stop import CancellationToken

_lock = threading.Lock()  # of all places, through which a circle may lead


class Held:
    """The turn of a run; requests that it made wait at the places *waits*."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.waits: list[Place] = []

    def __enter__(self) -> Self:
        with _lock:
            self.place.held.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        with _lock:
            self.place.held.remove(self)


class Place:
    """A place for requests to wait for their turn at *model*, of whose runs *most* go on at once.

    0 is any number.
    """

    def __init__(self, model: ModelId, most: int) -> None:
        self.model = model
        self.most = most
        self.held: list[Held] = []

    def begin_wait(self, turns: Sequence[Held]) -> None:
        """A request of runs that have these *turns* waits here from now on.

        Raises ``RunFailed`` if it would never end.
        """
        if not turns:
            return
        with _lock:
            for held in turns:
                held.waits.append(self)
            circle = _circle(self, ())
            if circle is None:
                return
            self._forget(turns)
        names = [str(place.model.name) for place in (*circle, circle[0])]
        told = " waits for ".join(names)
        raise RunFailed(
            f"functions that each run one at a time wait for each other: {told}; "
            "serve one of them with concurrent=True",
            circle=names,
        )

    def end_wait(self, turns: Sequence[Held]) -> None:
        """The wait is over, in one way or another."""
        if turns:
            with _lock:
                self._forget(turns)

    def _forget(self, turns: Sequence[Held]) -> None:
        for held in turns:
            held.waits.remove(self)


def _circle(place: Place, before: tuple[Place, ...]) -> tuple[Place, ...] | None:
    """The places of a circle that nobody at *place* gets out of; ``None`` if somebody does.

    *before* are those that the search came through. All turns of a place must be waiting.
    """
    if not place.most or len(place.held) < place.most:
        return None
    through = (*before, place)
    circle = None
    for held in place.held:
        for each in held.waits:
            found = through[through.index(each) :] if each in through else _circle(each, through)
            if found is not None:
                circle = found
                break
        else:
            return None
    return circle


class Gate:
    """Gives threads turns in the order in which they come: as many at once as *place* says."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._lock = threading.Lock()
        self._waiting: deque[threading.Event] = deque()
        self._free = place.most

    @contextmanager
    def turn(
        self, held: Held, turns: Sequence[Held], stop: CancellationToken | None
    ) -> Iterator[None]:
        """A context with a turn, which *held* stands for; the thread waits for it.

        The runs with these *turns* wait for it too. Raises the error of *stop* if that is set, and
        ``RunFailed``.
        """
        if not self._place.most:
            yield
            return
        self._enter(turns, stop)
        try:
            with held:
                yield
        finally:
            self._leave()

    def _enter(self, turns: Sequence[Held], stop: CancellationToken | None) -> None:
        mine = threading.Event()
        with self._lock:
            if self._free:
                self._free -= 1
                return
            self._waiting.append(mine)
        try:
            self._place.begin_wait(turns)
            try:
                self._wait(mine, stop)
            finally:
                self._place.end_wait(turns)
        except BaseException:
            self._give_up(mine)
            raise

    def _wait(self, mine: threading.Event, stop: CancellationToken | None) -> None:
        if stop is None:
            mine.wait()
            return
        with stop.calls(mine.set):
            mine.wait()
        if stop.error is not None:
            raise stop.error

    def _give_up(self, mine: threading.Event) -> None:
        with self._lock:
            waited = mine in self._waiting
            if waited:
                self._waiting.remove(mine)
        if not waited:  # it had just got its turn
            self._leave()

    def _leave(self) -> None:
        with self._lock:
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._free += 1
