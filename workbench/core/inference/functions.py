"""Running Python functions, which may call other models, and generator functions."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from workbench.backends.function import FunctionSession, GeneratorSession
from workbench.core.inference.direct import Direct, check_allowed
from workbench.core.runs import finish
from workbench.errors import ManyAnswers
from workbench.inference import InferRequest, InferResponse
from workbench.stop import running_until
from workbench.tensor import Tensor


class Calling(Direct):
    """Runs a ``FunctionSession``; the request's stop ends it if the function is ``async``."""

    def run(self, request: InferRequest) -> InferResponse:
        """As in ``Direct``; never inline, for a function has no predictable pace."""
        return self._run(request, request.nbytes, False, False)

    def _tensors(
        self, request: InferRequest, wanted: tuple[str, ...]
    ) -> tuple[Sequence[Tensor], float | None]:
        """The outputs of the run; its CPU time is not measured."""
        session = self.session
        assert isinstance(session, FunctionSession)
        check_allowed(session, request)
        with (
            self._runs.on_behalf((self.model,)),
            self._memory.watch.run(self.model),
            running_until(request.stop),
        ):
            return session.run(request.inputs, wanted, parameters=request.parameters), None


class Streaming(Calling):
    """Runs a ``GeneratorSession``; a run lasts until the generator has ended."""

    def _tensors(
        self, request: InferRequest, wanted: tuple[str, ...]
    ) -> tuple[Sequence[Tensor], float | None]:
        """Pass each answer to the request as it comes; returns no outputs."""
        session, each = self.session, request.each
        assert isinstance(session, GeneratorSession)
        check_allowed(session, request)
        if each is None:
            raise ManyAnswers(
                f"{self.model} may give several answers: use generate_stream, gRPC's "
                "ModelStreamInfer or Workbench.stream"
            )

        def end() -> None:
            if request.stop is not None and session.end.error is not None:
                request.stop.set(session.end.error)

        with (
            session.end.calls(end),
            self._runs.on_behalf((self.model,)),
            self._memory.watch.run(self.model),
            running_until(request.stop),
            closing(session.stream(request.inputs, wanted, request.parameters)) as answers,
        ):
            for tensors in answers:
                outputs = dict(zip(wanted, tensors, strict=True))
                finish(outputs, request, self.signature)
                each(InferResponse(self.model, outputs, request.id, final=False))
        return (), None
