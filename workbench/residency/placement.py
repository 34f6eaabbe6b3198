"""On which device a model is loaded."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from workbench.model import ModelId
from workbench.residency.residents import Residents
from workbench.residency.state import DeviceBooks, WaitingRequest


def choose_devices(
    request: WaitingRequest,
    residents: Residents,
    requests: Collection[WaitingRequest],
    system: Sequence[int | None],
) -> None:
    """Choose the devices of all models of *request*, the largest model first; see ``_choose``."""
    if len(residents.devices) == 1:
        for model in request.models:
            request.homes[model] = residents.devices[0]
        return
    for model in sorted(request.models, key=lambda model: -request.needs[model]):
        request.homes[model] = _choose(model, request, residents, requests, system)


def _choose(
    model: ModelId,
    request: WaitingRequest,
    residents: Residents,
    requests: Collection[WaitingRequest],
    system: Sequence[int | None],
) -> DeviceBooks:
    """The device of *model*; if it is on none and no request waits for it, the one with most room.

    Room is the lesser of two numbers. By the books: free bytes, less the needs of *requests* that
    have no room promised yet. By the *system*: free bytes, ``None`` if unknown. A device that can
    never hold the model together with the other models of the *request* comes last. Of equal
    devices the first is chosen.
    """
    devices, resident = residents.devices, residents.find(model)
    if resident is not None:
        return resident.device
    placed = {m: (home, each.needs[m]) for each in requests for m, home in each.homes.items()}
    if model in placed:
        return placed[model][0]
    free = [device.free_nbytes for device in devices]
    for other, (home, nbytes) in placed.items():
        if residents.find(other) is None:
            free[home.number] -= nbytes
    budgets = [device.budget_nbytes for device in devices]
    for other, device in request.homes.items():
        budgets[device.number] -= request.needs[other]

    def room(device: DeviceBooks) -> tuple[bool, int]:
        number = device.number
        by_system = system[number] if number < len(system) else None
        free_nbytes = free[number] if by_system is None else min(free[number], by_system)
        return budgets[number] >= request.needs[model], free_nbytes

    return max(devices, key=room)
