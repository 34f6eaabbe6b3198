"""The interface of backends, which inspect and load models, and of their sessions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

from workbench.model import Footprint, ModelId, ModelSource, Need, Schedule, Signature
from workbench.stop import CancellationToken
from workbench.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Inspection:
    """The facts about a model before it is loaded.

    *need*: an upper bound of the memory for loading and keeping it. *origin* and *schedule*: as in
    its sessions.
    """

    signature: Signature
    need: Need
    origin: object = None
    schedule: Schedule | None = None


class Session:
    """A loaded model.

    *footprint*: its memory, which should be at most the *need* of its inspection, and grows with
    what its first runs keep; *unsure_nbytes*: what it may hold beside that. *origin*: sessions of
    equal origins give equal answers. *steady*: the time of a run depends on the shapes of the
    inputs only. *may_call*: it may request other models while it runs. *recovers*: it still runs
    after a run that had too little memory. *divisible*: small inputs of zeros cannot break it.
    *schedule*: how the core runs its requests; without one each runs at once. *alike*: see
    ``FunctionModel``. *parts*: the models of an ensemble, by name and version (``None``: the
    latest). The core sets *runner*, which runs the requests, and *loaded_from*, its
    ``ModelSource``, when the model becomes READY.
    """

    signature: Signature
    footprint = Footprint()
    unsure_nbytes = 0
    origin: object = None
    steady: bool = False
    may_call: bool = False
    recovers: bool = True
    divisible: bool = False
    schedule: Schedule | None = None
    alike: Callable[[Mapping[str, Any]], Hashable] | None = None
    parts: Mapping[tuple[str, int | None], ModelId] = MappingProxyType({})
    runner: Any = None
    loaded_from: Any = None

    def cancel(self) -> None:
        """Ask the runs in progress to end soon, if that is possible."""

    def close(self) -> None:
        """Free the memory. Called once, when no run uses the session any more; never raises."""


class Runnable(Session, ABC):
    """A session that runs requests, from several threads at once."""

    @abstractmethod
    def run(
        self,
        inputs: Mapping[str, Tensor],
        outputs: Sequence[str],
        into: Mapping[str, memoryview] | None = None,
        stop: CancellationToken | None = None,
    ) -> list[Tensor]:
        """The wanted *outputs*, in order. Raises ``RunFailed`` or ``MemoryExhausted``.

        *stop* ends the run, with any error, if runs of this kind can be ended.

        An output named in *into* may be written to the start of that memory; its tensor is then a
        view of it. Else its tensor is like any other, and the caller copies it. The rest of that
        memory, and all of it after an error, is undefined. The caller makes sure that no input
        overlaps that memory at another address.
        """


class Backend(Protocol):
    """Makes sessions of one kind of model."""

    def wake(self) -> None:
        """Import the engine, so that its memory is not counted as a model's.

        Raises ``LoadFailed`` or ``MemoryExhausted``.
        """
        ...

    def inspect(self, source: ModelSource) -> Inspection:
        """Inspect the model without loading it. Raises ``LoadFailed``."""
        ...

    def load(self, source: ModelSource, stop: CancellationToken | None = None) -> Session:
        """Load the model. Raises ``LoadFailed`` or ``MemoryExhausted``.

        *stop* ends the load, with any error, if loads of this kind can be ended.
        """
        ...
