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
    """Choose the devices of all models of *request*.

    A model stays where it is, or where another of the *requests* waits for it. After these the
    others get theirs, the largest first: the device with the most room. Room is the lesser of two
    numbers. By the books: free bytes, less the needs of *requests* that have no room promised yet.
    By the *system*: free bytes, ``None`` if unknown. A device that can never hold the model
    together with the other models of the request comes last. Of equal devices the first is chosen.
    """
    devices, homes, needs = residents.devices, request.homes, request.needs
    if len(devices) == 1:
        homes.update(dict.fromkeys(request.models, devices[0]))
        return
    budgets = [device.budget_nbytes for device in devices]
    free = [device.free_nbytes for device in devices]
    coming = {model: (home, r.needs[model]) for r in requests for model, home in r.homes.items()}
    for model, (home, nbytes) in coming.items():
        if residents.find(model) is None:
            free[home.number] -= nbytes

    def place(model: ModelId, device: DeviceBooks, nbytes: int) -> None:
        homes[model] = device
        budgets[device.number] -= nbytes

    absent = []
    for model in request.models:
        resident = residents.find(model)
        if resident is not None:
            place(model, resident.device, max(needs[model], resident.claimed_nbytes))
        elif model in coming:
            place(model, coming[model][0], needs[model])
        else:
            absent.append(model)

    def room(device: DeviceBooks) -> tuple[bool, int]:
        number = device.number
        by_system = system[number] if number < len(system) else None
        free_nbytes = free[number] if by_system is None else min(free[number], by_system)
        return budgets[number] >= needs[model], free_nbytes

    for model in sorted(absent, key=lambda model: -needs[model]):
        device = max(devices, key=room)
        place(model, device, needs[model])
        free[device.number] -= needs[model]
