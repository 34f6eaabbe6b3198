"""Requests that wait for a model: their order, their waits, and which run together; pure.

The rules are those of Triton's dynamic batcher: the highest priority (the lowest number) first, a
batch of a preferred size if possible, and no waiting for more requests unless a delay is
configured. The first request that does not fit completes the batch, which then runs at once.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from workbench.errors import QueueRefused
from workbench.model import Batching, QueuePolicy

_FULL = "the queue of this model is full: its policy lets no more requests wait"
EXPIRED = "the request waited in the queue of this model for as long as its time limit allows"


@dataclass(slots=True, eq=False)
class Waiting:
    """A request that waits: *size* elements of a batch, with others of the same *key* only.

    *level* and *timeout_s*: its priority and time limit, 0 if it has none.
    """

    key: Hashable
    size: int
    level: int = 0
    timeout_s: float = 0.0
    came_s: float = 0.0
    deadline_s: float = math.inf


_W = TypeVar("_W", bound=Waiting)


class Taken(NamedTuple, Generic[_W]):
    """The *batch* that may run now, the requests that *expired*, and how long to wait at most."""

    batch: list[_W]
    expired: list[_W]
    wait_s: float | None = None


class BatchQueue(Generic[_W]):
    """Requests for a model whose batches have up to *most* elements; 0 without batches."""

    def __init__(self, batching: Batching, most: int) -> None:
        self._batching = batching
        self._most = most
        # A batch waits until it has this size.
        self._largest = max(batching.preferred, default=most)
        count = max(1, batching.levels)
        self._levels: list[deque[_W]] = [deque() for _ in range(count)]
        # requests whose time limit has passed; they run after the others of their level
        self._late: list[deque[_W]] = [deque() for _ in range(count)]
        self._has_deadlines = False
        self._company, self._company_s = 0, -math.inf

    def __len__(self) -> int:
        return sum(map(len, (*self._levels, *self._late)))

    def add(self, waiting: _W, now_s: float) -> None:
        """Add *waiting*. Raises ``QueueRefused`` if its queue is full."""
        level = waiting.level if 0 < waiting.level <= self._batching.levels else 0
        level = level or self._batching.default_level or 1
        policy = self._policy(level)
        queue = self._levels[level - 1]
        if policy.most and len(queue) + len(self._late[level - 1]) >= policy.most:
            raise QueueRefused(_FULL)
        waiting.came_s = now_s
        timeout_s = policy.timeout_s
        if policy.may_override and waiting.timeout_s:
            timeout_s = min(timeout_s or waiting.timeout_s, waiting.timeout_s)
        if timeout_s:
            waiting.deadline_s = now_s + timeout_s
            self._has_deadlines = True
        waiting.level = level
        queue.append(waiting)

    def take(self, now_s: float) -> Taken[_W]:
        """Take the requests to run now out of the queue, and those that waited too long."""
        expired = self._expire(now_s)
        pending, is_closed = self._pending()
        if not pending:
            return Taken([], expired)
        if not is_closed and now_s < self._company_s and len(pending) < self._company:
            return Taken([], expired, self._company_s - now_s)
        delay_s = self._batching.delay_s
        over_s = min(each.came_s for each in pending) + delay_s
        if not delay_s or now_s < over_s:
            best = self._best(pending)
            if not best and delay_s and not is_closed:
                next_s = min(over_s, *(each.deadline_s for each in self._in_order()))
                return Taken([], expired, next_s - now_s)
            pending = pending[: best or len(pending)]
        for each in pending:
            self.remove(each)
        return Taken(pending, expired)

    def expect(self, company: int, until_s: float) -> None:
        """Have a batch wait until there are *company* requests, but not after *until_s*."""
        self._company, self._company_s = company, until_s

    def remove(self, waiting: _W) -> bool:
        """Remove *waiting*. Returns False if it is not in the queue."""
        for queue in (self._levels[waiting.level - 1], self._late[waiting.level - 1]):
            if waiting in queue:
                queue.remove(waiting)
                return True
        return False

    def _policy(self, level: int) -> QueuePolicy:
        return self._batching.policies.get(level, self._batching.policy)

    def _expire(self, now_s: float) -> list[_W]:
        """Take out requests that waited too long, or move them to the end if so configured."""
        expired: list[_W] = []
        if not self._has_deadlines:
            return expired
        for number, queue in enumerate(self._levels, 1):
            over = [each for each in queue if each.deadline_s <= now_s]
            if not over:
                continue
            self._levels[number - 1] = deque(each for each in queue if each.deadline_s > now_s)
            if not self._policy(number).delays:
                expired.extend(over)
                continue
            for each in over:
                each.deadline_s = math.inf
            self._late[number - 1].extend(over)
        return expired

    def _in_order(self) -> Iterator[_W]:
        for queue, late in zip(self._levels, self._late, strict=True):
            yield from queue
            yield from late

    def _pending(self) -> tuple[list[_W], bool]:
        """The first requests that fit into one batch, and whether the batch is complete.

        No request overtakes another: the first that does not fit completes the batch.
        """
        pending: list[_W] = []
        size = 0
        for each in self._in_order():
            if pending and (each.key != pending[0].key or size + each.size > self._most):
                return pending, True
            pending.append(each)
            size += each.size
        return pending, size >= self._largest

    def _best(self, pending: list[_W]) -> int:
        """How many of *pending* make the largest preferred size that is possible; 0 if none is.

        Otherwise as many as stay within the largest preferred size.
        """
        best = size = 0
        for count, each in enumerate(pending):
            size += each.size
            if size in self._batching.preferred:
                best = count + 1
            elif size > self._largest:
                return best or count
        return best
