"""Running a Python function, which may call other models."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.backends.function import FunctionSession
from workbench.core.held import Borrowed
from workbench.core.inference.direct import Direct, check_allowed
from workbench.inference import InferRequest
from workbench.stop import running_until
from workbench.tensor import Tensor


class Calling(Direct):
    """Runs a ``FunctionSession``; the request's stop ends it if the function is ``async``."""

    def _tensors(
        self,
        held: Borrowed,
        request: InferRequest,
        wanted: tuple[str, ...],
        *,
        inline: bool,  # noqa: ARG002  # a function has no predictable pace
    ) -> tuple[Sequence[Tensor], float | None]:
        """The outputs of the run; its CPU time is not measured."""
        session = held.session
        assert isinstance(session, FunctionSession)
        check_allowed(held, request)
        with (
            self._runs.on_behalf((held.model,)),
            self._memory.watch(held.model),
            running_until(request.stop),
        ):
            return session.run(request.inputs, wanted, parameters=request.parameters), None
