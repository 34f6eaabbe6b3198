"""Running Python functions, which may call other models, and generator functions."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar

from workbench.backends.base import Runnable
from workbench.backends.function import FunctionSession, GeneratorSession
from workbench.core.inference.direct import Direct, check_allowed
from workbench.core.inference.runner import Turn
from workbench.core.run_memory import RunMemory
from workbench.core.runs import Runs, finish
from workbench.core.turns import Gate, Held, Place
from workbench.errors import NotSupported, RunFailed
from workbench.inference import InferRequest, InferResponse
from workbench.model import ModelId, shown_name
from workbench.stop import running_until
from workbench.tensor import Tensor

_MOST_RUNS = 64  # that wait for each other in one request, each on a thread of its own

_turn: ContextVar[Turn] = ContextVar("workbench-turn")  # of the stream that this thread runs


class Calling(Direct):
    """Runs a ``FunctionSession``; the request's stop ends it if the function is ``async``."""

    def _run(
        self, request: InferRequest, nbytes: int, inline: bool, on_the_spot: bool
    ) -> InferResponse:
        """As in ``Direct``; inline only what is steady: others have no predictable pace."""
        return super()._run(request, nbytes, inline and self._steady, on_the_spot)

    def _tensors(
        self, request: InferRequest, wanted: tuple[str, ...]
    ) -> tuple[Sequence[Tensor], float | None]:
        """The outputs of the run; its CPU time is not measured."""
        session = self.session
        assert isinstance(session, FunctionSession)
        check_allowed(session, request)
        self._check_depth()
        with (
            self._runs.on_behalf((self.model,)),
            self._memory.watch.run(self.model),
            running_until(request.stop),
        ):
            return session.run(request.inputs, wanted, request=request), None

    def _check_depth(self) -> None:
        """Raise ``RunFailed`` if functions ask each other without an end."""
        parents = self._runs.parents
        if self._runs.depth < _MOST_RUNS or self.model not in parents:
            return
        models = (*parents[parents.index(self.model) :], self.model)
        circle = [shown_name(model.name) for model in models]
        told = f"{' asks '.join(circle)}, {_MOST_RUNS} deep"
        raise RunFailed(f"functions ask each other without an end: {told}", circle=circle)


class Streaming(Calling):
    """Runs a ``GeneratorSession``; a run lasts until the generator has ended.

    Each has a thread until then, and its turn only while it computes an answer.
    """

    def __init__(self, runs: Runs, memory: RunMemory, model: ModelId, session: Runnable) -> None:
        super().__init__(runs, memory, model, session)
        assert isinstance(session, GeneratorSession)
        self._place = Place(model, session.concurrent)
        self._gate = Gate(self._place)

    def start(self, request: InferRequest, turn: Turn) -> InferResponse:
        """As in ``Direct``; the wait is over with the turn for the first answer."""
        before = _turn.set(turn)
        try:
            return self.run(request)
        finally:
            _turn.reset(before)

    def _tensors(
        self, request: InferRequest, wanted: tuple[str, ...]
    ) -> tuple[Sequence[Tensor], float | None]:
        """Pass each answer to the request as it comes; returns no outputs."""
        session, each, stop = self.session, request.each, request.stop
        assert isinstance(session, GeneratorSession)
        check_allowed(session, request)
        self._check_depth()
        if each is None:
            raise NotSupported(
                f"{self.model} may give several answers (decoupled transaction policy): use "
                "generate_stream, gRPC's ModelStreamInfer or Workbench.stream"
            )

        def end() -> None:
            if stop is not None and session.end.error is not None:
                stop.set(session.end.error)

        begun = _turn.get().begun  # after which it may not have waited too long
        runs, callers, held = self._runs, self._runs.turns, Held(self._place)
        nested = self.model in runs.parents  # whose caller has a turn already
        gate = Gate(Place(self.model, 0)) if nested else self._gate
        with (
            session.end.calls(end),
            runs.on_behalf((self.model,), turns=(held,)),
            self._memory.watch.run(self.model),
            running_until(stop),
        ):
            answers = session.stream(request.inputs, wanted, request)
            try:
                while True:
                    with gate.turn(held, callers, stop):
                        begun()
                        tensors = next(answers, None)
                    if tensors is None:
                        break
                    outputs = dict(zip(wanted, tensors, strict=True))
                    finish(outputs, request, self.signature)
                    each(InferResponse(self.model, outputs, request.id, final=False))
            finally:
                with gate.turn(held, (), None):
                    answers.close()
        return (), None
