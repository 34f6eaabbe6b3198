"""The errors that only SageMaker's routes raise; each wire but theirs knows the classes above."""

from __future__ import annotations

from workbench.errors import MemoryExhausted, RunFailed, UsageError


class ModelExists(UsageError):
    """A model of that name is loaded already, or is being loaded or unloaded."""


class ContainerRefused(RunFailed):
    """The container of an endpoint answered with an error, whose body is the message.

    *code* is its status, and *told* what the body says.
    """

    def __init__(self, message: str, code: int = 500, told: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.told = told or message


class DiskFull(MemoryExhausted):
    """The disk has no room for the files of the model."""
