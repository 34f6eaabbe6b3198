"""Running a model whose configuration has ``response_cache``."""

from __future__ import annotations

import time

from workbench.core.inference.response_cache import ResponseCache, copies_of, key_of
from workbench.core.inference.runner import INLINE_S, Pending, Read, ReadAll, Runner, Soon, Turn
from workbench.inference import InferRequest, InferResponse
from workbench.model import ModelId
from workbench.statistics import RequestStatistics

_MOST_INLINE_NBYTES = 2**17  # the digest of inputs of this size takes about 0.1 ms


class Cached:
    """Answers for *model* from the *cache* if possible, or else by *inner*; *requests* counts both.

    Errors are neither kept nor counted here.
    """

    needs_thread = True  # the digest reads all inputs
    direct = None  # every request must ask the cache first

    def __init__(
        self, model: ModelId, inner: Runner, cache: ResponseCache, requests: RequestStatistics
    ) -> None:
        self.model = model
        self.describe = inner.describe
        self.cache = cache
        self.requests = requests
        requests.cached()
        self._inner = inner

    def run_now(self, read: Read, longest_s: float = INLINE_S) -> InferResponse | None:
        request = read(self.describe)
        if request.nbytes > _MOST_INLINE_NBYTES:
            return None
        lookup = _Lookup(self, request)
        response = lookup.found()
        if response is None:
            response = self._inner.run_now(lambda _: request, longest_s)
            if response is not None:
                lookup.keep(response)
        return response

    def run_all_now(self, read: ReadAll, soon: Soon | None = None) -> None:
        """Each is to be asked for alone."""

    def start(self, request: InferRequest, turn: Turn) -> InferResponse | Pending:
        lookup = _Lookup(self, request)
        response = lookup.found()
        if response is not None:
            turn.begun()
            return response
        answer = self._inner.start(request, _Turn(turn, lookup))
        if isinstance(answer, InferResponse):
            lookup.keep(answer)
        return answer


class _Lookup:
    """The lookup of one *request* in the cache of *owner*.

    The request then has copies of its inputs, and no memory for outputs: its client may change what
    it shares while the request waits or runs, and others would get an answer to another question.
    The copies take 1 µs, and from 64 KiB on 3 % of the time of the key.
    """

    def __init__(self, owner: Cached, request: InferRequest) -> None:
        begun_s = time.perf_counter()
        request.inputs = copies_of(request.inputs)
        request.into = None
        self._owner = owner
        self._request = request
        self._key = key_of(request)  # now: the run may change the request
        self._seconds = time.perf_counter() - begun_s

    def found(self) -> InferResponse | None:
        """The cached answer, if there is one; counts it as a hit."""
        owner, request, begun_s = self._owner, self._request, time.perf_counter()
        outputs = owner.cache.find(owner, self._key)
        ended_s = time.perf_counter()
        self._seconds += ended_s - begun_s
        if outputs is None:
            return None
        queued_s = ended_s - request.made_s - self._seconds
        owner.requests.hit(max(0.0, queued_s), self._seconds)
        return InferResponse(owner.model, outputs, request.id)

    def keep(self, response: InferResponse) -> None:
        """Keep the answer of a run; counts it as a miss."""
        owner, begun_s = self._owner, time.perf_counter()
        owner.cache.keep(owner, self._key, response.outputs)
        owner.requests.missed(self._seconds + time.perf_counter() - begun_s)


class _Turn:
    """The *turn* of a request; its answer is added to the cache."""

    def __init__(self, turn: Turn, lookup: _Lookup) -> None:
        self._turn = turn
        self._lookup = lookup

    def begun(self) -> None:
        self._turn.begun()

    def done(self, answer: InferResponse | BaseException) -> None:
        if isinstance(answer, InferResponse):
            self._lookup.keep(answer)
        self._turn.done(answer)
