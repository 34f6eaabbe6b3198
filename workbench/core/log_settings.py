"""Which log records the server keeps: the settings of Triton's logging extension."""

from __future__ import annotations

import logging
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Which log records are kept, and how their times are written.

    *verbose_level* above 0 also keeps records below INFO. *format* is ``"default"``, local time,
    or ``"ISO8601"``, in UTC. The loggers' own levels, as Python has them, come before this.
    """

    info: bool = True
    warning: bool = True
    error: bool = True
    verbose_level: int = 0
    format: str = "default"

    def keeps(self, level: int) -> bool:
        """Whether a record of *level*, one of ``logging``'s, is kept."""
        if level >= logging.ERROR:
            return self.error
        if level >= logging.WARNING:
            return self.warning
        return self.info if level >= logging.INFO else self.verbose_level > 0
