"""What is kept of the server's log: Triton's logging extension, as a value."""

from __future__ import annotations

import logging
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Which records are kept, and how their times are written.

    *verbose_level* above 0 keeps what is below INFO too. *format* is
    ``"default"``, local time, or ``"ISO8601"``, in UTC. How much is said in the
    first place is up to the levels of the loggers, which are Python's own.
    """

    info: bool = True
    warning: bool = True
    error: bool = True
    verbose_level: int = 0
    format: str = "default"

    def keeps(self, level: int) -> bool:
        """Whether a record of that *level*, one of ``logging``'s, is kept."""
        if level >= logging.ERROR:
            return self.error
        if level >= logging.WARNING:
            return self.warning
        return self.info if level >= logging.INFO else self.verbose_level > 0
