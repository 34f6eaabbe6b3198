"""Dynamic batching: requests that wait for a model, and which of them run together."""

from workbench.batching.queue import EXPIRED, BatchQueue, Waiting

__all__ = ["EXPIRED", "BatchQueue", "Waiting"]
