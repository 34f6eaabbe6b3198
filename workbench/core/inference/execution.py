"""One request to an ensemble, as it is executed: its parts are leased, its steps run.

No thread waits for a load or for a turn: the thread that ends one step does the next, and
steps that can run beside it are given to others.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from workbench.backends.ensemble import EnsembleSession
from workbench.backends.ensemble import Part as Named
from workbench.core.inference.flow import Flow
from workbench.core.inference.runner import Begun, Borrowed, Part, Runner
from workbench.core.inference.steps import (
    Leased,
    asked_of,
    more_parts,
    needing,
    output_of,
    placed,
)
from workbench.core.inference.under_way import UnderWay
from workbench.core.inference.waits import Waits
from workbench.core.inference.work import Job, Work
from workbench.core.leases import Leases
from workbench.core.names import Names
from workbench.core.runs import Runs
from workbench.errors import RequestStopped, RunFailed, ServerNotRunning, WaitedTooLong
from workbench.inference import InferRequest, InferResponse
from workbench.model import ModelId, Step
from workbench.residency import Lease
from workbench.seconds import show_seconds
from workbench.stop import Stop

_Go = Callable[[], "list[Step] | None"]  # the steps that can begin then; None: it has not ended


@dataclass(frozen=True, slots=True)
class Means:
    """What executions need: *leases* on parts, by their *names*, *runs*, and parts' runners.

    *submit_work* gives what is to be done to threads; *waits* bounds the waits for turns; those
    *under_way* are told when one of their parts is to be unloaded.
    """

    leases: Leases
    names: Names
    runs: Runs
    runner_of: Callable[[Borrowed], Runner]
    waits: Waits
    under_way: UnderWay
    submit_work: Callable[[Job, Hashable], Future[Any]]

    def execution(
        self,
        held: Borrowed,
        request: InferRequest,
        begun: Begun,
        parent: Execution | None = None,
    ) -> Execution:
        """What *request* begins with; that of a step of another ensemble has a *parent*.

        Raises ``InvalidRequest``.
        """
        try:
            wanted = self.runs.fit(held, request)
            if held.model in self.runs.within:
                raise RunFailed(f"{held.model} cannot be called from within its own run")
            return Execution(self, held, request, wanted, begun=begun, parent=parent)
        except BaseException as error:
            self.runs.count_failure(held.model, error, request.made_s)
            raise

    def work(self, held: Borrowed, refuse: Job) -> Work:
        """The work of one request, for which others of the same ensemble leave room."""
        key: Hashable = object() if self.runs.within else held.model
        return Work(partial(self._submit, key), refuse)

    def _submit(self, key: Hashable, job: Job) -> Future[Any]:
        return self.submit_work(job, key)

    def model(self, part: Named) -> ModelId:
        """The edition of *part* that answers. Raises as ``Names.find``."""
        return self.names.current(self.names.find(*part))


class Execution:
    """One request to the ensemble *held*; of a step of another, with its *parent*."""

    def __init__(
        self,
        means: Means,
        held: Borrowed,
        request: InferRequest,
        wanted: tuple[str, ...],
        *,
        begun: Begun,
        parent: Execution | None = None,
    ) -> None:
        assert isinstance(held.session, EnsembleSession)
        self.future: Future[InferResponse] = Future()
        self.work: Work = parent.work if parent else means.work(held, self._refuse)
        self.leased: Leased | None = parent.leased if parent else None
        self._means = means
        self._held = held
        self._begun = begun
        self._session = held.session
        self._request = request
        self._wanted = wanted
        self._plan = held.session.plan(wanted)
        self._flow = Flow(self._plan, request.inputs)
        self._within = (*means.runs.within, held.model)
        self._outer = means.runs.kept
        self._kept = (*self._outer, held.model)
        self._began_s = self._own_s = 0.0
        self._lock = threading.Lock()
        self._stop = Stop()  # of the steps
        self._ending = ExitStack()
        self._error: BaseException | None = None
        self._open = 1  # what is under way
        self._coming: set[Future[Any]] = set()  # of which so much is waited for

    def begin(self) -> None:
        """Lease the models, and run the first steps."""
        if not self.future.set_running_or_notify_cancel():
            self._fail(RequestStopped("nobody waits for it any more"))
        elif self._request.stop is not None:
            self._ending.enter_context(self._request.stop.calls(self._stopped))
        self._ending.enter_context(self._stop.calls(self._ended))
        self._go(self._lease_parts)

    # ── doing, and waiting ──

    def _go(self, job: _Go) -> None:
        """Do *job*, the first step that it lets begin, and so on; others do the rest."""
        todo: _Go | None = job
        while todo is not None:
            begin = self._done(todo)
            for step in begin[1:]:
                self.work.add(partial(self._go, partial(self._step, step)))
            todo = partial(self._step, begin[0]) if begin else None

    def _done(self, job: _Go) -> list[Step]:
        """Do *job*; the steps that can begin now."""
        begin: list[Step] | None
        try:
            with self._means.runs.on_behalf(self._within, self._kept):
                begin = job()
        except BaseException as error:  # the request is answered with it
            self._fail(error)
            begin = []
        if begin is None:  # it goes on once something has come
            return []
        with self._lock:
            begin = [] if self._error else begin
            self._open += len(begin) - 1
            is_over = not self._open
        if is_over:
            self._end()
        return begin

    def _await(
        self, coming: Future[Any], go_on: Callable[[Future[Any]], list[Step] | None]
    ) -> None:
        """Go on with what is *coming* once it has come."""
        with self._lock:
            self._coming.add(coming)
            is_over = self._error is not None
        if is_over:
            coming.cancel()

        def came(done: Future[Any]) -> None:
            with self._lock:
                self._coming.discard(done)
            self.work.add(partial(self._go, partial(go_on, done)))

        coming.add_done_callback(came)

    def _fail(self, error: BaseException) -> None:
        """No step begins any more, and those that run are to end; the first *error* counts."""
        with self._lock:
            self._error = self._error or error
            coming = list(self._coming)
        if not isinstance(error, RequestStopped):
            self._stop.set(RequestStopped("another step failed"))
        else:
            self._stop.set(error)
            if self._request.stop is not None:  # who waits need not wait for what cannot be ended
                self._request.stop.set(error)
        for each in coming:
            each.cancel()

    def _ended(self) -> None:
        """The steps are to end: a part of it is to be unloaded, unless one failed."""
        assert self._stop.error is not None
        if self._error is None:
            self._fail(self._stop.error)

    def _stopped(self) -> None:
        assert self._request.stop is not None
        assert self._request.stop.error is not None
        self._fail(self._request.stop.error)

    def _refuse(self) -> None:
        self._fail(ServerNotRunning("the server is stopping"))

    def _end(self) -> None:
        """Nothing is under way any more: give the parts back, and the answer."""
        request, held, runs = self._request, self._held, self._means.runs
        response: InferResponse | None = None
        error = self._error
        try:
            self._ending.close()
            if error is None:
                outputs = {n: output_of(held, n, self._flow.result(n)) for n in self._wanted}
                times = self._began_s, self._own_s
                response = runs.answer(held, request, outputs, *times)
        except BaseException as failure:  # the request is answered with it
            error = error or failure
        if error is not None:
            runs.count_failure(held.model, error, request.made_s)
        if self.future.cancelled():
            return
        if response is not None and error is None:
            self.future.set_result(response)
        else:
            self.future.set_exception(error)

    # ── leasing the parts ──

    def _lease_parts(self) -> list[Step] | None:
        """Lease what the steps need; of ensembles among them it is known only then what they do."""
        if self.leased is not None:
            return self._begin_steps(self.leased)
        return self._lease_all(tuple(dict.fromkeys(step.part for step in self._plan.steps)))

    def _lease_all(self, parts: tuple[Named, ...]) -> list[Step] | None:
        means = self._means
        found: dict[Named, ModelId] = {}

        def find() -> tuple[ModelId, ...]:
            found.update((part, means.model(part)) for part in parts)
            return tuple(dict.fromkeys(found.values()))

        with needing(self._held.model):
            coming = means.leases.acquire(find, within=self._outer)
        if coming.done():
            return self._came_leased(found, coming)
        self._await(coming, partial(self._came_leased, found))
        return None

    def _came_leased(self, found: dict[Named, ModelId], coming: Future[Lease]) -> list[Step] | None:
        """Begin, unless it turns out now that other models are needed."""
        with needing(self._held.model):
            lease = coming.result()
        with ExitStack() as owned:
            owned.enter_context(lease)
            if self._error is not None:
                return []
            leased = Leased(found, lease.sessions)
            more = tuple(more_parts(self._session, self._wanted, leased))
            if not more:
                owned.enter_context(self._means.under_way.of(leased.sessions, self._stop))
                self._ending.enter_context(owned.pop_all())
                self.leased = leased
                self._kept = (*self._kept, *leased.sessions)
                return self._begin_steps(leased)
        return self._lease_all(tuple(dict.fromkeys((*found, *more))))

    def _begin_steps(self, leased: Leased) -> list[Step]:
        self._session.check(self._plan.steps, leased.signature)
        self._begun()
        self._began_s = time.perf_counter()
        return self._flow.first()

    # ── one step ──

    def _step(self, step: Step) -> list[Step] | None:
        """Run *step*, now or once its turn has come."""
        leased = self.leased
        assert leased is not None
        with self._lock:
            if self._error is not None:
                return []
            taken = self._flow.take(step)
        request = asked_of(
            step,
            leased,
            taken,
            self._request,
            outputs=self._plan.outputs[step.number],
            stop=self._stop,
        )
        with placed(self._held.model, step):
            answer = self._answer(leased.part(step), request)
            if isinstance(answer, InferResponse):
                return self._given(step, request.nbytes, answer)
        self._await(answer, partial(self._came, step, request.nbytes))
        return None

    def _answer(self, part: Part, request: InferRequest) -> InferResponse | Future[InferResponse]:
        """What *part* answers, now or once its turn has come."""
        means = self._means
        wait = means.waits.begin(partial(self._waited, part))
        try:
            if isinstance(part.session, EnsembleSession):
                inner = means.execution(part, request, wait.end, self)
                inner.begin()
                return inner.future
            return means.runner_of(part).start(part, request, wait.end)
        except BaseException:
            wait.end()
            raise

    def _waited(self, part: Part) -> None:
        waits = self._means.waits
        waited = (
            f"{self._held.model} waited {show_seconds(waits.wait_s)} for a turn of {part.model}"
        )
        self._fail(WaitedTooLong(waited, waits.retry_after_s))

    def _came(self, step: Step, nbytes: int, answer: Future[InferResponse]) -> list[Step]:
        with placed(self._held.model, step):
            return self._given(step, nbytes, answer.result())

    def _given(self, step: Step, nbytes: int, response: InferResponse) -> list[Step]:
        leased = self.leased
        assert leased is not None
        own_s = self._means.runs.expected_s(response.model, leased.session(step), nbytes)
        with self._lock:
            self._own_s += own_s
            return self._flow.give(step, response.outputs)
