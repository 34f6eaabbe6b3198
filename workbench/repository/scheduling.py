"""``dynamic_batching`` and ``instance_group`` of a configuration."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from workbench.model import Batching, QueuePolicy

_MOST_INSTANCES = 1024
_MOST_LEVELS = 1000


def batching_of(message: Any, max_batch_size: int) -> Batching:
    """How requests run together, by *message*, a ModelDynamicBatching. Raises ``ValueError``."""
    preferred = tuple(message.preferred_batch_size)
    wrong = [size for size in preferred if not 0 < size <= max_batch_size]
    if wrong:
        raise ValueError(
            f"dynamic_batching.preferred_batch_size {wrong[0]} is not from 1 to max_batch_size, "
            f"{max_batch_size}"
        )
    levels, default_level = message.priority_levels, message.default_priority_level
    if levels > _MOST_LEVELS:
        raise ValueError(f"dynamic_batching.priority_levels {levels} is above {_MOST_LEVELS}")
    if (levels and not 0 < default_level <= levels) or (default_level and not levels):
        raise ValueError(
            f"dynamic_batching.default_priority_level is {default_level}; it must be from 1 to "
            f"priority_levels, {levels}"
        )
    policies = {level: _policy(policy) for level, policy in message.priority_queue_policy.items()}
    strange = [level for level in policies if not 0 < level <= levels]
    if strange:
        raise ValueError(
            f"dynamic_batching.priority_queue_policy has level {strange[0]}; there are {levels}"
        )
    return Batching(
        preferred,
        message.max_queue_delay_microseconds / 1e6,
        message.preserve_ordering,
        levels,
        default_level,
        _policy(message.default_queue_policy),
        policies,
    )


def _policy(message: Any) -> QueuePolicy:
    action = message.DESCRIPTOR.enum_types_by_name["TimeoutAction"].values_by_name["DELAY"].number
    return QueuePolicy(
        message.max_queue_size,
        message.default_timeout_microseconds / 1e6,
        message.allow_timeout_override,
        message.timeout_action == action,
    )


def instances_of(messages: Iterable[Any]) -> tuple[int, str]:
    """How many runs may go on at once (0: the server chooses), and the wanted device.

    The device is ``"GPU"``, ``"CPU"`` or ``""``. Raises ``ValueError``.
    """
    count, places = 0, set()
    for message in messages:
        kind = message.DESCRIPTOR.enum_types_by_name["Kind"].values_by_number.get(message.kind)
        if kind is None or message.count < 0:
            raise ValueError(
                f"instance_group has count {message.count} and kind {message.kind}, which cannot be"
            )
        count += message.count
        places.add(kind.name.removeprefix("KIND_"))
    if count > _MOST_INSTANCES:
        raise ValueError(f"instance_group has {count} instances; at most {_MOST_INSTANCES} go")
    (place,) = places if len(places) == 1 else ("",)
    return count, place if place in ("CPU", "GPU") else ""
