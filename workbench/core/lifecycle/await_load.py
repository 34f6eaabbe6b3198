"""Waiting for models that a user wants loaded, and which models have the room meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import CancelledError, Future
from contextlib import nullcontext
from functools import partial

from workbench.errors import WaitedTooLong
from workbench.model import ModelId, ModelState
from workbench.nbytes import show_nbytes
from workbench.residency import Lease, Residency, ResidentSnapshot, abandon
from workbench.seconds import show_duration
from workbench.stop import CancellationToken

_FEW = 3  # models that are named


def loaded(
    residency: Residency,
    coming: Future[Lease],
    models: Sequence[ModelId],
    stop: CancellationToken | None,
    wait_s: float,
) -> Lease:
    """The lease on *models* that is *coming*, since a user wants them loaded.

    *stop* ends the loads, unless others wait for them. Raises as ``Residency.acquire``, and
    ``WaitedTooLong`` if there is no room after *wait_s*; a load that has begun is waited for.
    """
    try:
        with stop.calls(partial(abandon, coming)) if stop else nullcontext():
            while not _is_done(coming, wait_s):
                if not are_loading(residency, models):
                    raise too_long(", ".join(map(str, models)), residency, wait_s)
        if stop is not None and stop.error is not None:  # then the lease was given back
            raise stop.error
        return coming.result()
    except CancelledError:
        assert stop is not None
        assert stop.error is not None
        raise stop.error from None
    except BaseException:  # an interrupt, for example: nobody would release the lease
        abandon(coming)
        raise


def are_loading(residency: Residency, models: Sequence[ModelId]) -> bool:
    """True if the load of any of *models* has begun."""
    plain = {model.plain for model in models}
    found = [r for r in residency.snapshot().residents.values() if r.id.plain in plain]
    return any(each.state is ModelState.LOADING and each.nbytes for each in found)


def _is_done(coming: Future[Lease], timeout_s: float) -> bool:
    """Wait up to *timeout_s*; whether *coming* is done. Raises ``CancelledError``."""
    try:
        coming.exception(timeout_s)  # ``wait`` does not return when a future is cancelled
    except TimeoutError:
        return False
    return True


def too_long(waiting: str, residency: Residency, wait_s: float) -> WaitedTooLong:
    """The error for the models *waiting*: who holds the room that they did not get."""
    held = holders(residency)
    because = f": {held}" if held else ""
    return WaitedTooLong(f"{waiting} waited {show_duration(wait_s)} for room{because}")


def holders(residency: Residency) -> str:
    """The largest models that cannot be evicted now, and why; empty if there are none."""
    residents = residency.snapshot().residents.values()
    held = [resident for resident in residents if resident.nbytes]
    stay = [r for r in held if r.pinned or r.leases or r.state is not ModelState.READY]
    stay.sort(key=lambda resident: -resident.nbytes)
    more = ["..."] if len(stay) > _FEW else []
    return ", ".join([*map(_holding, stay[:_FEW]), *more])


def _holding(resident: ResidentSnapshot) -> str:
    held = f"{resident.id} holds {show_nbytes(resident.nbytes)}"
    if resident.busy_s is not None:
        return f"{held} in a run that has lasted {show_duration(round(resident.busy_s, 1))}"
    if resident.state is not ModelState.READY:
        return f"{held} and is {resident.state.words}"
    return f"{held} and waits for another model" if resident.leases else f"{held} and is pinned"
