"""On which of several devices a model is loaded: a pure function."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from workbench.model import ModelId
from workbench.residency.records import Device, Request


def choose_device(
    model: ModelId,
    request: Request,
    devices: Sequence[Device],
    coming: Iterable[tuple[Device, int]],
    system: Sequence[int | None],
) -> Device:
    """The one of *devices* with the most room for *model* of *request*.

    By the books, without the bytes of models that are *coming* and have no promise yet, and by
    the *system*, which may not say. A device that could never hold the model beside others of
    the request comes last; the first of equals.
    """
    free = [device.ledger.free_nbytes for device in devices]
    for device, nbytes in coming:
        free[device.number] -= nbytes
    budgets = [device.ledger.budget_nbytes for device in devices]
    for other, device in request.homes.items():
        budgets[device.number] -= request.needs[other]

    def room(device: Device) -> tuple[bool, int]:
        number = device.number
        by_system = system[number] if number < len(system) else None
        free_nbytes = free[number] if by_system is None else min(free[number], by_system)
        return budgets[number] >= request.needs[model], free_nbytes

    return max(devices, key=room)
