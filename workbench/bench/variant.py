"""Other configurations of a model, to measure beside its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from workbench.errors import UsageError

Config = Mapping[str, Any]

MAX_BATCH = 64  # of a model whose configuration has no largest batch
_THREADS = "intra_op_thread_count"  # as Triton's ONNX Runtime backend calls it


def check_configurable(config: Config) -> None:
    """Raise ``UsageError`` for a model whose batches, instances and threads cannot be changed."""
    name = config.get("name")
    if config.get("ensemble_scheduling"):
        raise UsageError(f"{name!r} is an ensemble, which only passes tensors on: tune its parts")
    if config.get("backend") == "python" and not config.get("default_model_filename"):
        raise UsageError(f"{name!r} is a function, which has no configuration to tune")


@dataclass(frozen=True)
class Variant:
    """What is changed in a model's configuration; ``None`` is left as it is.

    *batching*: whether the server puts requests together. *instances*: how many runs go at once.
    *threads*: how many threads one run may use.
    """

    batching: bool | None = None
    instances: int | None = None
    threads: int | None = None

    def __str__(self) -> str:
        parts = []
        if self.batching is not None:
            parts.append("batching" if self.batching else "no batching")
        if self.instances is not None:
            parts.append(f"{self.instances} instance" + "s" * (self.instances != 1))
        if self.threads is not None:
            parts.append(f"{self.threads} thread" + "s" * (self.threads != 1))
        return ", ".join(parts) or "as configured"

    def of(self, config: Config) -> dict[str, Any]:
        """The configuration *config* (Triton's ModelConfig) with these changes.

        Raises ``UsageError`` for batches of a model whose first dimension has one size only.
        """
        changed = dict(config)
        if self.batching is False:
            changed.pop("dynamic_batching", None)
        elif self.batching:
            changed = _with_batches(changed)
            changed.setdefault("dynamic_batching", {})
        if self.instances is not None:
            groups: Sequence[Config] = config.get("instance_group") or ({},)
            kind = {key: groups[0][key] for key in ("kind", "gpus") if groups[0].get(key)}
            changed["instance_group"] = [{**kind, "count": self.instances}]
        if self.threads is not None:
            threads = {_THREADS: {"string_value": str(self.threads)}}
            changed["parameters"] = {**config.get("parameters", {}), **threads}
        return changed


def _with_batches(config: dict[str, Any]) -> dict[str, Any]:
    """The same model, whose first dimension is declared to be a batch, in a *reshape* too."""
    if config.get("max_batch_size"):
        return config
    changed = {**config, "max_batch_size": MAX_BATCH}
    for end in ("input", "output"):
        tensors = config.get(end, ())
        changed[end] = each = [_without_batch(tensor) for tensor in tensors]
        if None in each:
            raise UsageError(
                f"{config['name']} takes no batches: the first dimension of each {end} must be -1"
            )
    return changed


def _without_batch(tensor: Config) -> Config | None:
    """The declaration *tensor* without its first dimension; ``None`` if that is no batch."""
    shapes = [tensor["dims"], *([tensor["reshape"]["shape"]] if tensor.get("reshape") else ())]
    if not all(shape and int(shape[0]) == -1 for shape in shapes):
        return None
    dims, *reshape = (shape[1:] for shape in shapes)
    return {**tensor, "dims": dims, **({"reshape": {"shape": reshape[0]}} if reshape else {})}


def variants(
    batching: Sequence[bool], instances: Sequence[int], threads: Sequence[int]
) -> tuple[Variant, ...]:
    """Each combination of what is given; of nothing, the model as it is configured."""
    return tuple(
        Variant(*each)
        for each in product(batching or (None,), instances or (None,), threads or (None,))
    )
