"""A stream of requests, which run in parallel and are answered in their order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from threading import Lock, Semaphore
from typing import NamedTuple, Protocol

import grpc

from workbench.threads import start_thread

_MOST_AT_ONCE = 64  # requests of a stream that were read and not answered
_PLACE_NBYTES = 2**20  # a request counts as one more for each of these


class Replies(Protocol):
    """The replies to one request: ``take`` gives the next, ``None`` after the last one."""

    def take(self) -> Future[bytes | None]: ...

    def cancel(self) -> object: ...


class OneReply:
    """The only *reply* to a request, or its error."""

    def __init__(self, reply: bytes | Exception) -> None:
        self._left: list[bytes | Exception] = [reply]

    def take(self) -> Future[bytes | None]:
        future: Future[bytes | None] = Future()
        reply = self._left.pop() if self._left else None
        if isinstance(reply, Exception):
            future.set_exception(reply)
        else:
            future.set_result(reply)
        return future

    def cancel(self) -> None:
        """Nothing is under way."""


class Begun(NamedTuple):
    """A request that runs: its *id* and its *replies*."""

    id: str
    replies: Replies


class Stream:
    """The requests of a stream; *begin* starts one, and raises nothing.

    They run in parallel. Replies come in the order of the requests, as Triton's do: otherwise its
    clients cannot tell to which request an error belongs. While too many requests have no reply, or
    large ones, no more are read: a client that takes no replies does not fill the memory.
    """

    def __init__(self, begin: Callable[[bytes], Begun]) -> None:
        self._begin = begin
        self._places = Semaphore(_MOST_AT_ONCE)
        self._lock = Lock()
        self._running: deque[tuple[Begun, int]] = deque()  # and how many places it takes
        self._next: SimpleQueue[Begun | None] = SimpleQueue()  # None: there are no more
        self._reads = True
        self._has_ended = False
        self.was_cut = False  # whether it ended before the client had sent all

    def begun(self, messages: Iterator[bytes]) -> Iterator[Begun]:
        """The requests in *messages*, each of which has a reply before the next is taken.

        Raises ``ThreadsExhausted``.
        """
        start_thread(lambda: self._read(messages), "workbench-grpc-stream")
        while (begun := self._next.get()) is not None:
            yield begun
            _, places = self._running.popleft()
            self._places.release(places)

    def finish(self) -> None:
        """Read no more: the server begins to stop. Running requests are answered first."""
        self.was_cut, self._reads = self._reads, False
        self._next.put(None)

    def end(self) -> None:
        """Read no more, and cancel running requests: the client has left."""
        with self._lock:
            self._has_ended = True
            running = list(self._running)
        for begun, _ in running:
            begun.replies.cancel()
        self._places.release()

    def _read(self, messages: Iterator[bytes]) -> None:
        try:
            with suppress(grpc.RpcError):  # the client has left, and the call knows it
                for data in messages:
                    places = min(1 + len(data) // _PLACE_NBYTES, _MOST_AT_ONCE)
                    for _ in range(places):
                        self._places.acquire()
                        if self._has_ended or not self._reads:
                            return
                    self._add(self._begin(data), places)
        finally:
            self._reads = False
            self._next.put(None)

    def _add(self, begun: Begun, places: int) -> None:
        with self._lock:
            self._running.append((begun, places))
            has_ended = self._has_ended
        if has_ended:  # meanwhile
            begun.replies.cancel()
        self._next.put(begun)
